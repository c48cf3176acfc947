#!/usr/bin/env python3
"""Which devices a program sees, which it is on, and what it is told of them, wherever it goes."""

import unittest

from cases import STRATEGIES, SiteCase

GPUS = 4


class Placement(SiteCase):
    node = ("--gpus", str(GPUS), "--memory", "64MiB")

    def setUp(self):
        super().setUp()
        self.uuids = [device["uuid"] for device in self.site.node.devices()]

    def places(self, job):
        """The devices that hold memory of the task."""
        return [index for index, used in enumerate(self.used()) if used]

    def expected(self, *child, **extra):
        go = self.new_file()
        self.touch(go)
        return self.undisturbed("identities", go, *child, **extra)

    def moves(self, seen):
        """Where as many devices as are seen may be told to go: elsewhere, and in another order."""
        return [[(place + 1) % GPUS for place in seen], list(reversed([(place + 2) % GPUS for place in seen]))]

    def test_visible_devices(self):
        ways = {"1": [1], self.uuids[2]: [2], "3,1": [3, 1], f"{self.uuids[3]},{self.uuids[0]}": [3, 0]}
        for strategy in STRATEGIES:
            for visible, seen in ways.items():
                with self.subTest(strategy, visible=visible):
                    expected = self.expected(CUDA_VISIBLE_DEVICES=visible)
                    go = self.new_file()
                    job = self.start("identities", go, strategy=strategy, CUDA_VISIBLE_DEVICES=visible)
                    self.assertEqual(self.places(job), sorted(seen))
                    image = job.verb("checkpoint", "--stop")["image"]
                    job.wait()
                    told = str(self.site.images("show", f"{job.name}/{image}"))
                    for place in seen:
                        self.assertIn(self.uuids[place].removeprefix("GPU-").replace("-", ""), told.replace("-", ""))
                    job.verb("restore", "--detach")
                    self.assertEqual(self.places(job), sorted(seen), "it is not where it was")
                    for places in self.moves(seen):
                        job.verb("checkpoint", "--stop")
                        job.wait()
                        job.verb("restore", "--detach", "--gpus", ",".join(map(str, places)))
                        self.assertEqual(self.places(job), sorted(places))
                    self.touch(go)
                    self.finish(job, expected)

    def test_a_child_that_sees_others(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                expected = self.expected("2", CUDA_VISIBLE_DEVICES="0")
                go = self.new_file()
                job = self.start("identities", go, "2", strategy=strategy, CUDA_VISIBLE_DEVICES="0")
                self.assertEqual(self.places(job), [0, 2])
                job.verb("pause", "--residency", "host")
                job.verb("resume")
                self.assertEqual(self.places(job), [0, 2])
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach")
                self.assertEqual(self.places(job), [0, 2])
                self.touch(go)
                self.assertEqual(job.wait(), 0, job.output())
                self.assertEqual(sorted(job.output().splitlines()), sorted(expected.splitlines()))


if __name__ == "__main__":
    unittest.main()
