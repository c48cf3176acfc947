"""A cluster of three nodes with four devices each, three tenants and a queue of jobs, all real: what is preempted, moved, drained,
lost with its node or left by a scheduler that is killed ends with the result of its undisturbed run. The simulator, told the same
jobs and what the verbs cost here, foretells when the last one ends.

STASIS_TEST_SEED draws other jobs; the full run has more of them."""

import concurrent.futures
import csv
import json
import os
import random
import subprocess
import tempfile
import time
import unittest

from agents import AgentNodes, op
from moving_job import Sample
from schedd import Schedd, sched
from softgpu import built, die_with_parent

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
JOBS = 40 if FULL else 12
NODES = ("a", "b", "c")
DEVICES = ["--gpus", "4", "--memory", "512MiB"]
LEASE_SECONDS = 4
TENANTS = {"vision": 2, "speech": 1, "robots": 1}
SIZES = ["--elements", str(1 << 14)]


def paced(program, seconds, rests, *options, ranks=0):
    """A sample that lasts for about so long and rests for most of it, so that it takes as long whoever else computes here."""
    made = Sample(program, *options, "--pace-ms", str(2000 * seconds // rests), ranks=ranks, label=f"{program}-{seconds}-{ranks}")
    made.gpus = ranks or 1
    return made


SAMPLES = [
    paced("mlp_train", 5, 50, "--steps", "50", "--batch", "8", "--width", "32"),
    paced("mlp_train", 12, 100, "--steps", "100", "--batch", "8", "--width", "32"),
    paced("gpt_train", 8, 40, "--steps", "40", "--width", "32", "--context", "32"),
    paced("cnn_train", 6, 60, "--steps", "60", "--batch", "8", "--channels", "2", "--hidden", "16", "--test", "100"),
    paced("stencil", 7, 70, "--iterations", "2800", "--report-every", "40", "--width", "64", "--height", "64"),
    paced("vector", 16, 160, "--rounds", "160", *SIZES),
    paced("ddp_train", 8, 80, "--steps", "80", ranks=2),
    paced("ddp_train", 6, 60, "--steps", "60", ranks=4),
]
LONG = paced("vector", 600, 600, "--rounds", "600", *SIZES)  # until it is hurried


class Job:
    def __init__(self, cluster, name, what, tenant, at):
        self.cluster, self.name, self.sample, self.tenant, self.at = cluster, name, what, tenant, at
        self.hurry_file = os.path.join(cluster.nodes.folder, f"hurry-{name}")

    def env(self):
        return {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": self.cluster.nodes["a"].socket,
                "SOFTGPU_AUTOSTART": "0", "PACE_UNTIL": self.hurry_file}

    def submit(self, **fields):
        self.cluster.schedd.submit(self.name, self.sample.command(), self.env(), tenant=self.tenant, gpus=self.sample.gpus,
                                   ranks=self.sample.ranks, **fields)
        return self

    def hurry(self):
        with open(self.hurry_file, "w", encoding="utf-8"):
            pass


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(s=["--gpus", "1"], **{name: DEVICES for name in NODES})
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        for name in NODES:
            cls.nodes[name].start_agent()

    def start(self, lease=LEASE_SECONDS, checkpoints="0", node_timeout="60s"):
        self.jobs = []
        self.schedd = Schedd(self.nodes, "s", "--lease", f"{lease}s", "--node-timeout", node_timeout, "--checkpoint-interval",
                             checkpoints, "--log-level", "debug")
        self.schedd.__enter__()
        self.addCleanup(self.end)
        for tenant, weight in TENANTS.items():
            self.schedd.tenant(tenant, weight)
        self.schedd.join(*NODES)

    def end(self):
        for job in self.jobs:
            job.hurry()
        self.schedd.__exit__(None, None, None)
        for name in NODES:
            self.nodes[name].end_jobs()

    def add(self, name, what, tenant="vision", at=0.0):
        self.jobs.append(Job(self, name, what, tenant, at))
        return self.jobs[-1]

    def draw(self, label):
        """The queue: names, samples, tenants and when each comes (seconds)."""
        rng = random.Random(SEED)
        at = 0.0
        for number in range(JOBS):
            self.add(f"{label}-{number:02}", rng.choice(SAMPLES), rng.choice(list(TENANTS)), at)
            at += rng.expovariate(1.0)

    def submit_in_time(self, **fields):
        """All that was drawn, each when it comes; the future of that."""
        begin, jobs = time.monotonic(), list(self.jobs)

        def run():
            for job in jobs:
                time.sleep(max(0.0, begin + job.at - time.monotonic()))  # as users do
                job.submit(**fields)

        user = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(user.shutdown)
        return user.submit(run)

    def ended(self):
        return [job for job in self.schedd.queue().values() if job.ended_ms != 0]

    def wait_for_ends(self, count):
        def ended():
            self.check_places()
            return len(self.ended()) >= count

        self.schedd.wait(ended, 400)

    def places(self):
        """Where the scheduler has each task that runs and is to stay as it is."""
        return {name: (job.node, sorted(job.devices)) for name, job in self.schedd.queue(ended=False).items()
                if job.state == sched.QUEUE_STATE_RUNNING and len(job.devices) == 1}

    def check_places(self):
        """And that its agent has it there."""
        before = self.places()
        told = {name: self.nodes[name].agent.jobs() for name in NODES if self.nodes[name].agent}
        after = self.places()
        for name, (node, devices) in before.items():
            if after.get(name) == (node, devices) and name in told.get(node, {}):
                self.assertEqual(sorted(told[node][name].ranks[0].gpus), devices, f"{name} on {node}\n{self.schedd.story()}")

    def check_results(self):
        """Each has ended well, and has printed what it prints when nobody disturbs it."""
        queue = self.schedd.queue()
        for job in self.jobs:
            told = queue[job.name]
            self.assertEqual(sched.QueueState.Name(told.state), "QUEUE_STATE_DONE",
                             f"{told}\n{self.schedd.story()}\n{self.schedd.words()}")
            tasks = [f"{job.name}.{rank}" for rank in range(job.sample.ranks)] or [job.name]
            try:
                output = "".join(self.nodes[told.node].output(task) for task in tasks)
            except FileNotFoundError as error:
                raise AssertionError(f"{told}\n{self.schedd.story()}\n{self.schedd.words()}") from error
            self.assertEqual(job.sample.lines(output), job.sample.expected(), f"{job.name}\n{self.schedd.story()}")

    def report(self):
        queue = self.schedd.queue().values()
        print(f"{len(queue)} jobs: {sum(job.pauses for job in queue)} pauses, {sum(job.migrations for job in queue)} migrations, "
              f"{sum(job.restarts for job in queue)} came back from an image; "
              + ", ".join(f"{tenant.name} F {tenant.fairness_all:.2f}"
                          for tenant in self.schedd.stub.Tenants(sched.TenantsRequest(), timeout=120).tenants), flush=True)

    def check_nothing_is_left(self):
        for name in NODES:
            self.assertEqual(self.nodes[name].tasks(), [], name)
            self.assertFalse(any(self.nodes[name].memory_in_the_end()), name)


class Faults(Cluster):
    """Everything that happens to a cluster, while it works."""

    def test_every_job_ends_as_undisturbed(self):
        self.start(checkpoints="2s", node_timeout="10s")
        self.draw("job")
        submitting = self.submit_in_time()
        self.wait_for_ends(JOBS // 6)
        urgent = self.add("urgent", SAMPLES[-1], "robots").submit(priority=9)
        self.schedd.wait(lambda: self.schedd.job(urgent.name).started_ms != 0)

        self.schedd.stub.Drain(sched.DrainRequest(node="b", reason="a new fan"), timeout=120)
        self.schedd.wait(lambda: not any(self.schedd.node("b").jobs))
        self.schedd.wait(lambda: not self.nodes["b"].tasks())
        self.schedd.stub.Undrain(sched.UndrainRequest(node="b"), timeout=120)

        submitting.result()
        self.wait_for_ends(JOBS // 3)
        self.schedd.kill()
        self.schedd.start()

        self.wait_for_ends(JOBS // 2)
        lost = self.nodes["c"]
        lost.lose()
        self.schedd.wait(lambda: not self.schedd.node("c").reachable)
        lost.start_agent()
        self.schedd.wait(lambda: self.schedd.node("c").reachable)

        self.wait_for_ends(JOBS + 1)
        self.report()
        self.check_results()
        self.check_nothing_is_left()
        self.assertGreater(sum(job.pauses for job in self.schedd.queue().values()), 0)


class Defragmentation(Cluster):
    def test_a_gang_gets_room_by_moving_others(self):
        self.start(lease=3600)
        # Three of four devices of each node are taken once one job of four on each has gone.
        small = [self.add(f"small-{number:02}", LONG).submit() for number in range(12)]
        self.schedd.wait(lambda: all(self.schedd.state_of(job.name) == "RUNNING" for job in small))
        for name in NODES:
            leaving = next(job for job in small if self.schedd.job(job.name).node == name)
            leaving.hurry()
            self.schedd.wait_for_state(leaving.name, "DONE")
        other = next(job for job in small if self.schedd.job(job.name).node == "a" and self.schedd.state_of(job.name) == "RUNNING")
        other.hurry()
        self.schedd.wait_for_state(other.name, "DONE")
        free = {name: self.schedd.node(name).free for name in NODES}
        self.assertEqual(free, {"a": 2, "b": 1, "c": 1})
        plan = self.schedd.stub.Defragment(sched.DefragmentRequest(gpus=4, dry_run=True), timeout=120)
        self.assertTrue(plan.possible, plan)
        self.assertEqual(len(plan.moves), 2, plan)
        gang = self.add("gang", SAMPLES[-1], "speech").submit()
        self.schedd.wait_for_state(gang.name, "RUNNING")
        self.assertEqual(sum(job.migrations for job in self.schedd.queue().values()), 2, self.schedd.story())
        self.assertEqual(sum(job.pauses for job in self.schedd.queue().values()), 0, self.schedd.story())
        for job in small:
            job.hurry()
        self.wait_for_ends(len(self.jobs))
        self.check_results()


class Foretold(Cluster):
    """The simulator has the policies of the daemon, and the costs as measured here. How well it foretells is a benchmark:
    scripts/bench.sh live."""

    VERBS = {"pause": "pause", "resume": "resume", "migrate": "migrate", "checkpoint": "checkpoint", "restore": "restart"}

    def alone(self):
        """How long each sample takes when nobody disturbs it, as its agent tells."""
        seconds = {}
        for number, what in enumerate(SAMPLES):
            node = self.nodes[NODES[number % len(NODES)]]
            job = Job(self, f"alone-{number}", what, "", 0)
            node.agent.run(job.name, what.command(), job.env(), ranks=what.ranks, gpus=range(what.ranks))
        for number, what in enumerate(SAMPLES):
            node = self.nodes[NODES[number % len(NODES)]]
            told = node.agent.wait_for_job(f"alone-{number}", lambda job: job.ended_ms != 0)
            self.assertEqual(told.exit_code, 0, told)
            operations = node.agent.stub.ListOperations(op.ListOperationsRequest(job=told.name, limit=10), timeout=120).operations
            begun = next(done.started_ms for done in operations if done.verb == "run")  # created_ms is of whole seconds
            seconds[what] = (told.ended_ms - begun) / 1000
        return seconds

    def try_verbs(self):
        """So that each has been measured."""
        source, target = self.nodes["a"], self.nodes["b"]
        job = Job(self, "tried", LONG, "", 0)
        source.agent.run(job.name, LONG.command(), job.env())
        source.agent.wait_for_output(job.name, LONG.first_words)
        source.agent.call("pause", job=job.name, residency="host")
        source.agent.call("resume", job=job.name)
        source.agent.call("checkpoint", job=job.name, stop=True)
        source.agent.call("restore", job=job.name)
        source.agent.call("migrate", job=job.name, node=target.peer)
        target.agent.call("cancel", job=job.name)

    def costs(self, folder):
        measured = os.path.join(folder, "measured.csv")
        with open(measured, "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["operation", "bytes_per_gpu", "seconds"])
            for name in NODES:
                listed = self.nodes[name].agent.stub.ListOperations(op.ListOperationsRequest(limit=1000), timeout=120)
                for done in listed.operations:
                    if done.verb in self.VERBS and done.state == op.OPERATION_STATE_SUCCEEDED:
                        rows.writerow([self.VERBS[done.verb], 0, (done.ended_ms - done.started_ms) / 1000])
        fitted = os.path.join(folder, "costs.json")
        with open(fitted, "w", encoding="utf-8") as file:
            file.write(self.sim("fit", measured))
        return fitted

    def sim(self, *arguments):
        done = subprocess.run([built("bin/stasis-sim"), *arguments], capture_output=True, text=True, preexec_fn=die_with_parent)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def simulated(self, seconds):
        """The makespan in seconds."""
        with tempfile.TemporaryDirectory(prefix="stasis-foretold-") as folder:
            trace, weights = os.path.join(folder, "trace.csv"), os.path.join(folder, "weights.csv")
            with open(trace, "w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["job_id", "tenant", "submit_s", "gpus", "duration_s"])
                for job in self.jobs:
                    rows.writerow([job.name, job.tenant, f"{job.at:.3f}", job.sample.gpus, f"{seconds[job.sample]:.3f}"])
            with open(weights, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("name", "share"), *TENANTS.items()])
            told = self.sim("--trace", trace, "--tenants", weights, "--nodes", str(len(NODES)), "--devices-per-node", "4",
                            "--lease", str(LEASE_SECONDS), "--few-nodes", "--active-bytes", "0", "--costs", self.costs(folder),
                            "--policy", "astraea", "--json")
            return json.loads(told)[0]["makespan_s"]

    def makespans(self):
        """In seconds: live, and as the simulator foretells it."""
        seconds = self.alone()
        self.try_verbs()
        self.start()
        self.draw("foretold")
        self.submit_in_time().result()
        self.wait_for_ends(JOBS)
        self.report()
        self.check_results()
        queue = self.schedd.queue().values()
        live = (max(job.ended_ms for job in queue) - min(job.submitted_ms for job in queue)) / 1000
        return live, self.simulated(seconds)

    def test_the_simulator_takes_the_same_jobs(self):
        live, foretold = self.makespans()
        print(f"makespan: live {live:.1f} s, simulated {foretold:.1f} s, ratio {foretold / live:.3f}", flush=True)
        longest = max(job.at for job in self.jobs)
        self.assertGreater(live, longest)
        self.assertGreater(foretold, longest)


if __name__ == "__main__":
    unittest.main()
