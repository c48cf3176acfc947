#!/usr/bin/env python3
"""Kernels that know textures and surfaces by numbers in device memory find them after pauses, in place and on another
device; what is destroyed leaves nothing behind."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, wait_for_task

STEPS = 12


class Program:

    def __init__(self, case, **extra):
        self.process = subprocess.Popen([built("tests/programs/textures")], env=case.node.env(**extra), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        assert self.process.stdout.readline() == "ready\n"

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self):
        rest, _ = self.process.communicate("q\n", timeout=60)
        return rest, self.process.returncode

    def close(self):
        self.process.kill()
        self.process.communicate()


class TexturesTest(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "256MiB"))
        self.driver = built("lib/softgpu/libcuda.so.1")
        program = Program(self)
        self.undisturbed = [program.step() for _ in range(STEPS)]
        self.assertEqual(program.end(), ("done\n", 0))
        self.assertIn("objects", self.undisturbed[-1])

    def start(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        program = Program(self, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder, STASIS_DRIVER=self.driver)
        return program, self.enterContext(wait_for_task(folder, program.process.pid))

    def paused(self, strategy, placements=lambda _: ()):
        program, task = self.start()
        answers = []
        for step in range(STEPS):
            task.unpause(task.pause(strategy), self.driver, placements(step))
            answers.append(program.step())
        self.assertEqual(program.end(), ("done\n", 0))
        self.assertEqual(answers, self.undisturbed)

    def test_rebuilt_before_every_step(self):
        self.paused(RECONSTRUCT)

    def test_carried_by_the_driver(self):
        self.paused(DRIVER_CHECKPOINT)

    def test_moved_to_the_other_device_at_every_step(self):
        self.paused(RECONSTRUCT, lambda step: [(0, 1 - step % 2), (1, step % 2)])

    def test_nothing_is_left_after_a_hundred_pauses(self):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(strategy=strategy):
                program, task = self.start()
                program.step()

                def state():
                    files = len(os.listdir(f"/proc/{program.process.pid}/fd"))
                    text = pathlib.Path(f"/proc/{program.process.pid}/status").read_text()
                    threads = next(line for line in text.splitlines() if line.startswith("Threads:"))
                    return task.status()["records"], files, threads

                task.unpause(task.pause(strategy), self.driver)
                before = state()
                for _ in range(100):
                    task.unpause(task.pause(strategy), self.driver)
                self.assertEqual(state(), before)
                self.assertEqual([program.step() for _ in range(STEPS - 1)], self.undisturbed[1:])
                self.assertEqual(program.end(), ("done\n", 0))


if __name__ == "__main__":
    unittest.main()
