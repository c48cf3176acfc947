"""Changes its cells step for step; at step WHEN it begins to use managed memory.

usage: managed FOLDER STEPS WHEN    step N once FOLDER has a file N
"""

import ctypes
import os
import sys

import cuda

CELLS = 1000


def main():
    device = cuda.Device()
    memory = device.alloc(CELLS * 4)
    device.set(memory, 7, CELLS * 4)
    managed = None
    cuda.say("ready")
    for step in range(1, int(sys.argv[2]) + 1):
        cuda.await_file(os.path.join(sys.argv[1], str(step)))
        if step == int(sys.argv[3]):
            managed = ctypes.c_uint64()
            cuda.call("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(CELLS * 4), 1)
            ctypes.memset(managed.value, 3, CELLS * 4)
        device.mix(memory, CELLS, step)
        if managed is not None:
            device.mix(managed.value, CELLS, step)
            device.synchronize()
        cuda.say(f"step {step} {device.read(memory, 8).hex()} {ctypes.string_at(managed.value, 8).hex() if managed else ''}")


main()
