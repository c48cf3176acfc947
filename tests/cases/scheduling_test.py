#!/usr/bin/env python3
"""Two jobs that do not fit on a device together take turns on it."""

import unittest

from cases import FULL, STRATEGIES, SiteCase

MEMORY = 160 << 20
SIZE = MEMORY * 7 // 10
STEPS = 200


class Turns(SiteCase):
    node = ("--gpus", "1", "--memory", f"{MEMORY >> 20}MiB")

    def test_two_jobs_of_most_of_a_device(self):
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("worker", SIZE, STEPS, go)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = [self.new_file(), self.new_file()]
                jobs = [self.start("worker", SIZE, STEPS, go[0], strategy=strategy)]
                alone = self.used()[0]
                jobs[0].verb("pause", "--residency", "host")
                self.assertEqual(self.used(), [0], "a job that is paused keeps nothing on the device")
                jobs.append(self.start("worker", SIZE, STEPS, go[1], strategy=strategy))
                for turn in range(30 if FULL else 4):
                    runs, waits = jobs[(turn + 1) % 2], jobs[turn % 2]
                    _, answer = waits.refused("resume")
                    self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "paused"), answer)
                    runs.verb("pause", "--residency", "host" if turn % 2 else "disk")
                    self.assertEqual(self.used(), [0])
                    waits.verb("resume")
                    self.assertEqual(self.used(), [alone])
                for index in (0, 1) if self.runs(jobs[0]) else (1, 0):
                    if not self.runs(jobs[index]):
                        jobs[index].verb("resume")
                    self.touch(go[index])
                    self.finish(jobs[index], expected)

    @staticmethod
    def runs(job):
        return job.read_json("status.json")["state"] == "running"


if __name__ == "__main__":
    unittest.main()
