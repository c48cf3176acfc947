"""A job under a schedule fails again and again: it comes back from its last image each time, loses no more than an interval and
what a checkpoint takes, and prints in the end what it prints undisturbed."""

import json
import os
import random
import signal
import threading
import time
import unittest

import grpc

from agents import AgentNodes, op, pb
from moving_job import CONDITION, MovingJob, Sample

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
INTERVAL = 20.0 if FULL else 1.5
FAILURES = 10 if FULL else 2
KEEP = 2
# From when an interval has ended to when the checkpoint is begun, and from a line to its place in the log: a machine with more
# to do than it can. Of a short interval it may be many times that.
SLACK = 1.0 if FULL else 30.0
PACE_MS = 40 if FULL else 120
# That rest for longer than all failures take; until then, see MovingJob.finish().
STEPS = int((3 if FULL else 18) * FAILURES * INTERVAL * 1000 / (PACE_MS / 2))
PACED = ["--steps", str(STEPS), "--log-every", "5", "--pace-ms", str(PACE_MS)]

RUNNING, EXITED, BROKEN, KILLED = map(CONDITION, ("CONDITION_RUNNING", "CONDITION_EXITED", "CONDITION_BROKEN", "CONDITION_KILLED"))


class Course(threading.Thread):
    """When which part of a log was written, from `offset` on: while the program runs, of one life of it."""

    def __init__(self, agent, job, offset):
        super().__init__(daemon=True)
        self.parts = []  # (offset of the end, time)
        self.failure = None
        self.stream = agent.stub.Logs(pb.LogsRequest(name=job, offset=offset, follow=True))
        self.end = offset
        self.start()

    def run(self):
        try:
            for chunk in self.stream:
                self.end = chunk.offset + len(chunk.data)
                self.parts.append((self.end, time.time()))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                self.failure = error

    def stop(self):
        self.stream.cancel()
        self.join()
        if self.failure:
            raise self.failure

    def written_after(self, offset):
        """When the first byte beyond `offset` was there; None: it was not."""
        return next((when for end, when in self.parts if end > offset), None)


class Drill(unittest.TestCase):
    def setUp(self):
        self.chance = random.Random(SEED)
        nodes = AgentNodes(a=["--gpus", "2", "--memory", "512MiB"]).__enter__()
        self.addCleanup(nodes.__exit__, None, None, None)
        self.nodes, self.node = nodes, nodes["a"]
        self.agent = self.node.start_agent()

    def schedule(self, name):
        return self.agent.stub.ListSchedules(pb.ListSchedulesRequest(job=name), timeout=60).schedules[0]

    def schedule_in(self, name, state):
        """The schedule once it is in that state."""
        give_up = time.monotonic() + 120
        while (schedule := self.schedule(name)).state != state and time.monotonic() < give_up:
            time.sleep(0.05)  # nothing tells when a schedule has seen what the agent has told of the job
        self.assertEqual(schedule.state, state)
        return schedule

    def operations(self, name, verb):
        """Newest first."""
        found = self.agent.stub.ListOperations(op.ListOperationsRequest(job=name, limit=1000), timeout=60).operations
        return [operation for operation in found if operation.verb == verb]

    def begin(self, sample):
        rules = pb.Schedule(interval_ms=int(INTERVAL * 1000), keep_last=KEEP, max_restarts=2, restart_backoff_ms=100)
        job = MovingJob(self.nodes, sample, "drill", "a")
        env = {"PATH": os.environ["PATH"], "SOFTGPU_SOCKET": self.node.socket, "SOFTGPU_AUTOSTART": "0",
               "PACE_UNTIL": job.hurry_file}
        self.agent.call("run", name=job.name, argv=sample.command(), folder="/", device="soft", ranks=sample.ranks, schedule=rules,
                        environment=[f"{key}={value}" for key, value in env.items()])
        self.assertEqual(self.schedule(job.name).state, "watching")
        return job

    def kill(self, job):
        """One of its programs, whichever. When."""
        victim = self.chance.choice(self.agent.job(job.name).ranks)
        self.assertGreater(victim.pid, 0, f"{victim.task} has ended too early")
        when = time.time()
        os.kill(victim.pid, signal.SIGKILL)
        return when

    def await_restart(self, job, before):
        """The restore, which brings it back without being asked."""
        self.agent.wait_for_job(job.name, lambda now: now.condition in (BROKEN, KILLED) or
                                (now.condition == RUNNING and now.ranks[0].pid != before))
        self.agent.wait_for_job(job.name, lambda now: now.condition == RUNNING and now.ranks[0].pid != before)
        restore = self.operations(job.name, "restore")[0]
        return self.agent.finish(restore)

    def newest_image(self, job, restore):
        """Of those that were whole when the restore was begun."""
        return max((json.loads(operation.result_json)["image"] for operation in self.operations(job.name, "checkpoint")
                    if operation.state == op.OPERATION_STATE_SUCCEEDED and operation.ended_ms < restore.started_ms), default="")

    def longest_checkpoint(self, job, killed):
        """Seconds; of one that the failure fell into, what it had taken until then."""
        ends = [(operation.started_ms / 1000, operation.ended_ms / 1000) for operation in self.operations(job.name, "checkpoint")
                if operation.started_ms]
        return max(min(end or killed, killed) - start if start < killed else 0 for start, end in ends)

    def fail_once(self, job, course):
        """Until it runs again. The course of its next life."""
        time.sleep(self.chance.uniform(0, 1.5) * INTERVAL)
        pid = self.agent.job(job.name).ranks[0].pid
        killed = self.kill(job)
        restore = self.await_restart(job, pid)
        result = json.loads(restore.result_json)
        kept = (result["ranks"][0] if job.sample.ranks else result)["log_length"]
        course.stop()
        since = course.written_after(kept)
        lost = killed - since if since else 0.0
        cost = self.longest_checkpoint(job, killed)
        print(f"killed: image {result['image']} lost {lost:.2f} s of work; interval {INTERVAL} s, checkpoint {cost:.2f} s",
              flush=True)
        self.assertEqual(restore.actor, "restart")
        self.assertGreaterEqual(result["image"], self.newest_image(job, restore))
        self.assertLessEqual(lost, INTERVAL + cost + SLACK)
        return Course(self.agent, job.name, kept), result["image"]

    def check_images(self, job):
        """As many of the schedule's as are to be kept."""
        made = len([1 for operation in self.operations(job.name, "checkpoint") if operation.state == op.OPERATION_STATE_SUCCEEDED])
        self.assertGreaterEqual(made, FAILURES)
        give_up = time.monotonic() + 120
        while True:  # nothing tells when they have been removed
            there = self.agent.stub.Images(pb.ImagesRequest(job=job.name), timeout=60).images
            if len(there) <= KEEP or time.monotonic() > give_up:
                break
            time.sleep(0.05)
        self.assertEqual(len(there), min(KEEP, made))
        self.assertEqual([image.damage for image in there], [""] * len(there))

    def drill(self, sample):
        expected = threading.Thread(target=sample.expected)
        expected.start()
        job = self.begin(sample)
        course = Course(self.agent, job.name, 0)
        image = ""
        for _ in range(FAILURES):
            # It must have got somewhere, or it were given up.
            self.agent.wait_for_job(job.name, lambda now, last=image: now.last_image > last or now.condition == EXITED)
            course, image = self.fail_once(job, course)
        job.hurry()
        self.agent.wait_for_job(job.name, lambda now: now.condition == EXITED)
        course.stop()
        expected.join()
        self.assertEqual(job.finish(), (0, sample.expected()))
        schedule = self.schedule_in(job.name, "ended")
        self.assertEqual((schedule.restarts, schedule.next_ms), (FAILURES, 0))
        self.assertGreater(schedule.measured_cost_ms, 0)
        self.check_images(job)

    def test_a_task_that_is_killed_again_and_again_finishes(self):
        self.drill(Sample("mlp_train", *PACED, "--batch", "8", "--width", "32"))

    def test_so_does_a_job_whose_ranks_are(self):
        self.drill(Sample("ddp_train", *PACED, ranks=2))


if __name__ == "__main__":
    unittest.main()
