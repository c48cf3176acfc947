"""One process that uses CUDA and three that do not, another that has ended and is not waited for, and semaphores and files of
/dev/shm that have no name any more.

usage: family GO    prints the same whatever happens to it before GO exists
"""

import ctypes
import mmap
import os
import sys
import tempfile

import cuda

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sem_open.restype = ctypes.c_void_p
LIBC.sem_post.argtypes = LIBC.sem_wait.argtypes = (ctypes.c_void_p,)


def nameless_semaphore():
    """Shared with children; only its mapping is left of it."""
    name = f"/stasis-test-{os.getpid()}-{os.urandom(4).hex()}".encode()
    semaphore = LIBC.sem_open(name, os.O_CREAT | os.O_EXCL, 0o600, 0)
    if not semaphore:
        raise OSError(ctypes.get_errno(), "sem_open")
    LIBC.sem_unlink(name)
    return semaphore


def nameless_file():
    file = tempfile.TemporaryFile(dir="/dev/shm")
    file.truncate(8192)
    return file, mmap.mmap(file.fileno(), 8192)


def child(number, semaphore, done, shared):
    LIBC.sem_wait(semaphore)
    shared[number] = shared[7] * (number + 2) % 251
    LIBC.sem_post(done)
    os._exit(number)


def main():
    begin, done = nameless_semaphore(), nameless_semaphore()
    file, shared = nameless_file()
    ended = os.fork()
    if ended == 0:
        os._exit(9)
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            child(number, begin, done, shared)
        children.append(pid)
    device = cuda.Device()
    memory = device.alloc(1 << 20)
    device.set(memory, 9, 1 << 20)
    cuda.say("ready")
    cuda.await_file(sys.argv[1])
    device.mix(memory, 1 << 18, 3)
    shared[7] = device.read(memory, 1)[0]
    for _ in children:
        LIBC.sem_post(begin)
    for _ in children:
        LIBC.sem_wait(done)
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [ended, *children]]
    cuda.say(f"{ends} {list(shared[:3])} {os.fstat(file.fileno()).st_size}")


main()
