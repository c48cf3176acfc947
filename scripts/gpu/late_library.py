"""Uses CUDA's runtime, and a library with a runtime of its own once a file exists: both look the devices over when they are first used.

usage: late_library.py FILE    prints "ready", and, when FILE exists, "the same" or what differs
"""

import ctypes
import os
import sys
import time

BYTES = 1 << 20


def main():
    runtime = ctypes.CDLL("libcudart.so.13")

    def call(name, *arguments):
        result = getattr(runtime, name)(*arguments)
        if result != 0:
            sys.exit(f"{name}: error {result}")

    memory = ctypes.c_void_p()
    call("cudaMalloc", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    call("cudaMemset", memory, 7, ctypes.c_size_t(BYTES))
    call("cudaDeviceSynchronize")
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    read = ctypes.create_string_buffer(BYTES)
    call("cudaMemcpy", read, memory, ctypes.c_size_t(BYTES), 2)
    handle = ctypes.c_void_p()
    result = ctypes.CDLL("libcublas.so.13").cublasCreate_v2(ctypes.byref(handle))
    print("the same" if result == 0 and read.raw == b"\7" * BYTES else f"cublasCreate: {result}, memory as it was: "
          f"{read.raw == bytes([7]) * BYTES}")


main()
