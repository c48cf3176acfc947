"""Says "ready" while much of what it has asked for on two streams is not done yet.

usage: queued GO    the memory is one allocation, of which both streams change parts that overlap views of it
"""

import ctypes
import hashlib
import sys

import cuda

SIZE = (2 << 20) + 512
VIEWS = ((0, SIZE // 4, 1), (511 * 4, 1000, 2), ((1 << 20) - 4, 4096, 3))  # offset, words, seed

device = cuda.Device()
memory = device.alloc(SIZE)
device.set(memory, 1, SIZE)
device.synchronize()
side, other = device.stream(), device.stream()
event = ctypes.c_void_p()
cuda.call("cuEventCreate", ctypes.byref(event), 2)
for turn in range(20):
    for offset, words, seed in VIEWS:
        device.mix(memory + offset, words, seed + turn, 10, side)
cuda.call("cuEventRecord", event, side)
cuda.call("cuStreamWaitEvent", other, event, 0)
cuda.call("cuMemsetD8Async", cuda.pointer(memory + 12345), 9, ctypes.c_size_t(777), other)
cuda.say("ready")
cuda.await_file(sys.argv[1])
device.mix(memory + 4096, 100, 5, 1, other)
device.synchronize()
cuda.say("holds " + hashlib.sha256(device.read(memory, SIZE)).hexdigest())
