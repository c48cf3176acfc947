"""Handles of CUDA's libraries through every verb, on the same and on other devices."""

import os
import unittest

from stasis_job import Site, built


class Libraries(unittest.TestCase):
    strategy = "reconstruct"

    def start(self, mode, memory="1GiB"):
        self.site = Site("--gpus", "2", "--memory", memory)
        self.enterContext(self.site)
        self.end = os.path.join(self.site.folder.name, "end")
        job = self.site.start("job", built("tests/programs/libraries"), mode, self.end, options=["--strategy", self.strategy])
        job.wait_for_output("ready")
        return job

    def finish(self, job):
        with open(self.end, "x", encoding="utf-8"):
            pass
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), "ready\ndone\n")

    def test_every_verb(self):
        job = self.start("state")
        before = self.site.node.devices()[0]["memory_used"]
        job.verb("pause", "--residency", "device")
        self.assertLess(self.site.node.devices()[0]["memory_used"], before)
        job.verb("resume")
        job.verb("migrate", "--gpus", "1,0")
        for snapshot in ("device", "host", "off"):
            job.verb("checkpoint", "--snapshot", snapshot)
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach", "--gpus", "0,1")
        self.finish(job)

    def test_threads_through_a_checkpoint(self):
        job = self.start("threads")
        for _ in range(3):
            job.verb("checkpoint")
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach", "--gpus", "1,0")
        self.finish(job)

    def test_a_snapshot_yields_to_what_is_made_again(self):
        # The handles hide 328 MiB and leave 28 free. The snapshot fits there, and they do not fit beside it.
        job = self.start("full:250", memory="608MiB")
        answer = job.verb("checkpoint", "--snapshot", "device")
        self.assertEqual(answer["snapshot"], "device, then host", answer)
        self.finish(job)


class LibrariesByDriverCheckpoint(Libraries):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
