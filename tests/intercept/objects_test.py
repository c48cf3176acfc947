#!/usr/bin/env python3
"""A program with one of every object of the runtime is paused between any two of its steps and goes on as if nothing
had happened."""

import tempfile
import unittest

from softgpu import Node, built
from step_program import StepProgram
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, wait_for_task

STEPS = 6


class ObjectsTest(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "256MiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def start(self, name, **extra):
        program = StepProgram(self.node, built("tests/programs/" + name), **extra)
        self.addCleanup(program.end)
        return program

    def undisturbed(self, name):
        program = self.start(name)
        output = program.until("ready") + "".join(program.step(i + 1) for i in range(STEPS))
        rest, code = program.finish()
        self.assertEqual(code, 0)
        return output + rest

    def disturbed(self, name, strategy, devices):
        program = self.start(name, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder,
                             STASIS_DRIVER=self.driver)
        task = self.enterContext(wait_for_task(self.folder, program.process.pid))
        output, records = program.until("ready"), set()
        for i in range(STEPS):
            extents = task.pause(strategy)
            device = devices[i % len(devices)]
            # With the other strategy it is the driver that moves, and nobody asks it here.
            task.unpause(extents, self.driver, [(0, device), (1, 1 - device)] if strategy == RECONSTRUCT else [])
            output += program.step(i + 1)
            records.add(task.status()["records"])
        self.assertEqual(len(records), 1, "records of objects that are gone")
        generation = task.hello()["generation"]
        self.assertEqual(generation, STEPS if strategy == RECONSTRUCT else 0)
        rest, code = program.finish()
        self.assertEqual(code, 0)
        return output + rest

    def check(self, name, strategy, devices=(0,)):
        self.assertEqual(self.disturbed(name, strategy, devices), self.undisturbed(name))

    def test_reconstruct(self):
        self.check("objects", RECONSTRUCT)

    def test_reconstruct_on_the_other_device(self):
        self.check("objects", RECONSTRUCT, devices=(1, 0))

    def test_driver_checkpoint(self):
        self.check("objects", DRIVER_CHECKPOINT)

    def test_relocatable_device_code(self):
        self.check("objects_rdc", RECONSTRUCT)


if __name__ == "__main__":
    unittest.main()
