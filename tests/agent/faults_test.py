"""Migrations between nodes that something happens to at a random moment: the network is cut, a process of either side is killed,
the target's disk is full. Exactly one copy of the job runs afterwards, and it ends as if nothing had been.

STASIS_TEST_SEED chooses other moments; the full run has many more of them."""

import collections
import concurrent.futures
import contextlib
import os
import random
import re
import signal
import threading
import time
import unittest

from agents import AgentNodes, HeldCriu, grpc, op
from moving_job import CONDITION, MovingJob, Sample

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
ROUNDS = 60 if FULL else 1  # of each fault
RANKS = 2
DEVICES = ["--gpus", str(RANKS), "--memory", "512MiB"]
RATE, DELAY, DISK = 400_000_000, 0.001, "512m"
SETTLE_SECONDS = 240

ROUNDS_OF_A_JOB = 120
# Rests for longer than its rounds take, and hurries to its end in much less than a test waits for one (11 ms a step).
STEPS = ["--steps", "6000", "--pace-ms", "400"] if FULL else ["--steps", "1000", "--pace-ms", "600"]
ALONE = Sample("mlp_train", *STEPS, "--batch", "8", "--width", "32", "--log-every", "5")
RANKED = Sample("ddp_train", *STEPS, "--log-every", "5", ranks=RANKS)


def kill_first(node, name, until):
    """Kills a process of `node` whose program is called so as soon as there is one, unless `until` is set first; whether it
    did."""
    while not until.is_set():
        pids = [pid for pid, command in node.processes().items() if os.path.basename(command.split(" ")[0]) == name]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(pids), signal.SIGKILL)
                return True
        until.wait(0.002)  # nothing tells when a process begins
    return False


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


class Faults(unittest.TestCase):
    sample = large = ALONE  # large: more of it is sent than a target writes at once

    @classmethod
    def setUpClass(cls):
        # One thread for all: what it starts ends with it.
        cls.striker = concurrent.futures.ThreadPoolExecutor(1)
        cls.addClassCleanup(cls.striker.shutdown)
        cls.nodes = AgentNodes(rate=RATE, delay=DELAY, disk=DISK, left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.criu = HeldCriu(cls.nodes["left"])
        cls.nodes.start_agents()

    # ---- what happens; each is done at its moment and returns what sets it right again

    def cut(self, _, __, over):
        self.nodes.cut("left")
        over.wait(self.random.choice([0.3, 2, 12] if FULL else [0.3, 2]))
        self.nodes.join()

    def kill_agent_of(self, node):
        node.kill_agent()
        node.start_agent()

    def kill_source_agent(self, source, _, __):
        self.kill_agent_of(source)

    def kill_target_agent(self, _, target, __):
        self.kill_agent_of(target)

    def kill_source_ghost(self, source, _, over):
        return kill_first(source, "stasis-ghost", over)

    def kill_target_ghost(self, _, target, over):
        return kill_first(target, "stasis-ghost", over)

    def kill_source_criu(self, source, _, over):
        return kill_first(source, "criu", over)

    def kill_target_criu(self, _, target, over):
        return kill_first(target, "criu", over)

    def fill_disk(self, _, target, over):
        filler = target.fill_disk(leave=self.random.choice([0, 1 << 16, 1 << 20, 16 << 20]))
        over.wait(SETTLE_SECONDS)
        os.remove(filler)

    FAULTS = ["cut", "kill_source_agent", "kill_target_agent", "kill_source_ghost", "kill_target_ghost", "kill_source_criu",
              "kill_target_criu", "fill_disk"]

    # ----

    def ended(self, source, begun):
        """The operation, when it has ended, whichever stasisd of the node it takes until then."""
        give_up = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < give_up:
            try:
                return source.agent.wait(begun.id, give_up - time.monotonic())
            except (grpc.RpcError, AttributeError, ValueError, AssertionError) as error:
                reason = error  # it was killed meanwhile, and is back in a moment
                time.sleep(0.05)
        raise AssertionError(f"{begun.id} on {source.name} has not ended after {SETTLE_SECONDS} s: {reason!r}\n"
                             + self.words()) from None

    def words(self):
        return "".join(f"--- {name}\n{node.agent_words()}\n" for name, node in self.nodes.nodes.items())

    def settle(self):
        """Until neither agent has an operation in hand."""
        give_up = time.monotonic() + SETTLE_SECONDS
        for node in self.nodes.nodes.values():
            for running in node.agent.stub.ListOperations(op.ListOperationsRequest(running=True), timeout=SETTLE_SECONDS).operations:
                node.agent.wait(running.id, give_up - time.monotonic())

    def migrate_with(self, job, fault, delay):
        """One migration that `fault` happens to `delay` seconds after it was asked for: how it ended."""
        source, target = self.nodes[job.at], self.nodes["right" if job.at == "left" else "left"]
        over = threading.Event()

        def strike():
            if not over.wait(delay):
                getattr(self, fault)(source, target, over)

        begun = source.agent.begin("migrate", job=job.name, node=target.peer)
        struck = self.striker.submit(strike)
        try:
            ended = self.ended(source, begun)
        finally:
            over.set()
            concurrent.futures.wait([struck])
        if struck.exception():
            raise AssertionError(self.words()) from struck.exception()
        return ended

    def check_one_copy(self, job, ended, what):
        self.settle()
        live = job.live_on()
        details = f"{what}: {live}\n{ended}\n{self.words()}"
        self.assertEqual(len(live), 1, details)
        (at, tasks), = live.items()
        self.assertEqual(tasks, job.tasks, details)
        moved = at != job.at
        self.assertEqual(moved, ended.state == op.OPERATION_STATE_SUCCEEDED, details)
        job.at = at
        told = self.nodes[at].agent.job(job.name)
        self.assertEqual(told.condition, CONDITION("CONDITION_RUNNING"), details + str(told))
        elsewhere = self.nodes["right" if at == "left" else "left"].agent.job(job.name)
        if elsewhere is not None:
            self.assertEqual(elsewhere.condition, CONDITION("CONDITION_MIGRATED"), details + str(elsewhere))

    def start(self, name):
        """A job, and what a migration of it takes."""
        job = MovingJob(self.nodes, self.sample, name, "left").start()
        # As under a schedule: a task that does not survive a CRIU that is killed at work comes back from an image.
        self.nodes["left"].agent.call("checkpoint", job=job.name)
        job.migrate("right")
        # From now on either node has what never changes.
        begin = time.monotonic()
        job.migrate("left")
        return job, time.monotonic() - begin

    def disturb(self, first, faults, ends):
        """One job, to its end."""
        job, usual = self.start(f"job{first}")
        for number, fault in enumerate(faults, first):
            delay = self.random.uniform(0, 1.1 * usual)
            what = f"round {number} of seed {SEED}: {fault} after {delay:.3f} s of {usual:.3f} s, from {job.at}"
            print(what, flush=True)
            ended = self.migrate_with(job, fault, delay)
            self.check_one_copy(job, ended, what)
            # It has been on both, and where it does not come back to it is still on record.
            self.assertEqual([node.name for node in self.nodes.nodes.values() if node.agent.job(job.name) is None], [], what)
            ends[fault, op.OperationState.Name(ended.state).rsplit("_", 1)[1].lower()] += 1
        print(", ".join(f"{fault} {state}: {count}" for (fault, state), count in sorted(ends.items())), flush=True)
        self.assertEqual(job.finish(), (0, self.sample.expected()))
        self.settle()
        for node in self.nodes.nodes.values():
            self.assertFalse(any(node.memory_in_the_end()), node.name)
        job.remove()

    def test_exactly_one_copy(self):
        self.random = random.Random(SEED)
        rounds = [fault for fault in self.FAULTS for _ in range(ROUNDS)]
        self.random.shuffle(rounds)
        ends = collections.Counter()
        for first in range(0, len(rounds), ROUNDS_OF_A_JOB):
            self.disturb(first, rounds[first:first + ROUNDS_OF_A_JOB], ends)

    def test_what_dies_at_its_last_image_is_brought_back(self):
        job = MovingJob(self.nodes, self.sample, "brought-back", "left").start()
        source = self.nodes["left"]
        self.criu.hold("dump")
        self.addCleanup(self.criu.let_go)
        begun = source.agent.begin("migrate", job=job.name, node=self.nodes["right"].peer, precopy="always")
        self.criu.await_held(len(job.tasks))
        while not self.is_at_its_last_image(source, begun):
            self.criu.let_these_go()
            self.criu.await_held(len(job.tasks))
        os.kill(source.process(job.tasks[-1])["init_pid"], signal.SIGKILL)
        self.criu.let_go()
        ended = self.ended(source, begun)
        self.assertEqual(ended.state, op.OPERATION_STATE_FAILED, ended)
        self.assertIn("brought back from image", "".join(ended.notes), ended)
        self.check_one_copy(job, ended, "a task killed at its last image")
        self.assertEqual(job.finish(), (0, self.sample.expected()))

    def is_at_its_last_image(self, source, begun):
        told = source.agent.stub.GetOperation(op.GetOperationRequest(id=begun.id, spans=True), timeout=SETTLE_SECONDS)
        self.assertEqual(told.state, op.OPERATION_STATE_RUNNING, told)
        return any(span.name == "image of the paused job" for span in told.spans)

    def test_a_ghost_dies_at_an_image_of_the_running_job(self):
        job = MovingJob(self.nodes, self.sample, "imaged", "left").start()
        source = self.nodes["left"]
        self.criu.hold("dump")
        self.addCleanup(self.criu.let_go)
        begun = source.agent.begin("migrate", job=job.name, node=self.nodes["right"].peer, precopy="always")
        self.criu.await_held(len(job.tasks))
        os.kill(parent_of(self.criu.waiting()[0]), signal.SIGKILL)
        self.criu.let_go()
        ended = self.ended(source, begun)
        self.assertEqual(ended.state, op.OPERATION_STATE_FAILED, ended)
        self.check_one_copy(job, ended, "a ghost killed at an image")
        self.assertEqual(job.finish(), (0, self.sample.expected()))

    def packs_in_writing(self, node):
        """Those that its agent has open for it."""
        found, folder = [], f"/proc/{node.stasisd.pid}"
        for name in os.listdir(f"{folder}/fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(f"{folder}/fd/{name}")
                with open(f"{folder}/fdinfo/{name}", encoding="ascii") as file:
                    flags = int(re.search(r"flags:\s*(\d+)", file.read())[1], 8)
                if "/store/packs/" in path and flags & os.O_ACCMODE != os.O_RDONLY:
                    found.append(path)
        return found

    def test_what_a_killed_agent_has_sent_is_let_go_of(self):
        job = MovingJob(self.nodes, self.large, "sent", "left").start()
        source, target = self.nodes["left"], self.nodes["right"]
        self.nodes.network(rate=8_000_000, delay=DELAY)
        try:
            begun = source.agent.begin("migrate", job=job.name, node=target.peer, precopy="never")
            give_up = time.monotonic() + SETTLE_SECONDS
            while not self.packs_in_writing(target):
                self.assertLess(time.monotonic(), give_up, self.words())
                time.sleep(0.01)  # nothing tells what an agent has open
            self.kill_agent_of(source)
            ended = self.ended(source, begun)
            self.assertEqual(ended.state, op.OPERATION_STATE_FAILED, ended)
            self.assertEqual(self.packs_in_writing(target), [], self.words())
        finally:
            self.nodes.network(rate=RATE, delay=DELAY)
        self.check_one_copy(job, ended, "an agent killed while it sent")
        self.assertEqual(job.finish(), (0, self.large.expected()))


class FaultsOfRanks(Faults):
    sample = RANKED
    large = Sample("ddp_train", *STEPS, "--log-every", "5", "--rows", "100000", ranks=RANKS)


if __name__ == "__main__":
    unittest.main()
