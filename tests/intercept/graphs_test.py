#!/usr/bin/env python3
"""A program full of graphs answers the same when it is paused and resumed in place between any two of its steps."""

import os
import subprocess
import tempfile
import threading
import unittest

import hung
from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

STEPS = ["explicit", "launch-explicit", "capture", "launch-captured", "set-add", "launch-explicit", "change-graph", "shape",
         "launch-explicit", "disable-host", "launch-explicit", "clone", "enable", "launch-explicit", "update-explicit",
         "launch-explicit", "find-clone", "set-add-again", "launch-explicit", "update-captured", "launch-captured", "parent",
         "launch-parent", "set-inner", "launch-parent", "destroy-sources", "launch-parent", "launch-captured", "shape",
         "update-captured-again", "launch-captured", "launch-explicit", "destroy"]


class Program:
    """Answers each step with its output up to the line that starts with the step's name."""

    def __init__(self, case, **extra):
        self.process = subprocess.Popen([built("tests/programs/graphs")], env=case.node.env(**extra), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        assert self.process.stdout.readline() == "ready\n"

    def step(self, name):
        self.send(name)
        return self.answer(name)

    def send(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()

    def answer(self, name):
        lines = []
        while not lines or not lines[-1].startswith(name + " "):
            lines.append(self.process.stdout.readline())
            assert lines[-1], f"the program has ended: {lines}"
        return "".join(lines)

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class GraphsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "512MiB"))
        self.driver = built("lib/softgpu/libcuda.so.1")
        program = Program(self)
        self.undisturbed = [program.step(step) for step in STEPS]
        self.assertEqual(program.end(), 0)
        self.assertNotIn("launch-explicit 0 0 0", self.undisturbed[1])

    def paused(self, pause_at, strategy, placements=lambda _: ()):
        """The program's answers, with a pause before each step for which `pause_at` holds."""
        with tempfile.TemporaryDirectory(prefix="stasis-task-") as folder:
            program = Program(self, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder, STASIS_DRIVER=self.driver)
            answers = []
            with wait_for_task(folder, program.process.pid) as task:
                for number, step in enumerate(STEPS):
                    if pause_at(number):
                        extents = task.pause(strategy)
                        task.unpause(extents, self.driver, placements(number))
                    answers.append(program.step(step))
                records = task.status()["records"]
            self.assertEqual(program.end(), 0)
            return answers, records

    def test_paused_before_every_step(self):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(strategy=strategy):
                answers, _ = self.paused(lambda _: True, strategy)
                self.assertEqual(answers, self.undisturbed)

    def test_paused_once_at_each_step(self):
        for at in range(len(STEPS)):
            with self.subTest(step=f"{at} {STEPS[at]}"):
                answers, _ = self.paused(lambda number, at=at: number == at, RECONSTRUCT)
                self.assertEqual(answers, self.undisturbed)

    def test_moved_to_the_other_device_at_every_step(self):
        answers, _ = self.paused(lambda _: True, RECONSTRUCT, lambda number: [(0, 1 - number % 2), (1, number % 2)])
        self.assertEqual(answers, self.undisturbed)

    def test_what_is_destroyed_leaves_no_record(self):
        _, never = self.paused(lambda _: False, RECONSTRUCT)
        _, always = self.paused(lambda _: True, RECONSTRUCT)
        self.assertEqual(always, never)

    def test_a_pause_waits_for_the_end_of_a_capture(self):
        with tempfile.TemporaryDirectory(prefix="stasis-task-") as folder:
            program = Program(self, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder, STASIS_DRIVER=self.driver)
            with wait_for_task(folder, program.process.pid) as task:
                program.step("begin-capture")
                with self.assertRaises(TaskError) as raised:
                    task.quiesce(deadline_ms=1)
                self.assertEqual(raised.exception.code, "TIMEOUT")
                self.assertEqual(raised.exception.blockers, [(program.process.pid, "stream capture")])
                task.go_on()
                quiesce = threading.Thread(target=task.quiesce)
                quiesce.start()
                program.send("end-capture")
                quiesce.join()
                extents = task.handover()
                task.release(RECONSTRUCT)
                task.unpause(extents, self.driver)
                program.answer("end-capture")  # it may have met the closed gate on its way
                self.assertTrue(program.step("launch-captured").startswith("launch-captured 0 1000 0 "))
            self.assertEqual(program.end(), 0)

    def stencil(self, graph, pause=lambda task: None, **extra):
        """What the sample prints, with `pause` called after each of its first lines; then it rests no more."""
        command = [built("samples/stencil"), "--width", "66", "--height", "66", "--iterations", "2000", "--report-every", "50",
                   "--graph", graph, "--pace-ms", "1000"]
        hurry = os.path.join(extra["STASIS_TASK"], "hurry") if extra else "/"
        with hung.started(command, env=self.node.env(PACE_UNTIL=hurry, **extra), text=True, stdout=subprocess.PIPE,
                          preexec_fn=die_with_parent) as program:
            task = wait_for_task(extra["STASIS_TASK"], program.pid) if extra else None
            lines = []
            for line in program.stdout:
                lines.append(line)
                if task and len(lines) < 10:
                    pause(task)
                elif task and len(lines) == 10:
                    with open(hurry, "x", encoding="ascii"):
                        pass
            if task:
                task.close()
        self.assertEqual(program.returncode, 0)
        return [line for line in lines if "seconds" not in line]

    def test_stencil(self):
        def pause(task):
            task.unpause(task.pause(strategy), self.driver)

        for graph in ("capture", "explicit"):
            undisturbed = self.stencil(graph)
            for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
                with (self.subTest(graph=graph, strategy=strategy),
                      tempfile.TemporaryDirectory(prefix="stasis-task-") as folder):
                    self.assertEqual(self.stencil(graph, pause, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder,
                                                  STASIS_DRIVER=self.driver), undisturbed)


if __name__ == "__main__":
    unittest.main()
