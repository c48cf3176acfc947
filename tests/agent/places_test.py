"""A job is on the devices that were named, and on no other: however it has come there, and also if it uses them only later."""

import os
import time
import unittest

from agents import AgentNodes, OperationFailed, built
from moving_job import MovingJob, Sample

DEVICES = ["--gpus", "4", "--memory", "512MiB"]
REST = ["--pace-ms", "200"]  # each step; nobody waits for the end
ALONE = Sample("vector", "--rounds", "100000", "--elements", str(1 << 12), *REST)
RANKED = Sample("ddp_train", "--steps", "100000", *REST, ranks=2)
SECONDS = 60


class Late(Sample):
    """Looks at devices once its file is there."""

    def __init__(self, folder, number):
        super().__init__("vector", *ALONE.options, label=f"late-{number}")
        self.file = os.path.join(folder, self.name)

    def command(self):
        wait = f"until test -e {self.file}; do sleep 0.02; done; exec {built('samples/vector')} {' '.join(self.options)}"
        return ["/bin/sh", "-c", "echo waits; " + wait]


class Places(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(left=DEVICES, right=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.nodes.start_agents()
        cls.left, cls.right = cls.nodes["left"], cls.nodes["right"]

    def used(self):
        """(node, ordinal) of each device on which somebody has something."""
        return [(name, device["index"]) for name in ("left", "right") for device in self.nodes[name].devices()
                if device["pids"] or device["memory_used"]]

    def check(self, node, gpus):
        """Once what was elsewhere has gone: a guardian ends after its ghost, and nothing tells when."""
        wanted, give_up = [(node, gpu) for gpu in gpus], time.monotonic() + SECONDS
        while (used := self.used()) != wanted and time.monotonic() < give_up:
            time.sleep(0.02)
        self.assertEqual(used, wanted)

    def end(self, job):
        for node in self.nodes.nodes.values():
            if any(node.live(task) for task in job.tasks):
                node.agent.call("cancel", job=job.name)

    def carry(self, sample, pauses, gpus):
        """There and back and into an image, each time to other devices."""
        job = MovingJob(self.nodes, sample, f"{sample.name}-{'held' if pauses else 'runs'}", "left").start(gpus=gpus[0])
        self.addCleanup(self.end, job)
        self.check("left", gpus[0])
        for source, target, places in ((self.left, self.right, gpus[1]), (self.right, self.left, gpus[2])):
            if pauses:
                source.agent.call("pause", job=job.name, residency="host")
                self.check(source.name, [])
            job.migrate(target.name, gpus=places)
            self.check(target.name, places)
        self.left.agent.call("pause", job=job.name, residency="host")
        self.left.agent.call("resume", job=job.name, gpus=gpus[3])
        self.check("left", gpus[3])
        self.left.agent.call("checkpoint", job=job.name, stop=True)
        self.left.agent.call("restore", job=job.name, gpus=gpus[0])
        self.check("left", gpus[0])
        self.left.agent.call("cancel", job=job.name)
        self.check("left", [])

    def test_a_task(self):
        for pauses in (True, False):
            with self.subTest(pauses=pauses):
                self.carry(ALONE, pauses, ([1], [2], [3], [0]))

    def test_ranks(self):
        for pauses in (True, False):
            with self.subTest(pauses=pauses):
                self.carry(RANKED, pauses, ([0, 1], [2, 3], [1, 2], [0, 3]))

    def test_a_program_that_has_not_looked_at_devices_yet(self):
        def resumed(job):
            self.left.agent.call("pause", job=job.name, residency="host")
            self.left.agent.call("resume", job=job.name, gpus=[2])
            return "left"

        def restored(job):
            self.left.agent.call("checkpoint", job=job.name, stop=True)
            self.left.agent.call("restore", job=job.name, gpus=[2])
            return "left"

        def moved(job):
            job.migrate("right", gpus=[2])
            return "right"

        def moved_while_it_was_paused(job):
            self.left.agent.call("pause", job=job.name, residency="host")
            return moved(job)

        for number, carry in enumerate((resumed, restored, moved, moved_while_it_was_paused)):
            with self.subTest(carry.__name__):
                sample = Late(self.nodes.folder, number)
                sample.first_words = "waits"
                job = MovingJob(self.nodes, sample, sample.name, "left").start(gpus=[1])
                self.addCleanup(self.end, job)
                node = self.nodes[carry(job)]
                self.check(node.name, [])
                with open(sample.file, "w", encoding="utf-8"):
                    pass
                node.agent.wait_for_output(job.name, ALONE.first_words)
                self.check(node.name, [2])
                node.agent.call("pause", job=job.name, residency="host")
                node.agent.call("resume", job=job.name, gpus=[3])
                self.check(node.name, [3])
                node.agent.call("cancel", job=job.name)

    def test_who_is_paused_before_it_has_looked_at_devices_does_not_begin_to_while_it_is_moved(self):
        for number, verb in enumerate(("migrate", "checkpoint")):
            with self.subTest(verb):
                sample = Late(self.nodes.folder, f"eager-{number}")
                sample.first_words = "waits"
                job = MovingJob(self.nodes, sample, sample.name, "left").start(gpus=[1])
                self.addCleanup(self.end, job)
                self.left.agent.call("pause", job=job.name, residency="host")
                with open(sample.file, "w", encoding="utf-8"):
                    pass
                node = self.left
                if verb == "migrate":
                    node = self.right
                    job.migrate("right", gpus=[2])
                else:
                    node.agent.call("checkpoint", job=job.name)
                    self.check("left", [])
                    node.agent.call("resume", job=job.name, gpus=[2])
                node.agent.wait_for_output(job.name, ALONE.first_words)
                self.check(node.name, [2])
                node.agent.call("cancel", job=job.name)

    def test_a_device_that_is_not_there_is_refused_also_to_who_has_not_looked_yet(self):
        sample = Late(self.nodes.folder, "refused")
        sample.first_words = "waits"
        job = MovingJob(self.nodes, sample, sample.name, "left").start(gpus=[1])
        self.addCleanup(self.end, job)
        self.left.agent.call("pause", job=job.name, residency="host")
        for gpus, words in (([9], "no device 9"), ([2, 3], "2 are named")):
            with self.assertRaises(OperationFailed) as failed:
                self.left.agent.call("resume", job=job.name, gpus=gpus)
            self.assertIn(words, failed.exception.result["message"])
        with self.assertRaises(OperationFailed) as failed:
            job.migrate("right", gpus=[2, 3])
        self.assertIn("2 named", failed.exception.result["message"])
        self.left.agent.call("resume", job=job.name)


if __name__ == "__main__":
    unittest.main()
