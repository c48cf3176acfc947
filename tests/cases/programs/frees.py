"""Frees half of its pieces, whatever else happens meanwhile, once FREE exists; ends once END exists.

usage: frees FREE END    a thread of its own frees
"""

import os
import sys
import threading

import cuda

SIZE = 4 << 20
device = cuda.Device()
pieces = [device.alloc(SIZE) for _ in range(12)]
for number, piece in enumerate(pieces):
    device.set(piece, number + 1, SIZE)
device.synchronize()


def free():
    device.enter()
    cuda.await_file(sys.argv[1])
    open(sys.argv[1] + ".begun", "x", encoding="ascii").close()
    for piece in pieces[::2]:
        device.free(piece)
    cuda.say("freed")


freeing = threading.Thread(target=free)
freeing.start()
cuda.say("ready")
cuda.await_file(sys.argv[2])
freeing.join()
left = [device.read(piece, SIZE) == bytes([number + 1]) * SIZE for number, piece in enumerate(pieces) if number % 2]
twice = [cuda.DRIVER.cuMemFree_v2(cuda.pointer(piece)) for piece in pieces[:1]]
for piece in pieces[1::2]:
    device.free(piece)
cuda.say(f"left {left} twice {twice}")
