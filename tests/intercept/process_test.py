#!/usr/bin/env python3
"""What a process of a task keeps of its own habits: children, descriptors, signals, and its view of the devices."""

import os
import subprocess
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, TaskError, wait_for_task, wake


class Probe:
    """probe.cc: answers each line with a line."""

    def __init__(self, env):
        self.process = subprocess.Popen([built("bin/intercept_probe")], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.pid = self.process.pid

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().strip()

    def ask(self, line):
        self.send(line)
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class ProcessTest(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "3"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-process-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def plain(self, **extra):
        return self.enterContext(Probe(self.node.env(**extra)))

    def managed(self, **extra):
        env = self.node.env(LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder, STASIS_DRIVER=self.driver, **extra)
        return self.enterContext(Probe(env))

    def connect(self, probe):
        return self.enterContext(wait_for_task(self.folder, probe.pid))

    def test_answers_as_without_us(self):
        for extra in ({}, {"CUDA_VISIBLE_DEVICES": "2,0"}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "1,9"}):
            plain, managed = self.plain(**extra), self.managed(**extra)
            for line in ("version", "device 0", "init", "device 0", "device 1", "device 2", "device 7", "find 0", "find 1",
                         "retain 0", "retain 1", "retain 2", "thread"):
                with self.subTest(line, **extra):
                    self.assertEqual(managed.ask(line), plain.ask(line))

    def test_a_driver_that_moves_processes_itself_has_what_the_program_sees(self):
        """NVIDIA's runtime does not start where these differ."""
        uuids = [device["uuid"].removeprefix("GPU-").replace("-", "") for device in self.node.devices()]
        machine = ",".join(uuid + "@0000:00:00.0" for uuid in uuids)
        one = self.node.devices()[2]["uuid"]
        ways = [({}, [0, 1, 2]), ({"STASIS_GPUS": "1"}, [1]), ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]), ({"CUDA_VISIBLE_DEVICES": one}, [2]),
                ({"STASIS_GPUS": "2,1", "CUDA_VISIBLE_DEVICES": "1"}, [1])]
        for extra, seen in ways:
            with self.subTest(**extra):
                probe = self.managed(STASIS_STRATEGY="driver-checkpoint", STASIS_DEVICES=machine, **extra)
                self.assertEqual(probe.ask("init"), f"init 0 0 {len(seen)}")
                self.assertEqual(probe.ask("init"), f"init 0 0 {len(seen)}")
                self.assertEqual(probe.ask("devices").split(), [uuids[ordinal] for ordinal in seen])
                self.assertEqual(probe.ask("below"), probe.ask("devices"))
                for number in range(len(seen)):
                    self.assertEqual(probe.ask(f"retain {number}"), "retain 0")
                self.assertEqual([index for index, device in enumerate(self.node.devices()) if probe.pid in device["pids"]], sorted(seen))
                devices = self.connect(probe).hello()["devices"]
                self.assertEqual([device["physical"] for device in devices], seen, "where they are on the machine")

    def test_threads_that_initialise_at_once_see_the_same(self):
        uuids = [device["uuid"].removeprefix("GPU-").replace("-", "") for device in self.node.devices()]
        machine = ",".join(uuid + "@0000:00:00.0" for uuid in uuids)
        elsewhere = ",".join(f"{number:032x}@0000:00:00.0" for number in range(3))
        for devices, below in ((machine, [uuids[0], uuids[2]]), (elsewhere, uuids)):
            for _ in range(5):
                with self.subTest(devices):
                    probe = self.managed(STASIS_STRATEGY="driver-checkpoint", STASIS_DEVICES=devices, CUDA_VISIBLE_DEVICES="0,2")
                    self.assertEqual(probe.ask("inits"), "init 0 0 2;" * 8 + "same;")
                    self.assertEqual(probe.ask("devices").split(), [uuids[0], uuids[2]])
                    self.assertEqual(probe.ask("below").split(), below)

    def test_a_driver_is_shown_everything_where_the_machine_is_another_one(self):
        uuids = [device["uuid"].removeprefix("GPU-").replace("-", "") for device in self.node.devices()]
        elsewhere = ",".join(f"{number:032x}@0000:00:00.0" for number in range(3))
        for machine in (elsewhere, "nonsense", None):
            for strategy in ("driver-checkpoint", "reconstruct"):
                with self.subTest(strategy, machine=machine):
                    extra = {} if machine is None else {"STASIS_DEVICES": machine}
                    probe = self.managed(STASIS_STRATEGY=strategy, STASIS_GPUS="2,1", **extra)
                    self.assertEqual(probe.ask("init"), "init 0 0 2")
                    self.assertEqual(probe.ask("devices").split(), [uuids[2], uuids[1]])
                    self.assertEqual(probe.ask("below").split(), uuids)

    def test_low_descriptors_stay_the_programs(self):
        plain, managed = self.plain(), self.managed()
        managed.ask("version")
        plain.ask("version")
        task = self.connect(managed)
        task.hello()
        self.assertEqual(managed.ask("fd"), plain.ask("fd"))

    def test_children(self):
        """Before the driver is used a child starts anew; later it gets what the driver gives to children."""
        for before in ([], ["version"], ["init"], ["init", "retain 0"]):
            with self.subTest(before):
                plain, managed = self.plain(), self.managed()
                for line in before:
                    self.assertEqual(managed.ask(line), plain.ask(line))
                expected, got = plain.ask("fork"), managed.ask("fork")
                self.assertTrue(expected.startswith("child 0:"), expected)
                self.assertEqual(got, expected)

    def test_child_of_a_paused_process_goes_on(self):
        plain, managed = self.plain(), self.managed()
        for line in ("init", "retain 0"):
            self.assertEqual(managed.ask(line), plain.ask(line))
        task = self.connect(managed)
        task.quiesce()
        self.assertEqual(managed.ask("fork"), plain.ask("fork"))
        self.assertEqual(task.hello()["state"], "quiesced")
        managed.send("version")
        task.go_on()
        self.assertEqual(managed.answer(), plain.ask("version"))

    def test_devices_look_the_same_after_a_move(self):
        probe = self.managed(CUDA_VISIBLE_DEVICES="1")
        probe.ask("init")
        probe.ask("retain 0")
        lines = ("init", "device 0", "device 1", "find 0", "retain 1", "thread")
        before = [probe.ask(line) for line in lines]
        self.assertIn(probe.pid, self.node.devices()[1]["pids"])
        task = self.connect(probe)
        extents = task.pause()
        self.assertEqual([d["pids"] for d in self.node.devices()], [[], [], []])
        task.unpause(extents, self.driver, placements=[(0, 2)])
        self.assertEqual([probe.ask(line) for line in lines], before)
        self.assertEqual([probe.pid in d["pids"] for d in self.node.devices()], [False, False, True])
        device, = task.hello()["devices"]
        self.assertEqual((device["virtual"], device["physical"], device["used"]), (0, 2, True))

    def test_bad_placements_leave_the_process_released(self):
        probe = self.managed()
        probe.ask("init")
        probe.ask("retain 0")
        probe.ask("retain 1")
        task = self.connect(probe)
        extents = task.pause()
        for placements in ([(7, 0)], [(0, -1)], [(0, 1), (1, 1)]):
            with self.assertRaises(TaskError) as raised:
                task.attach(self.driver, placements)
            self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
            self.assertEqual(task.hello()["state"], "released")
        with self.assertRaises(TaskError) as raised:
            task.attach("/nonexistent/libcuda.so.1")
        self.assertEqual((raised.exception.code, task.hello()["state"]), ("NOT_FOUND", "released"))
        task.unpause(extents, self.driver)
        self.assertEqual(probe.ask("init"), "init 0 0 3")

    def test_tainted_process_is_refused_by_name_and_undisturbed(self):
        probe = self.managed()
        probe.ask("init")
        probe.ask("retain 0")
        self.assertEqual(probe.ask("taint"), "taint 0")
        task = self.connect(probe)
        self.assertEqual(task.hello()["taints"], [("cuDeviceSetGraphMemAttribute", False)])
        task.quiesce()
        with self.assertRaises(TaskError) as raised:
            task.release()
        self.assertEqual(raised.exception.code, "UNSUPPORTED")
        self.assertIn("cuDeviceSetGraphMemAttribute", raised.exception.message)
        self.assertEqual(task.hello()["state"], "quiesced")
        task.go_on()
        self.assertEqual(probe.ask("taint"), "taint 0")

    def test_driver_keeps_what_the_driver_carries(self):
        """Strategy driver-checkpoint: only memory is given up, everything else is the driver's business."""
        probe = self.managed()
        probe.ask("init")
        probe.ask("retain 0")
        probe.ask("taint")
        task = self.connect(probe)
        extents = task.pause(DRIVER_CHECKPOINT)
        probe.send("thread")
        task.unpause(extents, self.driver)
        self.assertTrue(probe.answer().startswith("version 0"))
        self.assertEqual(task.hello()["generation"], 0)

    def test_signals_for_the_program_reach_it(self):
        """The wake-up is one value of a signal that the program may use too."""
        probe = self.managed()
        probe.ask("init")
        probe.ask("retain 0")
        task = self.connect(probe)
        self.assertEqual(probe.ask("signal"), "sent")
        self.assertEqual(probe.ask("signals"), "signals 1")
        extents = task.pause()
        task.prepare_dump()
        self.assertEqual(probe.ask("signal"), "sent")
        wake(probe.pid)
        again = self.connect(probe)
        again.unpause(extents, self.driver)
        self.assertEqual(probe.ask("signals"), "signals 2")

    def test_socket_is_for_its_owner_alone(self):
        probe = self.managed()
        probe.ask("version")
        self.connect(probe).hello()
        control = os.path.join(self.folder, "ctl")
        self.assertEqual(os.stat(os.path.join(control, f"{probe.pid}.sock")).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(control).st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main()
