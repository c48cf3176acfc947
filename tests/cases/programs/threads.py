"""Many threads, of which each knows its own number and what it has counted.

usage: threads COUNT GO
"""

import sys
import threading

import cuda

count = int(sys.argv[1])
ready, go = threading.Barrier(count + 1), threading.Event()
lines = [None] * count
device = cuda.Device()
memory = device.alloc(4 * count)
device.set(memory, 1, 4 * count)


def work(number):
    tid = threading.get_native_id()
    stack = [number * i for i in range(100)]
    device.enter()
    ready.wait()
    go.wait()
    device.mix(memory + 4 * number, 1, number)
    same = threading.get_native_id() == tid
    lines[number] = f"{number} {same} {sum(stack)} {device.read(memory + 4 * number, 4).hex()}"


threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
for thread in threads:
    thread.start()
ready.wait()
cuda.say("ready")
cuda.await_file(sys.argv[2])
go.set()
for thread in threads:
    thread.join()
cuda.say("\n".join(lines))
