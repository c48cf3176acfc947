"""Threads that ask the driver whether it is done, on a busy stream and on an idle one, all the time.

usage: synchronize COUNTS GO    each thread counts its calls in COUNTS, a file of numbers; once GO exists all end
"""

import ctypes
import mmap
import sys
import threading

import cuda

NOT_READY = 600
CELLS = 1 << 14


def thread(device, counts, index, turn, ended):
    device.enter()
    while not ended.is_set():
        turn()
        counts[index] += 1


def main():
    device = cuda.Device()
    busy, idle = device.stream(), device.stream()
    memory = device.alloc(CELLS * 4)
    device.set(memory, 1, CELLS * 4)
    device.synchronize()  # the other streams wait for nobody
    event = ctypes.c_void_p()
    cuda.call("cuEventCreate", ctypes.byref(event), 2)  # CU_EVENT_DISABLE_TIMING
    ended = threading.Event()
    launches = 0

    def launch():
        nonlocal launches
        device.mix(memory, CELLS, launches, 50, busy)
        cuda.call("cuEventRecord", event, busy)
        launches += 1
        if launches % 16 == 0:
            cuda.call("cuStreamSynchronize", busy)

    def query(name, what):
        code = getattr(cuda.DRIVER, name)(what)
        if code not in (0, NOT_READY):
            raise cuda.CudaError(name, code)

    turns = [launch, cuda.Device.synchronize, lambda: cuda.call("cuStreamSynchronize", busy),
             lambda: cuda.call("cuStreamSynchronize", idle), lambda: cuda.call("cuEventSynchronize", event),
             lambda: query("cuEventQuery", event), lambda: query("cuStreamQuery", busy), lambda: device.read(memory, 64)]
    with open(sys.argv[1], "r+b") as file:
        counts = memoryview(mmap.mmap(file.fileno(), 8 * len(turns))).cast("Q")
        threads = [threading.Thread(target=thread, args=(device, counts, index, turn, ended)) for index, turn in enumerate(turns)]
        for each in threads:
            each.start()
        cuda.say("ready")
        cuda.await_file(sys.argv[2])
        ended.set()
        for each in threads:
            each.join()
    device.synchronize()
    expected = bytearray(device.read(memory, 4))
    device.set(memory, 1, CELLS * 4)
    for number in range(launches):
        device.mix(memory, CELLS, number, 50)
    cuda.say("same" if device.read(memory, 4) == expected else "different")


main()
