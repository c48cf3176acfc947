"""Maps and unmaps memory of its own all the time, everywhere it can, beside device memory with many holes.

usage: mappings GO
"""

import ctypes
import random
import sys
import threading

import cuda

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
PRIVATE_ANONYMOUS, READ_WRITE = 0x22, 3


def disturb(wishes, ended):
    """Asks for memory at the addresses of device memory, too; the kernel gives other ones where somebody is there."""
    chosen, held = random.Random(5), []
    while not ended.wait(0.0005):
        size = chosen.choice([4096, 1 << 16, 2 << 20, 64 << 20])
        wish = chosen.choice(wishes) if chosen.random() < 0.5 else None
        held.append((LIBC.mmap(wish, size, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0), size))
        ctypes.memset(held[-1][0], 0xEE, 4096)
        if len(held) > 50:
            address, size = held.pop(chosen.randrange(len(held)))
            LIBC.munmap(address, size)


def main():
    device = cuda.Device()
    sizes = [1 + number * number * 977 for number in range(100)]
    pieces = [(device.alloc(size), size, number) for number, size in enumerate(sizes)]
    for memory, size, number in pieces:
        device.set(memory, number + 1, size)
    for memory, _, number in pieces:
        if number % 3 == 0:
            device.free(memory)
    pieces = [piece for piece in pieces if piece[2] % 3]
    device.synchronize()
    ended = threading.Event()
    thread = threading.Thread(target=disturb, args=([memory for memory, _, _ in pieces], ended))
    thread.start()
    cuda.say("ready")
    cuda.await_file(sys.argv[1])
    ended.set()
    thread.join()
    cuda.say(str(all(device.read(memory, size) == bytes([number + 1]) * size for memory, size, number in pieces)))


main()
