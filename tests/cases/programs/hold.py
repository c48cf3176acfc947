"""Holds device memory until it is ended. usage: hold BYTES DEVICE"""

import sys
import threading

import cuda

device = cuda.Device(int(sys.argv[2]))
memory = device.alloc(int(sys.argv[1]))
device.set(memory, 1, int(sys.argv[1]))
device.synchronize()
cuda.say("ready")
threading.Event().wait()
