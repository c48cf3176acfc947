#!/usr/bin/env python3
"""A program that watches its devices by NVML is checkpointed although that holds the driver's files open."""

import os
import tempfile
import unittest

from stasis_job import Site, built
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, STRATEGIES

STEPS = 3
EXPECTED = ["ready:", *[f"step {n}: memory 0 nvml 0 same 1" for n in range(1, STEPS + 1)], "shutdown 0 0 1"]


class NvmlTest(unittest.TestCase):

    def setUp(self):
        self.site = self.enterContext(Site("--gpus", "1", "--memory", "64MiB"))
        # Where the driver's device files are, and under a name as theirs.
        device, self.device = tempfile.mkstemp(prefix="nvidia-stasis-test-", dir="/dev")
        os.close(device)
        self.addCleanup(os.unlink, self.device)

    def start(self, how, strategy, device=None):
        folder = tempfile.mkdtemp(dir=self.site.folder.name)
        job = self.site.start(f"{how}-{strategy}", built("bin/watcher"), how, folder, STEPS,
                              built("tests/nvml/libnvidia-ml.so.1"), options=["--strategy", STRATEGIES[strategy]],
                              STASIS_FAKE_DEVICE=device or self.device)
        job.wait_for_output("ready:")
        return job, folder

    def allow(self, folder, step):
        with open(os.path.join(folder, str(step)), "x", encoding="ascii"):
            pass

    def devices_open(self, job):
        folder = f"/proc/{job.process()['pid']}/fd"
        return sum(os.readlink(os.path.join(folder, fd)) == self.device for fd in os.listdir(folder))

    def test_checkpoint_and_restore(self):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(STRATEGIES[strategy]):
                job, folder = self.start("alone", strategy)
                self.assertEqual(self.devices_open(job), 1)
                job.verb("pause")
                self.assertEqual(self.devices_open(job), 1, "a pause is none of its business")
                job.verb("resume")
                self.allow(folder, 1)
                job.verb("checkpoint")
                self.assertEqual(self.devices_open(job), 1)
                self.allow(folder, 2)
                job.wait_for_output("step 2:")
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach")
                self.assertEqual(self.devices_open(job), 1)
                self.allow(folder, 3)
                self.assertEqual(job.wait(), 0, job.output())
                self.assertEqual(job.output().splitlines(), EXPECTED)

    def test_what_the_driver_carries_is_left_to_it(self):
        job, folder = self.start("alone", DRIVER_CHECKPOINT, "carried")
        job.verb("checkpoint")
        self.allow(folder, 1)
        job.wait_for_output("step 1:")
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach")
        for step in range(2, STEPS + 1):
            self.allow(folder, step)
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output().splitlines(), EXPECTED)

    def test_a_process_that_only_watches_is_named(self):
        job, folder = self.start("beside", RECONSTRUCT)
        _, answer = job.refused("checkpoint")
        self.assertEqual(answer["code"], "UNSUPPORTED", answer)
        self.assertIn(f"NVML holds {self.device} open", answer["message"])
        self.assertIn("nvmlShutdown", answer["remedy"])
        for step in range(1, STEPS + 1):
            self.allow(folder, step)
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output().splitlines(), EXPECTED[:-1])


if __name__ == "__main__":
    unittest.main()
