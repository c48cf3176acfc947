"""Images that are copied to another node beforehand: a job comes back there when its own node is gone, and ends as if nothing had
been."""

import contextlib
import itertools
import json
import os
import random
import signal
import time
import unittest

from agents import AgentNodes, OperationFailed, grpc, op, pb
from moving_job import CONDITION, MovingJob, Sample

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
KILLS = 20 if FULL else 1  # of each agent
LENGTH = 20 if FULL else 1
RANKS = 2

DEVICES = ["--gpus", str(RANKS), "--memory", "512MiB"]
RATE, DELAY = 400_000_000, 0.001

# Longer than any test takes, unless they are told to hurry (MovingJob.finish()).
MLP = ["--steps", str(200 * LENGTH), "--batch", "32", "--width", "32", "--log-every", "1", "--pace-ms", "2000"]
ALONE = Sample("mlp_train", *MLP)
RANKED = Sample("ddp_train", "--steps", str(100 * LENGTH), "--log-every", "1", "--pace-ms", "3000", ranks=RANKS)
# Device memory that takes a while on the way.
LARGE = Sample("mlp_train", *MLP, "--pool", "200", label="large")

NUMBERS = itertools.count(1)


class OnTwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(rate=RATE, delay=DELAY, left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.nodes.start_agents()
        cls.left, cls.right = cls.nodes["left"], cls.nodes["right"]

    def start(self, sample, at="left"):
        job = MovingJob(self.nodes, sample, f"{sample.name}-{next(NUMBERS)}", at).start()
        self.addCleanup(self.forget, job)
        return job

    def forget(self, job):
        for node in self.nodes.nodes.values():
            if node.agent and node.agent.job(job.name):
                if any(node.live(task) for task in job.tasks):
                    node.agent.call("cancel", job=job.name)
                node.agent.call("remove", job=job.name, images=True)

    def image(self, job):
        """Of the running job; its id."""
        operation = self.nodes[job.at].agent.call("checkpoint", job=job.name)
        return json.loads(operation.result_json)["image"]

    def begin(self, job, **fields):
        return self.left.agent.begin("copyImage", job=job.name, **{"node": self.right.peer, **fields})

    def copy(self, job, **fields):
        """What the operation says."""
        return json.loads(self.left.agent.finish(self.begin(job, **fields)).result_json)

    def images(self, node, job):
        """Ids, oldest first."""
        found = node.agent.stub.Images(pb.ImagesRequest(job=job.name), timeout=120).images
        self.assertFalse([image.damage for image in found if image.damage])
        return sorted(image.id for image in found)

    def restore(self, job, at, **fields):
        self.nodes[at].agent.call("restore", job=job.name, **fields)
        job.at = at

    def check_end(self, job):
        status, lines = job.finish()
        self.assertEqual((status, lines), (0, job.sample.expected()))

    def check_kept(self, job, node):
        """It is on record there, has ended, and can be restored."""
        told = node.agent.job(job.name)
        self.assertEqual((told.condition, told.ended_by, told.live), (CONDITION("CONDITION_CHECKPOINTED"), "import", False), told)
        self.assertEqual(told.last_image, self.images(node, job)[-1])


class TheNodeDies(OnTwoNodes):
    """With all that runs on it."""

    def test_jobs_come_back_elsewhere(self):
        jobs = [self.start(ALONE), self.start(RANKED)]
        for job in jobs:
            self.image(job)
            status, told, words = self.left.stasis("images copy", job.name, "--to", self.right.peer)
            self.assertEqual((status, told["node"], told["copy"]), (0, "right", "000001"), (told, words))
            self.check_kept(job, self.right)
        for pid in self.left.processes():
            if pid != self.left.keeper.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.left.stasisd.wait()
        self.left.forget_agent()
        for job in jobs:
            self.restore(job, "right")
            self.check_end(job)
        self.assertFalse(any(self.right.memory_in_the_end()))


class Copies(OnTwoNodes):
    def test_the_newest_is_restored_and_older_ones_go(self):
        job = self.start(ALONE)
        for number in range(1, 4):
            self.nodes["left"].agent.wait_for_output(job.name, f"\nstep {2 * number} ")
            image = self.image(job)
            told = self.copy(job)
            self.assertEqual((told["image"], told["copy"]), (image, f"00000{number}"), told)
        self.check_kept(job, self.right)
        self.assertEqual(self.images(self.right, job), ["000002", "000003"])
        self.assertEqual(self.copy(job)["copy"], "000003")  # that it has already
        with self.assertRaises(OperationFailed) as older:
            self.copy(job, image="000001")
        self.assertIn("a newer image", older.exception.result["message"])
        self.left.agent.call("cancel", job=job.name)
        self.restore(job, "right")
        self.assertIn("\nstep 6 ", job.output())
        self.check_end(job)

    def test_a_migration_takes_the_place_of_copies(self):
        for sample in (ALONE, RANKED) if FULL else (RANKED,):
            with self.subTest(sample.name):
                job = self.start(sample)
                self.image(job)
                self.copy(job)
                job.migrate("right")
                self.assertEqual(job.live_on(), {"right": job.tasks})
                self.assertEqual(len(self.images(self.right, job)), 1)  # what it came with
                # And back, as a copy.
                self.image(job)
                self.right.agent.call("copyImage", job=job.name, node=self.left.peer)
                self.check_kept(job, self.left)
                self.right.agent.call("cancel", job=job.name)
                self.restore(job, "left")
                self.check_end(job)

    def test_the_job_is_not_kept_waiting(self):
        job = self.start(LARGE)
        self.image(job)
        self.nodes.network(rate=20_000_000)
        self.addCleanup(self.nodes.network, rate=RATE)
        operation = self.begin(job)
        self.wait_until_it_sends(self.left, operation)
        self.left.agent.call("pause", job=job.name)
        self.left.agent.call("resume", job=job.name)
        self.assertEqual(self.state(operation), op.OPERATION_STATE_RUNNING)
        self.left.agent.stub.CancelOperation(op.CancelOperationRequest(id=operation.id), timeout=120)
        self.assertEqual(self.left.agent.wait(operation.id).state, op.OPERATION_STATE_CANCELLED)
        self.assertIsNone(self.right.agent.job(job.name))
        self.assertEqual(self.images(self.right, job), [])

    def test_asked_for_twice_is_once_and_an_old_scheduler_is_refused(self):
        job = self.start(ALONE)
        self.image(job)
        change = {"idempotency_key": "copy-1", "fence": 7}
        first = self.begin(job, change=change)
        self.left.agent.finish(first)
        self.assertEqual(self.begin(job, change=change).id, first.id)
        with self.assertRaises(grpc.RpcError) as refused:
            self.begin(job, change={"fence": 6})
        self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)

    def state(self, operation):
        return self.left.agent.stub.GetOperation(op.GetOperationRequest(id=operation.id), timeout=120).state

    def wait_until_it_sends(self, node, operation):
        for told in node.agent.stub.WatchOperation(op.WatchOperationRequest(id=operation.id), timeout=300):
            if told.phase == "send" and told.done_bytes > 0:
                return
        self.fail("it has ended before")


class Refused(OnTwoNodes):
    def refused(self, job, *words, **fields):
        with self.assertRaises(OperationFailed) as failed:
            self.copy(job, **fields)
        for word in words:
            self.assertIn(word, failed.exception.result["message"])
        self.assertEqual(failed.exception.result["left"], "unchanged")

    def test_with_the_reason(self):
        job = self.start(ALONE)
        self.refused(job, "no image")
        self.image(job)
        self.refused(job, "000009", image="000009")
        self.refused(job, "where the image is", node=self.left.peer)
        self.refused(job, "10.77.0.99", node="10.77.0.99:7443")
        self.right.agent.run(job.name, ["/bin/sleep", "600"], {"SOFTGPU_SOCKET": self.right.socket})
        self.refused(job, "another task", job.name)
        self.right.agent.call("cancel", job=job.name)
        self.right.agent.call("remove", job=job.name)
        # Devices that are busy now are no reason.
        holder = MovingJob(self.nodes, Sample("mlp_train", "--steps", "100000", "--batch", "8", "--width", "32", "--pace-ms", "200",
                                              "--pool", "450", devices=RANKS), "holder", "right").start()
        self.addCleanup(self.forget, holder)
        self.copy(job)
        self.right.agent.call("cancel", job="holder")
        self.left.agent.call("cancel", job=job.name)
        self.restore(job, "right")
        self.left.agent.call("restore", job=job.name)
        self.image(job)
        self.left.agent.call("checkpoint", job=job.name)
        self.refused(job, job.name, "running")


class Killed(OnTwoNodes):
    """Either agent, in the midst of a copy."""

    def kill_in_between(self, job, victim):
        """At some moment of it."""
        operation = self.begin(job)
        time.sleep(self.random.uniform(0, 1.5))
        victim.kill_agent()
        victim.start_agent()
        return operation

    def check_whole_or_nothing(self, job):
        status, told, words = self.right.stasis("images verify")
        self.assertEqual(status, 0, (told, words))
        if self.images(self.right, job):
            self.check_kept(job, self.right)
        else:
            self.assertIsNone(self.right.agent.job(job.name))

    def test_at_any_moment(self):
        print("seed", SEED)
        self.random = random.Random(SEED)
        for sample in (LARGE, RANKED) if FULL else (LARGE,):
            job = self.start(sample)
            for _ in range(KILLS):
                self.image(job)
                operation = self.kill_in_between(job, self.left)
                self.assertEqual(self.left.agent.wait(operation.id).state, op.OPERATION_STATE_SUCCEEDED)
                self.check_kept(job, self.right)
                self.right.agent.call("remove", job=job.name, images=True)
                self.image(job)
                operation = self.kill_in_between(job, self.right)
                ended = self.left.agent.wait(operation.id)
                self.check_whole_or_nothing(job)
                if ended.state == op.OPERATION_STATE_FAILED:
                    self.assertEqual(json.loads(ended.result_json)["left"], "unchanged")
                self.copy(job)
                self.check_kept(job, self.right)
            self.left.agent.call("cancel", job=job.name)
            self.restore(job, "right")
            self.check_end(job)

    def test_the_source_does_not_come_back(self):
        job = self.start(LARGE)
        self.image(job)
        self.nodes.network(rate=40_000_000)
        self.addCleanup(self.nodes.network, rate=RATE)
        operation = self.begin(job)
        for told in self.left.agent.stub.WatchOperation(op.WatchOperationRequest(id=operation.id), timeout=300):
            if told.phase == "send" and told.done_bytes > told.total_bytes / 4:
                break
        self.left.kill_agent()
        self.nodes.network(rate=RATE)
        self.assertIsNone(self.right.agent.job(job.name))
        self.right.kill_agent()
        self.right.start_agent()
        status, told, words = self.right.stasis("images gc")
        self.assertEqual((status, told["bytes_after"]), (0, 0), (told, words))
        self.assertIsNone(self.right.agent.job(job.name))
        self.left.start_agent()
        self.assertEqual(self.left.agent.wait(operation.id).state, op.OPERATION_STATE_SUCCEEDED)
        self.check_kept(job, self.right)


class Encrypted(OnTwoNodes):
    """Each node has a key of its own; its agent has the identity of it."""

    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(rate=RATE, delay=DELAY, left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.left, cls.right = cls.nodes["left"], cls.nodes["right"]
        cls.keys = {}
        for node in (cls.left, cls.right):
            identity = os.path.join(node.run_dir, "identity")
            status, told, words = node.stasis("images keygen", identity)
            assert status == 0, (told, words)
            cls.keys[node.name] = told["id"]
            status, told, words = node.stasis("images encrypt-to", told["public_key"])
            assert status == 0, (told, words)
            node.agent_env["STASIS_IDENTITY"] = identity
        cls.nodes.start_agents()

    def check_encrypted(self, node, job):
        """As who has no identity sees it."""
        status, told, words = node.stasis("images ls")
        self.assertEqual(status, 0, words)
        keys = {image["encrypted_to"] for image in told["images"] if image["task"] in (job.name, *job.tasks)}
        self.assertEqual(keys, {self.keys[node.name]}, told)
        status, told, words = node.stasis("images verify")
        self.assertEqual((status, told["damages"], told["sealed_images"]), (0, [], told["images"]), words)

    def test_copies_and_moves_are_encrypted_for_the_node_they_are_on(self):
        job = self.start(RANKED)
        self.image(job)
        told = self.copy(job)
        self.assertEqual(told["copy"], "000001", told)
        self.assertEqual(self.copy(job)["copy"], "000001")  # that it has already
        self.check_encrypted(self.left, job)
        self.check_encrypted(self.right, job)
        job.migrate("right")
        self.assertEqual(job.live_on(), {"right": job.tasks})
        self.image(job)
        self.check_encrypted(self.right, job)
        self.check_end(job)

    def test_without_an_identity_images_are_written_and_not_restored(self):
        job = self.start(ALONE)
        self.left.stop_agent()
        identity = self.left.agent_env.pop("STASIS_IDENTITY")
        self.addCleanup(self.left.agent_env.update, STASIS_IDENTITY=identity)
        self.left.start_agent()
        self.image(job)
        for verb, fields in (("migrate", {"node": self.right.peer}), ("copyImage", {"node": self.right.peer})):
            with self.assertRaises(OperationFailed) as refused:
                self.left.agent.call(verb, job=job.name, **fields)
            self.assertEqual(refused.exception.result["code"], "PERMISSION_DENIED", refused.exception.result)
            self.assertIn(self.keys["left"], refused.exception.result["message"])
            self.assertEqual(job.live_on(), {"left": job.tasks})
        self.left.stop_agent()
        self.left.agent_env["STASIS_IDENTITY"] = identity
        self.left.start_agent()
        self.check_end(job)


if __name__ == "__main__":
    unittest.main()
