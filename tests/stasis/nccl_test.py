"""Ranks of NCCL in one process through the verbs: paused, moved, dumped, killed and restored in the middle of their work, they
end as if nothing had been."""

import functools
import os
import unittest

from softgpu import Node
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"


@functools.cache
def undisturbed(*command):
    """What it prints, whatever the strategy is by which it would be paused."""
    with Node("--gpus", "3", "--memory", "512MiB") as node:
        result = node.run(*command, timeout=300, PACE_UNTIL="/")
    assert result.returncode == 0, result.stderr
    return result.stdout


class Nccl(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = self.enterContext(Site("--gpus", "3", "--memory", "512MiB"))

    def check(self, *command):
        expected = undisturbed(*command)
        job = self.site.start("ranks", *command, options=["--strategy", self.strategy], **self.site.rest())
        job.wait_for_output("round")
        for _ in range(5 if FULL else 1):
            job.verb("pause", "--residency", "host")
            job.verb("resume")
            self.assertTrue(job.alive(), "the program was too quick")
            job.verb("checkpoint")
            job.kill()
            job.verb("restore", "--detach", "--gpus", "1,2,0")
            job.verb("migrate", "--gpus", "2,0,1")
            job.verb("checkpoint", "--stop")
            job.wait()
            job.verb("restore", "--detach", "--gpus", "0,1,2")
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), expected)
        self.assertEqual(self.site.memory_in_the_end(), [0, 0, 0])

    def test_threads(self):
        self.check(built("tests/programs/nccl_ranks"), "threads", "3", "20000" if FULL else "3000", "7")

    def test_one_thread(self):
        self.check(built("samples/nccl_ring"), "--ranks", "3", "--rounds", "100000" if FULL else "15000", "--elements", "1024",
                   "--pace-ms", "2")

    def test_the_refusal_names_the_call(self):
        job = self.site.start("ranks", built("samples/nccl_ring"), "--ranks", "2", "--rank", "0", "--id-file",
                              os.path.join(self.site.folder.name, "id"), "--rounds", "1000000", "--elements", "16",
                              options=["--strategy", self.strategy])
        other = self.site.start("other", built("samples/nccl_ring"), "--ranks", "2", "--rank", "1", "--id-file",
                                os.path.join(self.site.folder.name, "id"), "--rounds", "1000000", "--elements", "16",
                                options=["--strategy", self.strategy])
        for one in (job, other):
            one.wait_for_output("round 3")
        for rank, one in enumerate((job, other)):
            _, answer = one.refused("pause")
            self.assertEqual(answer["code"], "UNSUPPORTED", answer)
            self.assertIn(f"rank {1 - rank} of 2 is in none of the processes that are paused", answer["message"])
            self.assertIn("ncclCommInit", answer["message"])
            self.assertTrue(one.alive())


class NcclByDriverCheckpoint(Nccl):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
