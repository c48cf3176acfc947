"""NVML is used by a process that does not use CUDA, or in front of CUDA, as by a library when it is loaded.

usage: nvml parent|constructor NVML GO
"""

import ctypes
import os
import subprocess
import sys

import cuda

NVML = ctypes.CDLL(sys.argv[2])


def main():
    if sys.argv[1] == "cuda":
        return use_cuda()
    if NVML.nvmlInit_v2() != 0:
        raise OSError("nvmlInit_v2")
    if sys.argv[1] == "constructor":
        return use_cuda()
    return subprocess.call([sys.executable, "-B", sys.argv[0], "cuda", *sys.argv[2:]])


def use_cuda():
    device = cuda.Device()
    memory = device.alloc(4096)
    device.set(memory, 5, 4096)
    cuda.say("ready")
    cuda.await_file(sys.argv[3])
    cuda.say("end" if device.read(memory, 4096) == b"\5" * 4096 else "changed")
    return 0


sys.exit(main())
