"""A ghost and its guardian are killed together, and with them what they held of a task. The task cannot go on: every verb says so
and what helps, none makes an image of what is left, and it comes back from the last one."""

import contextlib
import os
import select
import signal
import subprocess
import unittest

from softgpu import die_with_parent
from stasis_job import Site, built
from stasis_ranks import GhostLog


class Stranded(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "1", "--memory", "256MiB").__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.command = [built("samples/vector"), "--rounds", "40", "--elements", "65536"]
        self.expected = self.site.node.run(*self.command).stdout.splitlines()[1:-1]

    def start(self):
        job = self.site.start("vector", *self.command, "--pace-ms", "2000", **self.site.rest())
        job.wait_for_output("round 1 ")
        job.verb("checkpoint")
        job.wait_for_ghost_to_leave()
        return job

    def kill_ghosts(self, job):
        """Returns when they are dead."""
        killed = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    command = file.read().split(b"\0")
                if command[0].endswith(b"stasis-ghost") and job.name.encode() in command and self.site.state.encode() in command:
                    killed.append(os.pidfd_open(int(pid)))
                    self.addCleanup(os.close, killed[-1])
                    signal.pidfd_send_signal(killed[-1], signal.SIGKILL)
        self.assertEqual(len(killed), 2, "a ghost and its guardian")
        for pidfd in killed:
            self.assertTrue(select.select([pidfd], [], [], 60)[0])

    def state(self, job):
        return next(task["state"] for task in self.site.tasks() if task["name"] == job.name)

    def check(self, job):
        images = self.site.image_names(job.name)
        for verb in ("resume", "pause", "checkpoint"):
            status, answer = job.refused(verb)
            self.assertEqual((status, answer["code"], answer["left"]), (4, "FAILED_PRECONDITION", "unchanged"), answer)
            self.assertIn("is held by a ghost that is gone", answer["message"])
            self.assertIn("stasis cancel vector", answer["remedy"])
            self.assertIn(self.state(job), ("paused", "stranded"))
        self.assertEqual(self.site.image_names(job.name), images)
        job.verb("cancel", "--grace", "1ms")
        job.verb("restore", "--detach")
        self.site.hurry()
        self.assertEqual(job.wait(), 0)
        self.assertEqual([line for line in job.output().splitlines() if line.startswith("round ")],
                         [line for line in self.expected if line.startswith("round ")])

    def test_one_that_was_paused(self):
        job = self.start()
        job.verb("pause")
        self.kill_ghosts(job)
        self.assertEqual(self.state(job), "stranded")
        self.check(job)

    def test_one_that_was_paused_and_not_frozen(self):
        job = self.start()
        job.verb("pause", "--no-freeze")
        self.kill_ghosts(job)
        self.check(job)

    def test_one_that_was_being_dumped(self):
        job = self.start()
        log = GhostLog(job)
        self.addCleanup(log.close)
        with subprocess.Popen([built("bin/stasis"), "checkpoint", job.name], env=self.site.env(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent):
            self.assertTrue(log.wait_for("step dump in phase deaf", 60))
            self.kill_ghosts(job)
        self.check(job)


if __name__ == "__main__":
    unittest.main()
