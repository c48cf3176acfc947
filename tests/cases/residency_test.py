#!/usr/bin/env python3
"""Device memory that goes away and comes back: what it holds, who frees it meanwhile, how programs end."""

import os
import signal
import time
import unittest

from cases import FULL, STRATEGIES, SiteCase

PAUSES = ("device", "host", "disk")


class Contents(SiteCase):

    def everywhere(self, job):
        """Through all places that memory can be in, and through an image."""
        for residency in PAUSES:
            job.verb("pause", "--residency", residency)
            job.verb("resume")
        job.verb("migrate", "--gpus", "1,0")
        job.verb("checkpoint")
        job.kill()
        job.verb("restore", "--detach", "--gpus", "0,1")

    def test_every_size_with_holes_between(self):
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("pieces", 100, go)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("pieces", 100, go, strategy=strategy)
                self.everywhere(job)
                self.touch(go)
                self.finish(job, expected)

    def test_work_that_was_asked_for_and_is_not_done(self):
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("queued", go)
        for strategy in STRATEGIES:
            for first in ("pause", "checkpoint"):
                with self.subTest(strategy, first=first):
                    go = self.new_file()
                    job = self.start("queued", go, strategy=strategy)
                    job.verb(first)
                    if first == "pause":
                        job.verb("resume")
                    else:
                        job.kill()
                        job.verb("restore", "--detach")
                    self.touch(go)
                    self.finish(job, expected)


class FreedWhilePaused(SiteCase):

    def test_each_piece_goes_once_and_does_not_come_back(self):
        go, end = self.new_file(), self.new_file()
        for path in (go, end):
            self.touch(path)
        expected = self.undisturbed("frees", go, end)
        for strategy in STRATEGIES:
            for residency in PAUSES if FULL else ("device", "host"):
                with self.subTest(strategy, residency=residency):
                    go, end = self.new_file(), self.new_file()
                    job = self.start("frees", go, end, strategy=strategy)
                    before = self.used()[0]
                    job.verb("pause", "--residency", residency, "--no-freeze")
                    self.touch(go)
                    while not os.path.exists(go + ".begun"):
                        self.assertTrue(job.alive())
                        time.sleep(0.01)
                    for _ in range(2):
                        _, answer = job.refused("pause")
                        self.assertEqual(answer["code"], "FAILED_PRECONDITION", answer)
                    self.assertNotIn("freed", job.output())
                    job.verb("resume")
                    for _ in range(2):
                        _, answer = job.refused("resume")
                        self.assertEqual(answer["code"], "FAILED_PRECONDITION", answer)
                    job.wait_for_output("freed")
                    self.assertEqual(self.used()[0], before - 6 * (4 << 20))
                    job.verb("pause", "--residency", residency)
                    job.verb("resume")
                    self.assertEqual(self.used()[0], before - 6 * (4 << 20))
                    self.touch(end)
                    self.finish(job, expected)
                    self.assertEqual(self.site.memory_in_the_end(), [0, 0])


class Ends(SiteCase):
    """However a program ends, it ends as it would have, and leaves nothing on a device."""

    ways = {"return": 0, "destroy": 0, "exit": 5, "_exit": 6, "exception": 1, "exec": 8, "abort": -signal.SIGABRT,
            "signal": -signal.SIGUSR1}

    def test_after_it_was_brought_back(self):
        for turn, (way, status) in enumerate(self.ways.items()):
            for strategy in STRATEGIES if FULL else (STRATEGIES[turn % 2],):
                with self.subTest(strategy, way=way):
                    go = self.new_file()
                    job = self.start("ends", way, go, strategy=strategy)
                    job.verb("pause", "--residency", "host")
                    job.verb("resume")
                    job.verb("checkpoint", "--stop")
                    job.wait()
                    job.verb("restore", "--detach")
                    self.touch(go)
                    self.assertEqual(job.wait(), status, job.output())
                    self.assertEqual(self.site.memory_in_the_end(), [0, 0])

    def test_while_it_is_paused(self):
        for strategy in STRATEGIES:
            for ending in (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP):
                with self.subTest(strategy, signal=ending):
                    job = self.start("ends", "wait", self.new_file(), strategy=strategy)
                    job.verb("pause", "--residency", "host" if ending == signal.SIGTERM else "device")
                    os.kill(job.process()["pid"], ending)
                    self.assertEqual(job.wait(), -ending, job.output())
                    job.wait_for_ghost_to_leave()
                    self.assertEqual(self.site.memory_in_the_end(), [0, 0])


class SharedAgain(SiteCase):

    def test_what_was_shared_can_be_shared_again(self):
        for strategy in STRATEGIES:
            for size in (2 << 20, (600 if FULL else 20) << 20):
                with self.subTest(strategy, size=size):
                    go = self.new_file()
                    job = self.start("reexport", size, go, strategy=strategy, ready="ready True\n")
                    job.verb("pause", "--residency", "host")
                    self.assertEqual(self.used(), [0, 0])
                    job.verb("resume")
                    job.verb("checkpoint", "--stop")
                    job.wait()
                    job.verb("restore", "--detach")
                    self.touch(go)
                    self.finish(job, "ready True\nagain True True\nended 0\nended 0\n")


if __name__ == "__main__":
    unittest.main()
