"""Every verb on a job of ranks in the middle of its work, for all kinds of communication: the results are those of an undisturbed
run."""

import os
import unittest

from stasis_ranks import RankSite, built

RANKS = 4
STEPS = {"ddp_train": "400", "pipeline_train": "200", "tp_train": "400"}


class Jobs(unittest.TestCase):
    """Each rank is a task."""

    def setUp(self):
        self.site = self.enterContext(RankSite("--gpus", str(RANKS), "--memory", "256MiB"))

    def start(self, command, strategy):
        return self.site.start_ranks("job", RANKS, *command, options=["--strategy", strategy], **self.site.rest())

    def check(self, sample, strategy):
        command = [built(os.path.join("samples", sample)), "--steps", STEPS[sample], "--pace-ms", "200"]
        expected = self.site.node.run(*command, "--reference", "--ranks", str(RANKS))
        self.assertEqual(expected.returncode, 0, expected.stderr)
        job = self.start(command, strategy)
        job.wait_for_output("step 2 ")
        job.verb("pause", "--residency", "host")
        job.verb("resume")
        job.verb("checkpoint")
        job.verb("migrate", "--gpus", ",".join(map(str, reversed(range(RANKS)))))
        self.assertTrue(job.alive(), "the program was too quick")
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach")
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.lines())
        self.assertEqual(job.lines(), sorted(expected.stdout.splitlines()))
        self.assertEqual(self.site.memory_in_the_end(), [0] * RANKS)

    def test_ddp_train(self):
        self.check("ddp_train", "reconstruct")

    def test_pipeline_train(self):
        self.check("pipeline_train", "reconstruct")

    def test_tp_train(self):
        self.check("tp_train", "reconstruct")

    def test_tp_train_by_driver_checkpoint(self):
        self.check("tp_train", "driver-checkpoint")


class Trees(Jobs):
    """All ranks are in one task."""

    def start(self, command, strategy):
        return self.site.start_tree("job", RANKS, *command, options=["--strategy", strategy], **self.site.rest())


if __name__ == "__main__":
    unittest.main()
