"""stasis-schedd over agents of whole nodes: what it decides is done, and what happens to nodes, agents and itself costs no job."""

import contextlib
import json
import os
import signal
import sqlite3
import tempfile
import unittest

from agents import AgentNodes, HeldCriu, op
from moving_job import Sample
from schedd import Schedd, sched
from softgpu import built

DEVICES = ["--gpus", "2", "--memory", "512MiB"]
SLOW = ["--pace-ms", "600"]
LOSS = "10s"  # node timeout of those tests that wait for it


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


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
        touch(self.hurry_file)


# They rest for much longer than a test takes.
RANKED = Sample("ddp_train", "--steps", "200", "--pace-ms", "2000", ranks=2)
VECTOR = Sample("vector", "--rounds", "600", "--elements", str(1 << 14), *SLOW)


class WithTwoNodes(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(s=["--gpus", "1"], a=DEVICES, b=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.criu = {name: HeldCriu(cls.nodes[name]) for name in ("a", "b")}

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
            self.criu[name].let_go()
            self.nodes[name].end_jobs()

    def start(self, *names, lease="2s", checkpoints="1s", node_timeout="60s", options=()):
        """A scheduler, with nodes that have joined."""
        self.schedd = Schedd(self.nodes, "s", "--lease", lease, "--node-timeout", node_timeout, "--checkpoint-interval", checkpoints,
                             *options)
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

    def test_a_victim_that_never_pauses_blocks_nobody(self):
        """A kernel of its that does not end by itself; its agent alone would wait for half a minute."""
        self.start("a", lease="1h", checkpoints="0", options=["--pause-timeout", "10s"])
        go_on = os.path.join(self.nodes.folder, "go-on")
        calm = self.run_job("calm")
        self.addCleanup(touch, go_on)
        self.schedd.submit("stuck", [built("tests/programs/stubborn"), "spin", go_on], calm.env(), priority=-5)
        self.schedd.wait_for_state("stuck", "RUNNING")
        self.nodes["a"].agent.wait_for_output("stuck", "spinning")
        urgent = self.submit("urgent", priority=5)
        self.schedd.wait_for_state("urgent", "RUNNING")
        self.assertEqual(self.schedd.state_of("calm"), "PAUSED")
        self.assertIn("job stuck has not paused within 10 s", self.schedd.story())
        touch(go_on)
        self.schedd.wait_for_state("stuck", "DONE", "FAILED")
        self.check(urgent, calm)
        for name in ("stuck", "calm"):
            self.assertEqual((self.schedd.state_of(name), self.schedd.job(name).restarts), ("DONE", 0), self.schedd.story())

    def test_a_node_is_drained(self):
        self.start("a", "b")
        job = self.run_job("moved", gpus=2)
        here = self.schedd.job("moved").node
        self.schedd.stub.Drain(sched.DrainRequest(node=here, reason="a new fan"), timeout=120)
        self.schedd.wait(lambda: self.schedd.job("moved").node != here and self.schedd.state_of("moved") == "RUNNING")
        self.assertEqual(list(self.schedd.node(here).jobs), ["", ""])
        self.check(job)
        self.assertIn("moved", self.kinds("moved"))

    def test_what_cannot_be_moved_from_a_drained_node_waits_as_an_image(self):
        self.start("a")
        job = self.run_job("stored")
        self.schedd.stub.Drain(sched.DrainRequest(node="a"), timeout=120)
        self.schedd.wait(lambda: "paused" in self.kinds("stored"))
        self.assertFalse(self.nodes["a"].live("stored"))
        self.schedd.stub.Undrain(sched.UndrainRequest(node="a"), timeout=120)
        self.schedd.wait_for_state("stored", "RUNNING")
        self.check(job)

    def test_a_job_is_cancelled(self):
        self.start("a")
        self.run_job("ends", gpus=2)
        waits = self.submit("waits", gpus=2, tenant="b")
        self.schedd.stub.CancelJob(sched.CancelJobRequest(name="ends"), timeout=120)
        self.schedd.wait_for_state("ends", "CANCELLED")
        self.assertFalse(self.nodes["a"].live("ends"))
        self.schedd.wait_for_state("waits", "RUNNING")
        self.check(waits)

    def test_a_program_that_fails_comes_back_as_often_as_it_may(self):
        self.start("a")
        job = self.run_job("fails", max_restarts=1)
        node = self.nodes["a"]
        self.schedd.wait(lambda: node.agent.job("fails").last_image)
        os.kill(node.process("fails")["pid"], signal.SIGKILL)
        self.schedd.wait(lambda: self.schedd.job("fails").restarts == 1 and self.schedd.state_of("fails") == "RUNNING")
        self.check(job)
        script = {"argv": ["/bin/sh", "-c", "exit 3"]}
        self.schedd.submit("three", script["argv"], {"PATH": "/bin"}, max_restarts=2)
        self.schedd.wait_for_state("three", "FAILED")
        self.assertEqual((self.schedd.job("three").exit_code, self.schedd.job("three").restarts), (3, 2))

    def test_what_it_counts_is_served(self):
        address = f"{self.nodes['s'].address}:7490"
        self.start("a", options=["--metrics", address])
        job = self.run_job("counted", gpus=2)
        told = self.nodes["s"].run("/usr/bin/python3", "-c", f"import urllib.request as web; "
                                   f"print(web.urlopen('http://{address}/metrics', timeout=60).read().decode())").stdout.splitlines()
        values = dict(line.rsplit(" ", 1) for line in told if line and not line.startswith("#"))
        for name, value in {'jobs{state="running"}': 1, 'jobs{state="failed"}': 0, 'devices{state="held"}': 2,
                            'devices{state="free"}': 0, 'nodes{state="ready"}': 1, 'tenant_held{tenant="a"}': 2,
                            'decisions_total{action="start"}': 1, 'oldest_order_seconds{order="pause"}': 0}.items():
            self.assertEqual(float(values[f"stasis_sched_{name}"]), value, name)
        self.assertGreater(float(values["stasis_sched_decision_seconds_count"]), 0)
        self.assertTrue(any(line.startswith("stasis_rpc_seconds_count") for line in told))
        self.check(job)

    def test_a_ranked_job_moves_as_one(self):
        self.start("a", "b")
        job = self.run_job("ranks", sample=RANKED, gpus=2, ranks=2)
        here = self.schedd.job("ranks").node
        self.schedd.stub.Drain(sched.DrainRequest(node=here), timeout=120)
        self.schedd.wait(lambda: self.schedd.job("ranks").node != here and self.schedd.state_of("ranks") == "RUNNING")
        self.check(job)


class Notices(WithTwoNodes):
    """A node of which is known when it will be gone."""

    def drain(self, node, seconds):
        self.schedd.stub.Drain(sched.DrainRequest(node=node, reason="reclaimed", notice_ms=int(seconds * 1000)), timeout=120)

    def saves(self, node):
        return {save.job: sched.SaveState.Name(save.state).removeprefix("SAVE_STATE_") for save in self.schedd.node(node).saves}

    def test_what_is_saved_before_a_node_goes_loses_nothing(self):
        self.start("a", lease="1h", checkpoints="0", node_timeout=LOSS)
        jobs = {name: self.run_job(name) for name in ("first", "second")}
        self.schedd.join("b")
        third = self.run_job("third")
        self.assertEqual(self.schedd.job("third").node, "b")
        self.drain("a", 600)
        self.schedd.wait(lambda: self.saves("a") == {"first": "SAVED", "second": "SAVED"})
        states = sorted(self.schedd.state_of(name) for name in jobs)
        self.assertEqual(states, ["PAUSED", "RUNNING"], "there is one device for the two of them")
        for name in jobs:
            self.assertIn("saved", self.kinds(name))
        self.nodes["a"].lose()
        self.schedd.wait(lambda: not self.schedd.node("a").reachable)
        self.check(third, *jobs.values())
        self.assertNotIn("from the beginning", self.schedd.story())

    def test_what_cannot_be_saved_is_told_and_runs_on(self):
        self.start("a", checkpoints="0")
        job = self.run_job("alone")
        self.drain("a", 1)
        self.schedd.wait(lambda: self.saves("a") == {"alone": "UNSAVED"})
        [save] = self.schedd.node("a").saves
        self.assertEqual((save.text, save.image_ms), ("there is no other node; there is no image of it elsewhere", 0))
        self.assertTrue(self.nodes["a"].live("alone"))
        self.check(job)
        self.assertEqual(self.kinds("alone"), ["submitted", "started", "unsaved", "done"])

    def test_a_notice_outlives_the_scheduler_and_is_taken_back(self):
        self.start("a", checkpoints="0", options=["--compact-after", "4"])
        job = self.run_job("stays")
        self.drain("a", 3600)
        deadline = self.schedd.node("a").deadline_ms
        self.schedd.kill()
        self.schedd.start()
        self.schedd.wait(lambda: self.schedd.node("a").reachable)
        self.assertEqual(self.schedd.node("a").deadline_ms, deadline)
        self.assertEqual(self.saves("a"), {"stays": "WAITING"})
        self.schedd.stub.Undrain(sched.UndrainRequest(node="a"), timeout=120)
        self.assertEqual((self.schedd.node("a").deadline_ms, self.saves("a")), (0, {}))
        self.check(job)


class Sharing(WithTwoNodes):
    """Two jobs that would take turns on the devices of a node share them where that is measured to be better, and only there."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="sharers-", dir=self.nodes.folder)
        self.end_file = os.path.join(self.nodes.folder, os.path.basename(self.folder) + ".end")

    def start_sharing(self, settle, lease):
        # Rates are asked for six times in the time in which a node is lost.
        self.start("a", lease=f"{lease}s", checkpoints="0", node_timeout="6s",
                   options=["--policy", "gandiva", "--settle", f"{settle}s"])
        self.addCleanup(self.end_programs)

    def end_programs(self):
        with open(self.end_file, "w", encoding="utf-8"):
            pass

    def share(self, label, alone_ms, shared_ms):
        """Two programs whose steps last so long; their names, once they share devices."""
        env = Job(self.nodes, VECTOR, "sharer").env()
        self.names = names = [f"{label}-1", f"{label}-2"]
        for name in names:
            program = [built("tests/programs/sharer"), self.folder, name, str(alone_ms), str(shared_ms), self.end_file]
            self.schedd.submit(name, program, env, gpus=2, memory_bytes=64 << 20, utilization=0.5)
        self.schedd.wait(lambda: self.besides() == names[::-1])
        return names

    def besides(self):
        return [self.schedd.job(name).beside for name in self.names]

    def end(self):
        self.end_programs()
        for name in self.names:
            self.schedd.wait_for_state(name, "DONE")

    def rates_on_record(self):
        """Of which jobs, and whether beside another."""
        self.schedd.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(self.schedd.state, "schedd.db"))) as database:
            facts = [json.loads(text) for text, in database.execute("SELECT fact FROM facts")]
        return {(fact["job"], fact["beside"] != "") for fact in facts if fact["fact"] == "rate"}

    def test_who_gets_on_better_together_stays_together(self):
        # Rates are of half the time in which it settles: to make them half as high the devices would have to stand still for
        # half of that.
        settle = 16
        self.start_sharing(settle, lease=8)
        names = self.share("good", alone_ms=100, shared_ms=100)
        pauses = [self.schedd.job(name).pauses for name in names]
        self.assertEqual(self.schedd.quiet(1.5 * settle), [], self.schedd.story())
        self.assertEqual(self.besides(), names[::-1])
        for name, before in zip(names, pauses):
            job = self.schedd.job(name)
            self.assertEqual((job.pauses, job.rate_unit), (before, "launches"))
            self.assertGreater(job.rate, 0)
        self.end()
        self.assertEqual(self.rates_on_record(), {(name, beside) for name in names for beside in (False, True)})

    def test_who_stands_in_the_others_way_is_parted(self):
        self.start_sharing(settle=6, lease=5)
        names = self.share("bad", alone_ms=20, shared_ms=200)
        self.schedd.wait(lambda: self.besides() == ["", ""])
        # They take turns from then on.
        told = len(self.kinds(names[0]))
        self.schedd.wait(lambda: any(self.besides()) or len(self.kinds(names[0])) >= told + 2)
        self.assertEqual(self.besides(), ["", ""], self.schedd.story())
        self.end()


class Trouble(WithTwoNodes):
    """What happens to it, its nodes and their agents."""

    def test_a_scheduler_that_is_killed_goes_on(self):
        self.start("a", "b", options=["--compact-after", "4"])
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
        self.assertEqual(self.schedd.process.wait(120), 3)
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
        self.start("a", "b", node_timeout=LOSS)
        job = self.run_job("back", gpus=2)
        here = self.schedd.job("back").node
        other = "b" if here == "a" else "a"
        self.schedd.wait_for_line(lambda line: line["message"] == "image copied" and line["job"] == "back")
        self.nodes[here].lose()
        self.schedd.wait(lambda: self.schedd.job("back").node == other and self.schedd.state_of("back") == "RUNNING")
        self.check(job)
        self.assertIn("lost", self.kinds("back"))
        self.assertIn("comes back from the image", self.schedd.story())

    def test_a_node_is_lost_as_a_job_is_handed_over_to_it(self):
        """Only it can say what became of the job, which comes back where it came from all the same."""
        self.start("a", "b", lease="1h", checkpoints="0", node_timeout=LOSS)
        job = self.run_job("between", gpus=2)
        here = self.schedd.job("between").node
        source, lost = self.nodes[here], self.nodes["b" if here == "a" else "a"]
        self.criu[lost.name].hold("restore")
        self.schedd.stub.Drain(sched.DrainRequest(node=here), timeout=120)
        moving = source.agent.wait_for_job("between", lambda now: now.operation).operation
        for told in source.agent.stub.WatchOperation(op.WatchOperationRequest(id=moving), timeout=300):
            self.assertEqual(told.verb, "migrate")
            self.assertIn(told.state, (op.OPERATION_STATE_QUEUED, op.OPERATION_STATE_RUNNING), self.schedd.story())
            if told.phase == "hand over":
                break
        self.criu[lost.name].await_held()
        lost.lose()
        self.criu[lost.name].let_go()
        self.schedd.wait(lambda: not self.schedd.node(lost.name).reachable)
        self.schedd.stub.Undrain(sched.UndrainRequest(node=here), timeout=120)
        self.schedd.wait(lambda: self.schedd.job("between").node == here and self.schedd.state_of("between") == "RUNNING")
        self.check(job)
        self.assertEqual(self.schedd.job("between").restarts, 1)

    def test_a_node_that_was_cut_off_gives_up_what_is_not_its_any_more(self):
        self.start("a", "b", node_timeout=LOSS)
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
