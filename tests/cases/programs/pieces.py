"""Keeps many pieces of device memory, of sizes around every boundary, with holes between them.

usage: pieces COUNT GO    says "ready", waits until GO exists, changes all of them and prints what they hold
"""

import hashlib
import sys

import cuda

SIZES = [1, 3, 255, 256, 257, 511, 512, 513, 4096, 65537, (1 << 20) + 1, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (5 << 20) + 768]


def main():
    device = cuda.Device()
    pieces = []
    for number in range(int(sys.argv[1])):
        size = SIZES[number % len(SIZES)]
        pieces.append((device.alloc(size), size))
        device.set(pieces[-1][0], number % 251, size)
    for hole in pieces[::3]:
        device.free(hole[0])
    pieces = [piece for number, piece in enumerate(pieces) if number % 3]
    cuda.say("ready")
    cuda.await_file(sys.argv[2])
    digest = hashlib.sha256()
    for number, (memory, size) in enumerate(pieces):
        if size >= 4:
            device.mix(memory, size // 4, number)
        digest.update(device.read(memory, size))
    cuda.say("pieces " + digest.hexdigest())
    for memory, _ in pieces:
        device.free(memory)
    cuda.say("end")


main()
