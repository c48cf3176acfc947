"""Opens what CRIU does not carry, itself or in a child that uses no CUDA.

usage: uncarried io_uring|userfaultfd|mptcp|/dev/DEVICE here|child GO
"""

import ctypes
import os
import socket
import sys

import cuda

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_IO_URING_SETUP, SYS_USERFAULTFD, IPPROTO_MPTCP = 425, 323, 262


def open_it(what):
    if what == "mptcp":
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).detach()
    if what.startswith("/dev/"):
        return os.open(what, os.O_RDWR | os.O_CLOEXEC)
    if what == "io_uring":
        fd = LIBC.syscall(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    else:
        fd = LIBC.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), what)
    return fd


def main():
    what, where, go = sys.argv[1:]
    ready, begun = os.pipe()
    if where == "child" and os.fork() == 0:
        os.set_inheritable(open_it(what), True)
        os.write(begun, b"x")
        os.execv("/bin/sh", ["sh", "-c", f"while ! [ -e {go} ]; do sleep 0.02; done"])
    device = cuda.Device()
    if where == "child":
        os.read(ready, 1)
    else:
        fd = open_it(what)
    memory = device.alloc(4096)
    device.set(memory, 5, 4096)
    cuda.say("ready")
    cuda.await_file(go)
    if where == "here":
        os.close(fd)
    cuda.say("end" if device.read(memory, 4096) == b"\5" * 4096 else "changed")


main()
