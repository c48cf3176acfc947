"""Threads that allocate, free and launch, others that come and go, and one that loads, uses and unloads NVML.

usage: churn THREADS NVML GO    until GO exists
"""

import ctypes
import sys
import threading

import cuda

CELLS = 512


def work(device, number, ended, results):
    device.enter()
    rounds = 0
    while not ended.is_set():
        memory = device.alloc(CELLS * 4)
        device.set(memory, number + 1, CELLS * 4)
        device.mix(memory, CELLS, number)
        expected = (int.from_bytes(bytes([number + 1]) * 4, "little") * 1664525 + number) % 2**32
        if int.from_bytes(device.read(memory, 4), "little") != expected:
            results.append(f"thread {number}: wrong in round {rounds}")
        device.free(memory)
        rounds += 1


def come_and_go(device, ended):
    def visit():
        device.enter()
        device.synchronize()

    while not ended.is_set():
        visitor = threading.Thread(target=visit)
        visitor.start()
        visitor.join()


def load_and_unload(path, ended):
    """What Python's ctypes does not do by itself: the library is closed, and its code is gone."""
    libc = ctypes.CDLL(None)
    libc.dlopen.restype = libc.dlsym.restype = ctypes.c_void_p
    libc.dlopen.argtypes, libc.dlsym.argtypes = (ctypes.c_char_p, ctypes.c_int), (ctypes.c_void_p, ctypes.c_char_p)
    libc.dlclose.argtypes = (ctypes.c_void_p,)
    while not ended.is_set():
        library = libc.dlopen(path.encode(), 2)
        for name in (b"nvmlInit_v2", b"nvmlShutdown"):
            ctypes.CFUNCTYPE(ctypes.c_int)(libc.dlsym(library, name))()
        libc.dlclose(library)


def main():
    device = cuda.Device()
    ended = threading.Event()
    results = []
    threads = [threading.Thread(target=work, args=(device, number, ended, results)) for number in range(int(sys.argv[1]))]
    threads += [threading.Thread(target=come_and_go, args=(device, ended)),
                threading.Thread(target=load_and_unload, args=(sys.argv[2], ended))]
    for thread in threads:
        thread.start()
    cuda.say("ready")
    cuda.await_file(sys.argv[3])
    ended.set()
    for thread in threads:
        thread.join()
    cuda.say("\n".join(results) or "all right")


main()
