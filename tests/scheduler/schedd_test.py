"""stasis-schedd over agents of whole nodes: what it decides is done, and what happens to nodes, agents and itself costs no job."""

import os
import signal
import unittest

from agents import AgentNodes
from moving_job import Sample
from schedd import Schedd, sched

DEVICES = ["--gpus", "2", "--memory", "512MiB"]
SLOW = ["--pace-ms", "600"]


class Job:
    """A sample that lasts until it is hurried."""

    def __init__(self, nodes, sample, name):
        self.nodes, self.sample, self.name = nodes, sample, name
        self.tasks = [f"{name}.{rank}" for rank in range(sample.ranks)] or [name]
        self.hurry_file = os.path.join(os.path.dirname(nodes.root), f"hurry-{name}")

    def env(self):
        return {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": self.nodes["a"].socket, "SOFTGPU_AUTOSTART": "0",
                "PACE_UNTIL": self.hurry_file}

    def hurry(self):
        with open(self.hurry_file, "w", encoding="utf-8"):
            pass


RANKED = Sample("ddp_train", "--steps", "60", "--pace-ms", "600", ranks=2)
VECTOR = Sample("vector", "--rounds", "100", "--elements", str(1 << 14), *SLOW)


class WithTwoNodes(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(s=["--gpus", "1"], a=DEVICES, b=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)

    def setUp(self):
        for name in ("a", "b"):
            if not self.nodes[name].stasisd:
                self.nodes[name].start_agent()
        self.addCleanup(self.end_jobs)
        self.jobs = []

    def end_jobs(self):
        for job in self.jobs:
            job.hurry()
        for name in ("a", "b"):
            self.nodes[name].end_jobs()

    def start(self, *names, lease="2s"):
        """A scheduler, with nodes that have joined."""
        self.schedd = Schedd(self.nodes, "s", "--lease", lease, "--node-timeout", "3s", "--checkpoint-interval", "1s")
        self.schedd.__enter__()
        self.addCleanup(self.schedd.__exit__, None, None, None)
        self.schedd.tenant("a")
        self.schedd.tenant("b")
        self.schedd.join(*names)

    def submit(self, name, sample=VECTOR, **fields):
        job = Job(self.nodes, sample, name)
        self.jobs.append(job)
        self.schedd.submit(name, sample.command(), job.env(), **fields)
        return job

    def run_job(self, name, **fields):
        job = self.submit(name, **fields)
        self.schedd.wait_for_state(name, "RUNNING")
        node = self.schedd.job(name).node
        self.nodes[node].agent.wait_for_output(name, job.sample.first_words)
        return job

    def output(self, job):
        node = self.nodes[self.schedd.job(job.name).node]
        return "".join(node.output(task) for task in job.tasks)

    def check(self, *jobs):
        """They end well, and have printed what they print undisturbed."""
        for job in jobs:
            job.hurry()
        for job in jobs:
            self.schedd.wait_for_state(job.name, "DONE", "FAILED", "CANCELLED")
            self.assertEqual(self.schedd.state_of(job.name), "DONE", self.schedd.story())
            self.assertEqual(job.sample.lines(self.output(job)), job.sample.expected())

    def kinds(self, name):
        return [event.kind for event in self.schedd.events(name)]


class Decisions(WithTwoNodes):
    """What is decided is done."""

    def test_a_job_runs_to_its_end(self):
        self.start("a")
        job = self.run_job("one")
        self.check(job)
        self.assertEqual(self.kinds("one"), ["submitted", "started", "done"])

    def test_leases_take_turns(self):
        self.start("a")
        first, second = self.run_job("turn-1", gpus=2), self.submit("turn-2", gpus=2, tenant="b")
        self.schedd.wait(lambda: self.schedd.job("turn-1").pauses >= 1 and "resumed" in self.kinds("turn-1"))
        self.check(first, second)

    def test_priority_preempts(self):
        self.start("a", lease="1h")
        low = self.run_job("low", gpus=2)
        high = self.submit("high", gpus=1, priority=5)
        self.schedd.wait_for_state("high", "RUNNING")
        self.assertEqual(self.schedd.state_of("low"), "PAUSED")
        self.assertEqual(self.nodes["a"].devices()[1]["memory_used"], 0, "the paused job's memory is free for others")
        self.check(high)
        self.schedd.wait_for_state("low", "RUNNING")
        self.check(low)

    def test_a_node_is_drained(self):
        self.start("a", "b")
        job = self.run_job("moved", gpus=2)
        here = self.schedd.job("moved").node
        self.schedd.stub.Drain(sched.DrainRequest(node=here, reason="a new fan"), timeout=30)
        self.schedd.wait(lambda: self.schedd.job("moved").node != here and self.schedd.state_of("moved") == "RUNNING")
        self.assertEqual(list(self.schedd.node(here).jobs), ["", ""])
        self.check(job)
        self.assertIn("moved", self.kinds("moved"))

    def test_what_cannot_be_moved_from_a_drained_node_waits_as_an_image(self):
        self.start("a")
        job = self.run_job("stored")
        self.schedd.stub.Drain(sched.DrainRequest(node="a"), timeout=30)
        self.schedd.wait(lambda: "paused" in self.kinds("stored"))
        self.assertFalse(self.nodes["a"].live("stored"))
        self.schedd.stub.Undrain(sched.UndrainRequest(node="a"), timeout=30)
        self.schedd.wait_for_state("stored", "RUNNING")
        self.check(job)

    def test_a_job_is_cancelled(self):
        self.start("a")
        self.run_job("ends", gpus=2)
        waits = self.submit("waits", gpus=2, tenant="b")
        self.schedd.stub.CancelJob(sched.CancelJobRequest(name="ends"), timeout=30)
        self.schedd.wait_for_state("ends", "CANCELLED")
        self.assertFalse(self.nodes["a"].live("ends"))
        self.schedd.wait_for_state("waits", "RUNNING")
        self.check(waits)

    def test_a_program_that_fails_comes_back_as_often_as_it_may(self):
        self.start("a")
        sample = Sample("vector", "--rounds", "100", "--elements", str(1 << 14), *SLOW)
        job = self.run_job("fails", sample=sample, max_restarts=1)
        node = self.nodes["a"]
        self.schedd.wait(lambda: node.agent.job("fails").last_image)
        os.kill(node.process("fails")["pid"], signal.SIGKILL)
        self.schedd.wait(lambda: self.schedd.job("fails").restarts == 1 and self.schedd.state_of("fails") == "RUNNING")
        self.check(job)
        script = {"argv": ["/bin/sh", "-c", "exit 3"]}
        self.schedd.submit("three", script["argv"], {"PATH": "/bin"}, max_restarts=2)
        self.schedd.wait_for_state("three", "FAILED")
        self.assertEqual((self.schedd.job("three").exit_code, self.schedd.job("three").restarts), (3, 2))

    def test_a_ranked_job_moves_as_one(self):
        self.start("a", "b")
        job = self.run_job("ranks", sample=RANKED, gpus=2, ranks=2)
        here = self.schedd.job("ranks").node
        self.schedd.stub.Drain(sched.DrainRequest(node=here), timeout=30)
        self.schedd.wait(lambda: self.schedd.job("ranks").node != here and self.schedd.state_of("ranks") == "RUNNING")
        self.check(job)


class Trouble(WithTwoNodes):
    """What happens to it, its nodes and their agents."""

    def test_a_scheduler_that_is_killed_goes_on(self):
        self.start("a", "b")
        jobs = [self.run_job(f"kept-{i}", gpus=1) for i in range(3)]
        waiting = self.submit("kept-3", gpus=2, tenant="b")
        self.schedd.kill()
        self.schedd.start()
        self.schedd.wait(lambda: self.schedd.node("a").reachable and self.schedd.node("b").reachable)
        self.schedd.wait_for_state("kept-3", "RUNNING")
        self.check(*jobs, waiting)
        for job in [*jobs, waiting]:
            self.assertEqual(self.schedd.job(job.name).restarts, 0)

    def test_an_old_scheduler_ends_itself(self):
        self.start("a")
        job = self.run_job("mine")
        newer = Schedd(self.nodes, "s", "--lease", "1h")
        newer.PORT = 7472
        newer.__enter__()
        self.addCleanup(newer.__exit__, None, None, None)
        newer.tenant("a")
        newer.join("a")
        newer.submit("fence", ["/bin/true"], {"PATH": "/bin"})
        newer.wait_for_state("fence", "DONE")
        self.schedd.submit("harm", ["/bin/true"], {"PATH": "/bin"})
        self.assertEqual(self.schedd.process.wait(60), 3)
        self.assertIn("the fence is", self.schedd.words())
        self.assertIsNone(self.nodes["a"].agent.job("harm"))
        self.assertTrue(self.nodes["a"].live(job.name))

    def test_an_agent_that_is_killed_costs_nothing(self):
        self.start("a")
        job = self.run_job("stays")
        self.nodes["a"].kill_agent()
        self.nodes["a"].start_agent()
        self.check(job)
        self.assertEqual(self.schedd.job("stays").restarts, 0)

    def test_jobs_of_a_lost_node_come_back_from_copies_of_their_images(self):
        self.start("a", "b")
        job = self.run_job("back", gpus=2)
        here = self.schedd.job("back").node
        other = "b" if here == "a" else "a"
        self.schedd.wait_for_line(lambda line: line["message"] == "image copied" and line["job"] == "back")
        node = self.nodes[here]
        node.kill_agent()
        node.end_jobs()
        self.schedd.wait(lambda: self.schedd.job("back").node == other and self.schedd.state_of("back") == "RUNNING")
        self.check(job)
        self.assertIn("lost", self.kinds("back"))
        self.assertIn("comes back from the image", self.schedd.story())

    def test_a_node_that_was_cut_off_gives_up_what_is_not_its_any_more(self):
        self.start("a", "b")
        job = self.run_job("cut", gpus=2)
        here = self.schedd.job("cut").node
        other = "b" if here == "a" else "a"
        self.schedd.wait_for_line(lambda line: line["message"] == "image copied" and line["job"] == "cut")
        self.nodes.cut(here)
        self.addCleanup(self.nodes.join)
        self.schedd.wait(lambda: self.schedd.job("cut").node == other and self.schedd.state_of("cut") == "RUNNING")
        self.assertTrue(self.nodes[here].live("cut"))
        self.nodes.join()
        self.schedd.wait(lambda: self.schedd.node(here).reachable)
        self.assertFalse(self.nodes[here].live("cut"))
        self.check(job)
        self.assertEqual(self.schedd.job("cut").restarts, 1)


if __name__ == "__main__":
    unittest.main()
