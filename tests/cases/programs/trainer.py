"""Changes device memory without end, with a kernel under way nearly all the time. usage: trainer BYTES"""

import sys

import cuda

size = int(sys.argv[1])
device = cuda.Device()
memory = device.alloc(size)
device.set(memory, 1, size)
device.synchronize()
cuda.say("ready")
number = 0
while True:
    for _ in range(8):
        device.mix(memory, size // 4, number, 20)
        number += 1
    device.synchronize()
    cuda.say(f"turn {number}")
