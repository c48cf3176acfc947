"""Uses a library of its own, which may be another one by the time it is restored. usage: library FILE GO"""

import ctypes
import sys

import cuda

library = ctypes.CDLL(sys.argv[1])
device = cuda.Device()
memory = device.alloc(4096)
device.set(memory, library.answer(), 4096)
cuda.say("ready")
cuda.await_file(sys.argv[2])
cuda.say("end" if device.read(memory, 4096) == bytes([library.answer()]) * 4096 else "changed")
