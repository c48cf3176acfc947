"""Shares memory of its own with a process, and, once GO exists, with another one that knows nothing of it yet.

usage: reexport BYTES GO
       reexport read BYTES NUMBER    the other side: NUMBER is its descriptor
"""

import ctypes
import hashlib
import os
import subprocess
import sys

import cuda

POSIX_FD = 1


class Place(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("place", Place), ("meta", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("place", Place), ("flags", ctypes.c_int)]


def mapped(handle, size):
    address = ctypes.c_uint64()
    cuda.call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
              ctypes.c_uint64(0))
    cuda.call("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    cuda.call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(Access(Place(1, 0), 3)), ctypes.c_size_t(1))
    return address.value


def digest(device, memory, size):
    return hashlib.sha256(device.read(memory, size)).hexdigest()


def read(size, number):
    device = cuda.Device()
    handle = ctypes.c_uint64()
    cuda.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(number), POSIX_FD)
    print(digest(device, mapped(handle, size), size), flush=True)
    sys.stdin.readline()


def reader(handle, size):
    number = ctypes.c_int()
    cuda.call("cuMemExportToShareableHandle", ctypes.byref(number), handle, POSIX_FD, ctypes.c_uint64(0))
    os.set_inheritable(number.value, True)
    process = subprocess.Popen([sys.executable, "-B", sys.argv[0], "read", str(size), str(number.value)],
                               pass_fds=[number.value], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.close(number.value)
    return process, process.stdout.readline().strip()


def main():
    size, go = int(sys.argv[1]), sys.argv[2]
    device = cuda.Device()
    handle = ctypes.c_uint64()
    properties = Properties(kind=1, handles=POSIX_FD, place=Place(1, 0))
    cuda.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0))
    memory = mapped(handle, size)
    device.set(memory, 3, size)
    device.mix(memory, size // 4, 11)
    device.synchronize()
    first, seen = reader(handle, size)
    own = digest(device, memory, size)
    cuda.say(f"ready {seen == own}")
    cuda.await_file(go)
    second, again = reader(handle, size)
    cuda.say(f"again {again == own} {digest(device, memory, size) == own}")
    for process in (first, second):
        process.communicate("\n")
        cuda.say(f"ended {process.returncode}")


if sys.argv[1] == "read":
    read(int(sys.argv[2]), int(sys.argv[3]))
else:
    main()
