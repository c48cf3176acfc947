#!/usr/bin/env python3
"""What the driver says of memory is the same without the interposer, with it, and after a pause."""

import os
import subprocess
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task


class MemoryCase(unittest.TestCase):
    maxDiff = 4000
    gives_back = False  # the first pause finds memory that is only kept

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "1GiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def start(self, mode, **extra):
        process = subprocess.Popen([built("tests/programs/memory_answers"), mode], env=self.node.env(**extra),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=die_with_parent)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_task(self, mode, **extra):
        return self.start(mode, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder,
                          STASIS_DRIVER=self.driver, **extra)

    @staticmethod
    def until_ready(process):
        lines = []
        while not lines or lines[-1] != "ready\n":
            lines.append(process.stdout.readline())
            assert lines[-1], "the program has ended"
        return "".join(lines)

    def finish(self, process):
        rest, _ = process.communicate("\n", timeout=120)
        self.assertEqual(process.returncode, 0)
        return rest

    def answers(self, process, between=lambda: None):
        first = self.until_ready(process)
        between()
        return first + self.finish(process)

    def paused_answers(self, mode, strategy=RECONSTRUCT, placements=(), pauses=2, **extra):
        process = self.start_task(mode, **extra)
        task = self.enterContext(wait_for_task(self.folder, process.pid))

        def used():
            return [device["memory_used"] for device in self.node.devices()]

        def pause():
            before = used()
            descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
            for number in range(pauses):
                extents = task.pause(strategy)
                task.unpause(extents, self.driver, placements)
                if number == 0 and self.gives_back:
                    self.assertLess(sum(used()), sum(before))
                    before = used()
            if not placements:
                self.assertEqual(used(), before)
            self.assertEqual(len(os.listdir(f"/proc/{process.pid}/fd")), descriptors)

        return self.answers(process, pause)


class Answers:
    """What holds of every mode of the program."""

    def test_answers_are_the_drivers_own(self):
        plain = self.answers(self.start(self.mode))
        self.assertEqual(self.answers(self.start_task(self.mode)), plain)

    def test_answers_are_the_same_after_a_pause(self):
        plain = self.answers(self.start(self.mode))
        self.assertEqual(self.paused_answers(self.mode), plain)

    def test_answers_are_the_same_on_other_devices(self):
        plain = self.answers(self.start(self.mode))
        self.assertEqual(self.paused_answers(self.mode, placements=[(0, 1), (1, 0)]), plain)

    def test_answers_are_the_same_when_the_driver_kept_its_objects(self):
        plain = self.answers(self.start(self.mode))
        self.assertEqual(self.paused_answers(self.mode, DRIVER_CHECKPOINT), plain)


class PlainMemory(Answers, MemoryCase):
    mode = "plain"


class Pools(Answers, MemoryCase):
    mode = "pools"
    gives_back = True

    def test_answers_are_the_same_after_a_hundred_pauses(self):
        plain = self.answers(self.start(self.mode))
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            self.assertEqual(self.paused_answers(self.mode, strategy, pauses=100), plain)


class HostMemory(Answers, MemoryCase):
    mode = "host"


class ManagedMemory(MemoryCase):

    def test_managed_memory_on_the_host_is_managed_memory(self):
        plain = self.answers(self.start("managed"))
        self.assertEqual(self.paused_answers("managed", STASIS_MANAGED="host"), plain)

    def test_managed_memory_of_the_driver_is_refused_by_name(self):
        process = self.start_task("managed", STASIS_MANAGED="refuse")
        task = self.enterContext(wait_for_task(self.folder, process.pid))
        self.until_ready(process)
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            task.quiesce()
            with self.assertRaises(TaskError) as raised:
                task.release(strategy)
            self.assertEqual(raised.exception.code, "UNSUPPORTED")
            self.assertIn("cuMemAllocManaged", raised.exception.message)
            task.go_on()
        self.assertIn("device sees", self.finish(process))


if __name__ == "__main__":
    unittest.main()
