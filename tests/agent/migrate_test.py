"""Jobs that move between nodes which share nothing but a network: they end as if nothing had been."""

import os
import re
import signal
import unittest

from agents import AgentNodes, OperationFailed, built, pb
from moving_job import CONDITION, MovingJob, Sample

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
TRIPS = 40 if FULL else 2  # there, and back
RANKS = 4 if FULL else 2

DEVICES = ["--gpus", str(RANKS), "--memory", "512MiB"]
RATE, DELAY = 400_000_000, 0.001



def paced(steps):
    """So many steps that rest in between, for longer than all trips take; until then, see MovingJob.finish()."""
    steps *= 20 if FULL else 1
    return [str(steps), "--pace-ms", str((800000 if FULL else 240000) // steps)]


ALONE = [
    Sample("mlp_train", "--steps", *paced(600), "--batch", "32", "--width", "32", "--log-every", "1"),
    Sample("gpt_train", "--steps", *paced(150), "--width", "32", "--context", "32"),
    Sample("cnn_train", "--steps", *paced(300), "--batch", "16", "--channels", "2", "--hidden", "16", "--test", "100",
           "--log-every", "1"),
    Sample("stencil", "--iterations", str(40 * int(paced(100)[0])), *paced(100)[1:], "--report-every", "40", "--width", "64",
           "--height", "64"),
    Sample("vector", "--rounds", *paced(150), "--elements", str(1 << 16)),
    Sample("nccl_ring", "--rounds", *paced(600), "--elements", str(1 << 12), devices=2),
]
RANKED = [
    Sample("ddp_train", "--steps", *paced(300), ranks=RANKS),
    Sample("pipeline_train", "--steps", *paced(150), ranks=RANKS),
    Sample("tp_train", "--steps", *paced(150), ranks=RANKS),
]


class OnTwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(rate=RATE, delay=DELAY, left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.nodes.start_agents()

    def other(self, name):
        return "right" if name == "left" else "left"

    def start(self, sample, **fields):
        job = MovingJob(self.nodes, sample, f"{sample.name}-{self.id().rsplit('.', 1)[1]}", "left").start(**fields)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        for node in self.nodes.nodes.values():
            if any(node.live(task) for task in job.tasks):
                node.agent.call("cancel", job=job.name)

    def trip(self, job, conditions=("RUNNING",), **fields):
        """`conditions`: in which it may be when it has arrived."""
        source, target = job.at, self.other(job.at)
        operation = job.migrate(target, **fields)
        self.assertEqual(job.live_on(), {target: job.tasks}, "the program was too quick, or it is not there alone")
        told = self.nodes[source].agent.job(job.name)
        self.assertEqual(told.condition, CONDITION("CONDITION_MIGRATED"), told)
        self.assertEqual(told.moved_to, target)
        self.assertIn(self.nodes[target].agent.job(job.name).condition, [CONDITION(f"CONDITION_{name}") for name in conditions])
        return operation

    def check_end(self, job):
        status, lines = job.finish()
        self.assertEqual((status, lines), (0, job.sample.expected()))


class Samples(OnTwoNodes):
    """Every one of them, there and back."""

    def check(self, sample):
        job = self.start(sample)
        for trip in range(TRIPS):
            self.trip(job, precopy=("auto", "always", "never")[trip % 3])
        self.check_end(job)
        self.assertFalse(any(self.nodes["left"].memory_in_the_end() + self.nodes["right"].memory_in_the_end()))

    def test_tasks_alone(self):
        for sample in ALONE if FULL else ALONE[:2]:
            with self.subTest(sample.name):
                self.check(sample)

    def test_ranks(self):
        for sample in RANKED if FULL else RANKED[:1]:
            with self.subTest(sample.name):
                self.check(sample)

    def test_a_server_counts_on(self):
        sample = Sample("counter")
        job = self.start(sample)
        port = re.search(r"127\.0\.0\.1:(\d+)", job.output())[1]
        count = 0
        for _ in range(TRIPS):
            count += 1
            self.assertEqual(self.ask(job, port, "inc"), str(count))
            self.trip(job)
            self.assertEqual(self.ask(job, port, "get"), str(count))
        self.assertEqual(self.ask(job, port, "quit"), "bye")
        status, lines = job.finish()
        self.assertEqual((status, lines[-1]), (0, f"stopped at {count}"))

    def ask(self, job, port, line):
        """What the server answers to a client on its node."""
        client = ("import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 100); "
                  "c.sendall(sys.argv[2].encode() + b'\\n'); print(c.makefile().readline().strip())")
        result = self.nodes[job.at].run("/usr/bin/python3", "-c", client, port, line, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()


class Schedules(OnTwoNodes):

    def schedules(self, node, job):
        return self.nodes[node].agent.stub.ListSchedules(pb.ListSchedulesRequest(job=job.name), timeout=120).schedules

    def test_a_schedule_moves_with_its_job(self):
        job = self.start(ALONE[0])
        rules = pb.Schedule(job=job.name, interval_ms=1000, keep_last=2, max_restarts=3, restart_backoff_ms=100)
        self.nodes["left"].agent.stub.SetSchedule(
            pb.SetScheduleRequest(change=pb.Change(idempotency_key=f"set-{job.name}"), schedule=rules), timeout=120)
        # Its next image is soon due, wherever it is.
        self.trip(job, conditions=("RUNNING", "CHECKPOINTING"))
        moved = self.schedules("right", job)
        self.assertEqual([(s.interval_ms, s.keep_last, s.max_restarts, s.restart_backoff_ms, s.state) for s in moved],
                         [(1000, 2, 3, 100, "watching")])
        agent = self.nodes["right"].agent
        before = agent.job(job.name)
        agent.wait_for_job(job.name, lambda now: now.last_image != before.last_image)  # nobody asks for it here
        os.kill(before.ranks[0].pid, signal.SIGKILL)
        agent.wait_for_job(job.name, lambda now: now.condition == CONDITION("CONDITION_RUNNING") and
                           now.ranks[0].pid != before.ranks[0].pid)
        # As it has come back, and with what it is kept by.
        self.trip(job, conditions=("RUNNING", "CHECKPOINTING"))
        self.assertEqual([s.interval_ms for s in self.schedules("left", job)], [1000])
        self.check_end(job)


class Refused(OnTwoNodes):
    """What cannot be moved is told beforehand, and runs on untouched."""

    def refused(self, job, words, **fields):
        before = self.processes_of(job)
        with self.assertRaises(OperationFailed) as failed:
            self.nodes[job.at].agent.call("migrate", job=job.name, **{"node": self.nodes[self.other(job.at)].peer, **fields})
        result = failed.exception.result
        self.assertIn(words, result["message"], result)
        self.assertEqual(result["left"], "unchanged", result)
        self.assertEqual(self.processes_of(job), before)
        self.assertTrue(all(self.nodes[job.at].live(task) for task in job.tasks))
        return result

    def processes_of(self, job):
        """By node and task, also of another one that has its name."""
        return {(name, task): node.process(task) for name, node in self.nodes.nodes.items() for task in job.tasks}

    def test_what_the_target_does_not_have(self):
        job = self.start(ALONE[0])
        right = self.nodes["right"]
        right.agent.run(job.name, ["/bin/sleep", "600"], {"SOFTGPU_SOCKET": right.socket})
        self.refused(job, job.name)
        right.agent.call("cancel", job=job.name)
        right.agent.call("remove", job=job.name)
        self.refused(job, "10.77.0.99", node="10.77.0.99:7443")
        self.refused(job, "9", gpus=[9])
        self.trip(job)
        self.check_end(job)

    def test_too_little_device_memory(self):
        holder = Sample("mlp_train", "--steps", "100000", "--batch", "8", "--width", "32", "--pool", "300", label="holder")
        first = self.start(holder)
        self.trip(first)
        second = MovingJob(self.nodes, holder, "second", "left").start(gpus=[0])
        self.addCleanup(self.end, second)
        self.refused(second, "memory", gpus=[0])


if __name__ == "__main__":
    unittest.main()
