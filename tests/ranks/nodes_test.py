"""Jobs whose ranks are restored elsewhere: on another number of nodes, on other devices, at other addresses; they end as if nothing
had been."""

import os
import unittest

from nodes import Nodes, NodesSite
from softgpu import Node, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
RANKS = 8 if FULL else 4
HALF = RANKS // 2
STEPS = {"ddp_train": 1000 if FULL else 300, "tp_train": 500 if FULL else 150}


def small(devices):
    return ["--gpus", str(devices), "--memory", "256MiB"]


class Elsewhere(unittest.TestCase):
    def setUp(self):
        self.nodes = self.enterContext(Nodes(one=small(RANKS), left=small(HALF), right=small(HALF), other=small(RANKS)))
        self.site = self.enterContext(NodesSite(self.nodes))

    def reference(self, command):
        with Node(*small(1)) as node:
            result = node.run(*command, "--reference", "--ranks", str(RANKS), timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sorted(result.stdout.splitlines())

    def restore(self, job, **ranks):
        job.verb("restore", "--detach", "--nodes", self.site.write_nodes(**ranks))
        self.assertTrue(job.alive(), "the program was too quick")

    def check(self, program):
        command = [built(f"samples/{program}"), "--steps", str(STEPS[program]), "--log-every", str(STEPS[program] // 10), "--pace-ms", "200"]
        expected = self.reference(command)
        job = self.site.start_ranks("job", RANKS, *command, options=["--nodes", self.site.write_nodes(one=RANKS)], **self.site.rest())
        job.ranks[0].wait_for_output("step")
        job.verb("checkpoint")
        job.verb("checkpoint", "--stop")
        backwards = list(reversed(range(HALF)))
        self.restore(job, left=(HALF, backwards), right=(HALF, []))
        for name in ("left", "right"):
            for device in self.nodes[name].devices():
                self.assertEqual(len(device["pids"]), 1, (name, device))
        # Running on two nodes, and from there to one, where the devices have other numbers.
        job.verb("pause")
        job.verb("resume")
        job.verb("checkpoint", "--stop")
        self.restore(job, other=(RANKS, list(reversed(range(RANKS)))))
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.lines())
        self.assertEqual(job.lines(), expected)

    def test_data_parallel(self):
        self.check("ddp_train")

    def test_tensor_parallel(self):
        self.check("tp_train")


if __name__ == "__main__":
    unittest.main()
