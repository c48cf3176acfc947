"""stasis-schedd over agents of whole nodes: what it decides is done, and what happens to nodes, agents and itself costs no job."""

import os
import unittest

from agents import AgentNodes
from moving_job import Sample
from schedd import Schedd

DEVICES = ["--gpus", "2", "--memory", "512MiB"]
SLOW = ["--pace-ms", "100"]


class Job:
    """A sample that lasts until it is hurried."""

    def __init__(self, nodes, sample, name):
        self.nodes, self.sample, self.name = nodes, sample, name
        self.hurry_file = os.path.join(os.path.dirname(nodes.root), f"hurry-{name}")

    def env(self):
        return {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": self.nodes["a"].socket, "SOFTGPU_AUTOSTART": "0",
                "PACE_UNTIL": self.hurry_file}

    def hurry(self):
        with open(self.hurry_file, "w", encoding="utf-8"):
            pass


VECTOR = Sample("vector", "--rounds", "600", "--elements", str(1 << 16), *SLOW)


class WithTwoNodes(unittest.TestCase):
    LEASE = "2s"

    def setUp(self):
        nodes = AgentNodes(s=["--gpus", "1"], a=DEVICES, b=DEVICES)
        self.nodes = self.enterContext(nodes) if hasattr(self, "enterContext") else self.enter(nodes)
        for name in ("a", "b"):
            self.nodes[name].start_agent()
        self.schedd = self.enter(Schedd(self.nodes, "s", "--lease", self.LEASE, "--node-timeout", "3s", "--checkpoint-interval", "1s"))
        self.schedd.tenant("a")
        self.schedd.tenant("b")

    def enter(self, context):
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def submit(self, name, sample=VECTOR, **fields):
        job = Job(self.nodes, sample, name)
        self.schedd.submit(name, sample.command(), job.env(), **fields)
        return job

    def output(self, name):
        job = self.schedd.job(name)
        return self.nodes[job.node].output(name)

    def check(self, job):
        """It has ended well, and has printed what it prints undisturbed."""
        self.schedd.wait_for_state(job.name, "DONE", "FAILED", "CANCELLED")
        self.assertEqual(self.schedd.state_of(job.name), "DONE", self.schedd.story())
        self.assertEqual(job.sample.lines(self.output(job.name)), job.sample.expected())

    def test_a_job_runs_to_its_end(self):
        self.schedd.join("a")
        job = self.submit("one")
        self.schedd.wait_for_state("one", "RUNNING")
        job.hurry()
        self.check(job)


if __name__ == "__main__":
    unittest.main()
