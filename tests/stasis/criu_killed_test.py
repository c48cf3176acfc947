"""CRIU is killed at work, as the out-of-memory killer might: whatever it has made of the processes of a restore by then is ended
with it, as are its own. A program that ran on, and that nobody knew of, would be there twice after the next restore."""

import contextlib
import os
import random
import re
import select
import signal
import socket
import subprocess
import time
import unittest

import hung
from softgpu import die_with_parent
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
KILLS = 400 if FULL else 15


def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class CriuKilled(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "1", "--memory", "128MiB").__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.chance = random.Random(SEED)
        self.usual = 0.15  # seconds that CRIU takes; as measured last

    def ask(self, line):
        port = re.search(r"127\.0\.0\.1:(\d+)", self.job.output())[1]
        with socket.create_connection(("127.0.0.1", int(port)), 60) as client:
            client.sendall(line.encode() + b"\n")
            return client.makefile().readline().strip()

    def of_the_task(self):
        """Its own processes, which are in a PID namespace of their own, and those of CRIU."""
        own, folder, found = os.readlink("/proc/self/ns/pid"), self.site.folder.name.encode(), []
        for pid in processes():
            with contextlib.suppress(OSError):
                if folder not in read(pid, "environ") + read(pid, "cmdline"):
                    continue
                if os.readlink(f"/proc/{pid}/ns/pid") != own or read(pid, "comm") == b"criu\n":
                    found.append((pid, read(pid, "comm").decode(errors="replace").strip()))
        return found

    def main_criu(self, command):
        """It is soon done, and nothing tells when it begins."""
        mark = self.site.state.encode()
        ghosts = []
        while command.poll() is None:
            for ghost in ghosts:
                for pid in hung.descendants(ghost):
                    if read(pid, "comm") == b"criu\n" and read(pid, "cmdline").split(b"\0")[1:2] in ([b"restore"], [b"dump"]):
                        return pid
            ghosts = ghosts or [pid for pid in processes() if read(pid, "comm") == b"stasis-ghost\n" and mark in read(pid, "cmdline")]
        return 0

    def kill_in(self, *verb):
        """Whether it has come to its end all the same."""
        with subprocess.Popen([built("bin/stasis"), *verb, self.job.name], env=self.site.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as command:
            criu = self.main_criu(command)
            if criu == 0:
                self.assertEqual(command.returncode, 0, command.stderr.read())
                return True
            begin, delay = time.monotonic(), self.chance.random() * self.usual
            with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(criu), "rb") as handle:
                if select.select([handle], [], [], delay)[0]:
                    self.usual = time.monotonic() - begin
                else:
                    signal.pidfd_send_signal(handle.fileno(), signal.SIGKILL)
            command.communicate()
        return command.returncode == 0

    def test_nothing_of_a_restore_is_left(self):
        self.job = self.site.start("counter", built("samples/counter"))
        self.job.wait_for_output("listening")
        self.assertEqual(self.ask("inc"), "1")
        self.job.verb("checkpoint", "--stop")
        killed = 0
        while killed < KILLS:
            if self.kill_in("restore", "--detach"):
                self.assertEqual(self.ask("get"), "1")
                self.job.verb("checkpoint", "--stop")
                continue
            killed += 1
            self.job.wait_for_ghost_to_leave()
            self.assertEqual(self.of_the_task(), [], f"kill {killed} of seed {SEED}")
        self.job.verb("restore", "--detach")
        self.assertEqual(self.ask("inc"), "2")
        self.assertEqual(self.ask("quit"), "bye")
        self.assertEqual(self.job.wait(), 0)
        self.assertEqual(self.site.memory_in_the_end(), [0])

    def test_nothing_of_a_dump_is_left(self):
        self.job = self.site.start("counter", built("samples/counter"))
        self.job.wait_for_output("listening")
        self.job.verb("checkpoint")
        for number in range(KILLS):
            if self.kill_in("checkpoint"):
                continue
            self.job.wait_for_ghost_to_leave()
            left = [process for process in self.of_the_task() if process[1] == "criu"]
            self.assertEqual(left, [], f"kill {number} of seed {SEED}")
            if not self.job.alive():
                self.job.verb("restore", "--detach")  # CRIU was at work in it
            self.assertEqual(self.ask("get"), "0")
        self.assertEqual(self.ask("quit"), "bye")
        self.assertEqual(self.job.wait(), 0)
        self.assertEqual(self.site.memory_in_the_end(), [0])


class FirstProcessKilled(unittest.TestCase):
    """CRIU holds a task whose first process is killed: that one ends after the others, which are CRIU's to wait for, and CRIU waits
    for it. Whoever waited for CRIU would never hear of its end."""

    def setUp(self):
        self.site = Site("--gpus", "1", "--memory", "128MiB").__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.criu = os.path.join(self.site.folder.name, "criu")
        with open(self.criu, "w", encoding="utf-8") as script:
            script.write(f"#!/bin/sh\nLD_PRELOAD={built('lib/libkill_awaited.so')} exec {os.environ['STASIS_CRIU']} \"$@\"\n")
        os.chmod(self.criu, 0o700)

    def test_the_dump_comes_to_its_end(self):
        for strategy in ("reconstruct", "driver-checkpoint"):
            job = self.site.start(strategy, built("samples/counter"), options=("--strategy", strategy))
            job.wait_for_output("listening")
            job.verb("checkpoint")
            job.wait_for_ghost_to_leave()
            _, answer = job.refused("checkpoint", STASIS_CRIU=self.criu)
            self.assertIn("has ended while its image was made", answer["message"])
            self.assertEqual(answer["left"], "lost")
            with open(job.path("ghost.log"), encoding="utf-8") as log:
                self.assertIn("waits for what is dying", log.read())
            job.wait_for_ghost_to_leave()
            self.assertFalse(job.alive())
            job.verb("restore", "--detach")
            self.assertTrue(job.alive())
            job.verb("cancel")


if __name__ == "__main__":
    unittest.main()
