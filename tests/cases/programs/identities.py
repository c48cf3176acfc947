"""Says who its devices are, before and after GO exists, and what its memory on each of them holds.

usage: identities GO [CHILD]    CHILD: a child has this as CUDA_VISIBLE_DEVICES, and says its part, too
"""

import ctypes
import os
import sys

import cuda


def device(ordinal):
    found = ctypes.c_int()
    cuda.call("cuDeviceGet", ctypes.byref(found), ordinal)
    return found


def identity(ordinal):
    uuid, bus, name = (ctypes.create_string_buffer(size) for size in (16, 32, 100))
    cuda.call("cuDeviceGetUuid_v2", uuid, device(ordinal))
    cuda.call("cuDeviceGetPCIBusId", bus, 32, device(ordinal))
    cuda.call("cuDeviceGetName", name, 100, device(ordinal))
    by_bus = ctypes.c_int()
    cuda.call("cuDeviceGetByPCIBusId", ctypes.byref(by_bus), bus)
    numbers = []
    for attribute in (33, 34, 50):  # PCI bus, device and domain
        value = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device(ordinal))
        numbers.append(value.value)
    return f"{ordinal} {uuid.raw.hex()} {bus.value.decode()} {name.value.decode()} {by_bus.value} {numbers}"


def main():
    go = sys.argv[1]
    who, child = "parent", 0
    ready, begun = os.pipe()
    if len(sys.argv) > 2:
        child = os.fork()
        if child == 0:
            who = "child"
            os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2]
        else:
            os.close(begun)
            os.read(ready, 1)  # it speaks first
    cuda.call("cuInit", 0)
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    devices = [cuda.Device(ordinal) for ordinal in range(count.value)]
    pieces = []
    for one in devices:
        one.enter()
        pieces.append(one.alloc(1 << 20))
        one.set(pieces[-1], 40 + len(pieces), 1 << 20)
        one.synchronize()
    for ordinal in range(count.value):
        cuda.say(f"{who} {identity(ordinal)}")
    if who == "child":
        os.write(begun, b"x")
    else:
        cuda.say("ready")
    cuda.await_file(go)
    if child:
        os.waitpid(child, 0)
    for ordinal, (one, piece) in enumerate(zip(devices, pieces)):
        one.enter()
        kept = one.read(piece, 1 << 20) == bytes([41 + ordinal]) * (1 << 20)
        cuda.say(f"{who} {identity(ordinal)} {kept}")


main()
