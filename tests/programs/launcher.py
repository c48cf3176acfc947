#!/usr/bin/env python3
"""launcher.py RANKS COMMAND...: what torchrun does for the ranks of one node, without torch. An agent serves a store on
MASTER_PORT, starts a worker for each rank, and watches them; each worker keeps a connection to the store all the time and says
every now and then that it lives. All of it is one tree of processes that talk over TCP.

Ends with the first status that is not 0, having ended the others."""

import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading

HEARTBEAT_S = 0.05
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
COUNT = struct.Struct("=iq")  # rank, how often it has been heard


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end of the store's connection is closed")
        data += part
    return data


def listen():
    """Where the next port is free, too, which the workers listen on; below those that connections are given."""
    for port in random.sample(range(20000, 32000, 2), 100):
        try:
            server = socket.create_server(("127.0.0.1", port), backlog=64)
        except OSError:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return server
        server.close()
    raise OSError("no two ports are free")


class Store:
    """Counts what each worker says, and answers with the count."""

    def __init__(self):
        self.server = listen()
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        heard = 0
        with connection:
            while True:
                try:
                    rank, count = COUNT.unpack(receive(connection, COUNT.size))
                except ConnectionError:
                    return
                heard += 1
                # Something was said twice, or was lost.
                if count != heard:
                    print(f"store: rank {rank} says {count}, {heard} have been heard", flush=True)
                    os._exit(5)
                connection.sendall(COUNT.pack(rank, heard))


def work(command):
    """One worker: the program, and beside it the conversation with the store."""
    rank = int(os.environ["RANK"])
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    ended = threading.Event()
    threading.Thread(target=lambda: (program.wait(), ended.set()), daemon=True).start()
    with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
        count = 0
        while not ended.wait(HEARTBEAT_S):
            count += 1
            store.sendall(COUNT.pack(rank, count))
            if COUNT.unpack(receive(store, COUNT.size)) != (rank, count):
                print(f"rank {rank}: the store has miscounted", flush=True)
                return 5
    return program.returncode


def environment(rank, ranks, port):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}


def launch(ranks, command):
    store = Store()
    workers = [subprocess.Popen([sys.executable, __file__, "--worker", *command],
                                env={**os.environ, **environment(rank, ranks, store.port)}, preexec_fn=die_with_parent)
               for rank in range(ranks)]
    left = {worker.pid: worker for worker in workers}
    result = 0
    while left:
        pid, status = os.wait()
        worker = left.pop(pid, None)
        if worker is None:
            continue
        worker.returncode = os.waitstatus_to_exitcode(status)
        if worker.returncode != 0 and result == 0:
            result = worker.returncode
            for other in left.values():
                os.kill(other.pid, signal.SIGKILL)
    return result


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--worker":
        status = work(sys.argv[2:])
    else:
        status = launch(int(sys.argv[1]), sys.argv[2:])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
