#!/usr/bin/env python3
"""rank_launcher.py RANKS COMMAND...: starts the ranks of a job in processes of their own, with the environment that torchrun
would give them, and waits for all of them. Ends with the first status that is not 0, having ended the others."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys

from softgpu import die_with_parent


def free_port():
    """A port of 127.0.0.1 that nobody had a moment ago; below those that connections are given."""
    for port in random.sample(range(20000, 32000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


def rank_environment(rank, ranks, port):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def start_ranks(ranks, command, env=None, port=None, **options):
    """The processes, by rank; `options` go to Popen."""
    port = port or free_port()
    return [subprocess.Popen(command, env={**(env or os.environ), **rank_environment(rank, ranks, port)},
                             stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **options)
            for rank in range(ranks)]


def wait_for_ranks(processes):
    """The first status that is not 0; then the others are ended."""
    left = {process.pid: process for process in processes}
    result = 0
    while left:
        pid, status = os.wait()
        process = left.pop(pid, None)
        if process is None:
            continue
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 and result == 0:
            result = process.returncode
            for other in left.values():
                os.kill(other.pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
    return result


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    status = wait_for_ranks(start_ranks(int(sys.argv[1]), sys.argv[2:]))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
