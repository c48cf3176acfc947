"""A node is lost, or is not heard any more, in the moment in which a job is handed over to it: nobody can say whether it runs
there. Who cancels the job, or takes it back, decides; everybody else is told why he would have to wait; and what the node has of it
ends as soon as it is heard of again."""

import json
import unittest

from agents import AgentNodes, HeldCriu, OperationFailed, op
from moving_job import CONDITION, MovingJob, Sample

DEVICES = ["--gpus", "2", "--memory", "512MiB"]
# Rests for much longer than a test takes; see MovingJob.finish().
PACED = Sample("mlp_train", "--steps", "600", "--pace-ms", "1000", "--batch", "8", "--width", "32", "--log-every", "2")
RANKED = Sample("ddp_train", "--steps", "600", "--pace-ms", "1000", "--log-every", "2", ranks=2)
SECONDS = 240


class LostTarget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(rate=400_000_000, delay=0.001, left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.criu = HeldCriu(cls.nodes["right"])
        cls.nodes.start_agents()

    def setUp(self):
        self.left, self.right = self.nodes["left"], self.nodes["right"]
        self.addCleanup(self.set_right)

    def set_right(self):
        """For the next test, whatever this one has left."""
        self.criu.let_go()
        self.nodes.join()
        for node in (self.left, self.right):
            if not node.agent:
                node.start_agent()
        for node in (self.left, self.right):
            for job in node.agent.jobs().values():
                if job.live:
                    node.agent.call("cancel", job=job.name)
        for node in (self.left, self.right):
            for job in node.agent.jobs().values():
                node.agent.call("remove", job=job.name, images=True)

    def start(self, sample=PACED):
        return MovingJob(self.nodes, sample, self.id().rsplit(".test_", 1)[1][:40], "left").start()

    def hand_over(self, job):
        """A migration to the right, which is just restoring it, and does not come to an end of that until it is let go."""
        self.criu.hold("restore")
        begun = self.left.agent.begin("migrate", job=job.name, node=self.right.peer, precopy="never")
        for told in self.left.agent.stub.WatchOperation(op.WatchOperationRequest(id=begun.id), timeout=SECONDS):
            self.assertIn(told.state, (op.OPERATION_STATE_QUEUED, op.OPERATION_STATE_RUNNING), told)
            if told.phase == "hand over":
                self.criu.await_held(len(job.tasks))
                return begun
        raise AssertionError("it was not handed over")

    def lose_right(self):
        self.right.lose()
        self.criu.let_go()

    def cut_off(self, job):
        """The right runs it, and cannot say so."""
        begun = self.hand_over(job)
        self.nodes.cut("right")
        self.criu.let_go()
        self.right.agent.wait_for_job(job.name, lambda now: now.condition == CONDITION("CONDITION_RUNNING"), SECONDS)
        told = self.left.agent.stub.GetOperation(op.GetOperationRequest(id=begun.id), timeout=SECONDS)
        self.assertEqual(told.state, op.OPERATION_STATE_RUNNING, told)
        return begun

    def ended(self, begun, words):
        ended = self.left.agent.wait(begun.id, SECONDS)
        self.assertEqual(ended.state, op.OPERATION_STATE_FAILED, ended)
        self.assertIn(words, json.loads(ended.result_json)["message"])

    def check_right_lets_go(self, job):
        self.right.agent.wait_for_job(job.name, lambda now: not now.live, SECONDS)
        told = self.right.agent.wait_for_job(job.name, lambda now: now.moved_to == "left", SECONDS)
        self.assertEqual(told.condition, CONDITION("CONDITION_MIGRATED"), told)

    def finish(self, job):
        job.at = "left"
        self.assertEqual(job.finish(), (0, job.sample.expected()))

    def take_back(self, sample):
        job = self.start(sample)
        begun = self.hand_over(job)
        self.lose_right()
        self.left.agent.call("restore", job=job.name, take_back=True)
        self.ended(begun, "restore")
        self.assertEqual(job.live_on(), {"left": job.tasks})
        self.right.start_agent()
        self.finish(job)

    def test_a_task_is_taken_back_of_a_node_that_is_lost(self):
        self.take_back(PACED)

    def test_so_is_a_job_of_ranks(self):
        self.take_back(RANKED)

    def test_who_does_not_decide_is_told_why(self):
        job = self.start()
        begun = self.hand_over(job)
        self.lose_right()
        waits = self.left.agent.begin("checkpoint", job=job.name)
        for later in (waits, None):
            with self.assertRaises(OperationFailed) as failed:
                self.left.agent.finish(later or self.left.agent.begin("resume", job=job.name), SECONDS)
            result = failed.exception.result
            self.assertIn("which does not say whether it runs there", result["message"])
            self.assertIn(f"stasis restore --take-back {job.name}", result["remedy"])
            self.assertEqual(result["left"], "unchanged")
        # The node is back after all, and says what it knows.
        self.right.start_agent()
        self.left.agent.wait(begun.id, SECONDS)
        live = job.live_on()
        self.assertEqual(len(live), 1, live)
        self.left.agent.wait_for_job(job.name, lambda now: not now.operation, SECONDS)
        (job.at, _), = live.items()
        self.assertEqual(job.finish(), (0, job.sample.expected()))

    def test_who_cancels_it_ends_it_everywhere(self):
        job = self.start()
        begun = self.cut_off(job)
        self.left.agent.call("cancel", job=job.name)
        self.ended(begun, "cancel")
        self.assertEqual(job.live_on(), {"right": job.tasks})
        self.nodes.join()
        self.check_right_lets_go(job)
        self.assertEqual(job.live_on(), {})

    def test_a_node_that_runs_it_lets_go_of_what_was_taken_back(self):
        job = self.start()
        begun = self.cut_off(job)
        self.left.agent.call("restore", job=job.name, take_back=True)
        self.ended(begun, "restore")
        self.left.kill_agent()  # the next one knows what is owed
        self.left.start_agent()
        self.nodes.join()
        self.check_right_lets_go(job)
        self.assertEqual(job.live_on(), {"left": job.tasks})
        self.finish(job)

    def test_an_order_outlives_the_agent(self):
        job = self.start()
        begun = self.hand_over(job)
        self.lose_right()
        order = self.left.agent.begin("restore", job=job.name, take_back=True)
        self.left.kill_agent()
        self.left.start_agent()
        self.left.agent.finish(order, SECONDS)
        self.ended(begun, "restore")
        self.assertEqual(job.live_on(), {"left": job.tasks})
        self.finish(job)


if __name__ == "__main__":
    unittest.main()
