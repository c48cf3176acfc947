"""Memory that the program makes and maps itself, some of it twice, and one piece that is mapped nowhere. usage: ranges GO"""

import ctypes
import hashlib
import sys

import cuda

PIECE = 2 << 20


class Place(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("place", Place), ("meta", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("place", Place), ("flags", ctypes.c_int)]


def make():
    handle = ctypes.c_uint64()
    properties = Properties(kind=1, handles=0, place=Place(1, 0))
    cuda.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(PIECE), ctypes.byref(properties), ctypes.c_uint64(0))
    return handle


def show(handle, address):
    cuda.call("cuMemMap", ctypes.c_uint64(address), ctypes.c_size_t(PIECE), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    cuda.call("cuMemSetAccess", ctypes.c_uint64(address), ctypes.c_size_t(PIECE), ctypes.byref(Access(Place(1, 0), 3)),
              ctypes.c_size_t(1))


def main():
    device = cuda.Device()
    base = ctypes.c_uint64()
    cuda.call("cuMemAddressReserve", ctypes.byref(base), ctypes.c_size_t(8 * PIECE), ctypes.c_size_t(0), ctypes.c_uint64(0),
              ctypes.c_uint64(0))
    handles = [make() for _ in range(4)]
    for number, handle in enumerate(handles[:3]):
        show(handle, base.value + 2 * number * PIECE)
        device.set(base.value + 2 * number * PIECE, number + 1, PIECE)
    show(handles[1], base.value + 5 * PIECE)  # at a second address
    device.synchronize()
    cuda.say("ready")
    cuda.await_file(sys.argv[1])
    show(handles[3], base.value + 7 * PIECE)  # nobody has seen it yet
    device.set(base.value + 7 * PIECE, 9, PIECE)
    device.mix(base.value + 5 * PIECE, 1000, 3)
    digest = hashlib.sha256()
    for slot in (0, 2, 4, 5, 7):
        digest.update(device.read(base.value + slot * PIECE, PIECE))
    cuda.say(digest.hexdigest())


main()
