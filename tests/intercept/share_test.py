#!/usr/bin/env python3
"""Memory and events that processes share: what a pause leaves behind, and what it refuses by name."""

import os
import subprocess
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

CYCLES = 100


class ShareTest(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "512MiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def start(self, *program, folder=None):
        """In the task of that folder; without one, no task at all."""
        extra = {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_TASK": folder, "STASIS_DRIVER": self.driver} if folder else {}
        process = subprocess.Popen([built(program[0]), *map(str, program[1:])], env=self.node.env(**extra), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def members(self, count):
        """A client for each process of the task, the first one first."""
        names = [name for name in os.listdir(os.path.join(self.folder, "ctl")) if name[0].isdigit() and name.endswith(".sock")]
        self.assertEqual(len(names), count)
        return [(pid, self.enterContext(wait_for_task(self.folder, pid))) for pid in sorted(int(n[:-5]) for n in names)]

    def cycle(self, members, strategy, placements=()):
        """One pause of all, with what they share handed over once, as a ghost does it."""
        for _, task in members:
            task.quiesce()
        held, lists = {}, []
        for _, task in members:
            lists.append(task.handover())
            for extent in lists[-1]:
                holder = held.setdefault(extent.share, extent) if extent.share else extent
                self.assertEqual((holder.size, holder.device), (extent.size, extent.device))
                if holder is not extent:
                    os.close(extent.fd)
                    extent.fd = os.dup(holder.fd)
        for _, task in members:
            task.release(strategy)
        for (_, task), extents in zip(members, lists):
            task.attach(self.driver, placements)
            task.import_extents(extents)
            task.rebuild()
            for extent in extents:
                extent.close()
        for _, task in members:
            task.go_on()
        return sum(len(extents) for extents in lists), len([share for share in held if share])

    def footprint(self, members):
        """What must not grow."""
        found = {"device memory": [device["memory_used"] for device in self.node.devices()]}
        for pid, task in members:
            found[f"descriptors of {pid}"] = len(os.listdir(f"/proc/{pid}/fd"))
            found[f"threads of {pid}"] = len(os.listdir(f"/proc/{pid}/task"))
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                found[f"mappings of {pid}"] = len(maps.readlines()) // 16
            found[f"records of {pid}"] = task.status()["records"]
        return found

    def share(self, order, strategies):
        expected = self.node.run(built("tests/programs/share"), "6", order)
        self.assertEqual(expected.returncode, 0, expected.stderr)
        go = os.path.join(self.folder, "go", "now")
        os.makedirs(os.path.dirname(go))
        program = self.start("tests/programs/share", 6, order, go, folder=self.folder)
        lines = [program.stdout.readline() for _ in range(4)]
        self.assertEqual(lines[-1], "ready\n")
        members = self.members(2)
        for strategy in strategies * 2:
            extents, shared = self.cycle(members, strategy)
            self.assertGreaterEqual(shared, 3)
            self.assertGreater(extents, 2 * shared)
        before = self.footprint(members)
        for i in range(CYCLES):
            self.cycle(members, strategies[i % len(strategies)])
        self.assertEqual(self.footprint(members), before)
        with open(go, "x", encoding="utf-8"):
            pass
        rest, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0)
        self.assertEqual("".join(lines[:-1]) + rest, expected.stdout)

    def test_nothing_is_left_over_many_pauses(self):
        self.share("host", [RECONSTRUCT, DRIVER_CHECKPOINT])

    def test_nothing_is_left_of_events(self):
        self.share("events", [RECONSTRUCT])

    def handle_of(self, what, folder=None):
        return self.start("bin/intercept_outside", f"give-{what}", folder=folder).stdout.readline().strip()

    def take(self, what, handle, lines, folder=None, times=1):
        process = self.start("bin/intercept_outside", f"take-{what}", handle, times, folder=folder)
        return process, [process.stdout.readline().strip() for _ in range(lines)]

    def refused(self, process, strategy, text):
        with wait_for_task(self.folder, process.pid) as task:
            task.quiesce()
            with self.assertRaises(TaskError) as raised:
                task.release(strategy)
            self.assertEqual(raised.exception.code, "UNSUPPORTED")
            self.assertIn(text, raised.exception.message)
            task.go_on()
        process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_memory_of_a_process_outside_is_refused_by_name(self):
        process, lines = self.take("memory", self.handle_of("memory"), 2, self.folder)
        self.assertEqual(lines, ["CUDA_SUCCESS", "4711"])
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            if strategy == DRIVER_CHECKPOINT:
                process, _ = self.take("memory", self.handle_of("memory"), 2, self.folder)
            self.refused(process, strategy, "cuIpcOpenMemHandle_v2 of memory outside of the task")

    def test_an_event_of_a_process_outside_is_refused_by_name(self):
        process, lines = self.take("event", self.handle_of("event"), 1, self.folder)
        self.assertEqual(lines, ["CUDA_SUCCESS"])
        self.refused(process, RECONSTRUCT, "cuIpcOpenEventHandle of an event outside of the task")

    def test_an_event_that_is_open_twice_is_refused_by_name(self):
        process, lines = self.take("event", self.handle_of("event", self.folder), 2, self.folder, times=2)
        self.assertEqual(lines, ["CUDA_SUCCESS", "CUDA_SUCCESS"])
        self.refused(process, RECONSTRUCT, "is open twice")

    def test_processes_outside_cannot_open_what_is_the_tasks(self):
        handle = self.handle_of("memory", self.folder)
        self.assertEqual(self.take("memory", handle, 1)[1], ["CUDA_ERROR_INVALID_VALUE"])
        with tempfile.TemporaryDirectory(prefix="stasis-task-") as other:
            self.assertEqual(self.take("memory", handle, 1, other)[1], ["CUDA_ERROR_MAP_FAILED"])
        process, lines = self.take("memory", handle, 4, self.folder, times=2)
        self.assertEqual(lines, ["CUDA_SUCCESS", "4711"] * 2)
        process.communicate("\n", timeout=60)


if __name__ == "__main__":
    unittest.main()
