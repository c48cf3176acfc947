#!/usr/bin/env python3
"""A program under the interposer, paused and resumed through the task protocol alone."""

import os
import re
import socket
import subprocess
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from task_client import CLOSE, IMPORT, TaskClient, TaskError, socket_path, wait_for_task, wake


class Counter:
    """The sample `counter`: one number in device memory behind a line protocol."""

    def __init__(self, node, folder, **extra):
        self.driver = built("lib/softgpu/libcuda.so.1")
        self.folder = folder
        env = node.env(LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder, STASIS_DRIVER=self.driver, **extra)
        self.process = subprocess.Popen([built("samples/counter")], env=env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.pid = self.process.pid

    def start(self):
        self.task = wait_for_task(self.folder, self.pid)
        port = int(re.search(r":(\d+)$", self.process.stdout.readline().strip())[1])
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.lines = self.connection.makefile("rw")
        return self

    def send(self, line):
        self.lines.write(line + "\n")
        self.lines.flush()

    def answer(self):
        return self.lines.readline().strip()

    def ask(self, line):
        self.send(line)
        return self.answer()

    def answers_within(self, seconds):
        """Whether there is an answer; it is not taken."""
        self.connection.settimeout(seconds)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.connection.settimeout(60)

    def end(self):
        answer = self.ask("quit")
        return answer, self.process.communicate(timeout=60)[0], self.process.returncode

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.lines.close()
        self.connection.close()
        self.task.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class CounterCase(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))

    def counter(self, **extra):
        return self.enterContext(Counter(self.node, self.folder, **extra))


class TaskTest(CounterCase):

    def test_hello_says_who_it_is(self):
        counter = self.counter()
        hello = counter.task.hello()
        self.assertEqual((hello["pid"], hello["state"], hello["generation"]), (counter.pid, "running", 0))
        self.assertEqual((hello["driver_path"], hello["strategy"]), (counter.driver, "reconstruct"))
        self.assertEqual([d["physical"] for d in hello["devices"]], [0, 1])
        self.assertGreater(hello["driver_version"], 12000)
        with self.assertRaises(TaskError) as raised:
            counter.task.hello(version=99)
        self.assertEqual(raised.exception.code, "UNSUPPORTED")

    def test_devices_are_what_launcher_and_variable_leave(self):
        counter = self.counter(STASIS_GPUS="1,0", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual([(d["virtual"], d["physical"]) for d in counter.task.hello()["devices"]], [(0, 1)])
        self.assertIn(counter.pid, self.node.devices()[1]["pids"])
        self.assertNotIn(counter.pid, self.node.devices()[0]["pids"])

    def test_quiesced_program_stands_still_until_resumed(self):
        counter = self.counter()
        self.assertEqual(counter.ask("inc"), "1")
        counter.task.quiesce()
        self.assertEqual(counter.task.hello()["state"], "quiesced")
        counter.send("inc")
        self.assertFalse(counter.answers_within(0.3))
        counter.task.go_on()
        self.assertEqual(counter.answer(), "2")

    def test_end_of_connection_undoes_a_pause(self):
        counter = self.counter()
        counter.task.quiesce()
        counter.send("inc")
        counter.task.close()
        self.assertEqual(counter.answer(), "1")
        with TaskClient(socket_path(self.folder, counter.pid)) as again:
            self.assertEqual(again.hello()["state"], "running")

    def test_requests_out_of_turn_change_nothing(self):
        counter = self.counter()
        task = counter.task
        for ask in (task.cut, task.drain, task.hold, task.give_up, task.handover, task.comms, task.rejoin, task.release, task.prepare_dump, lambda: task.attach(counter.driver),
                    lambda: task.request(IMPORT, b"\0\0\0\0"), task.rebuild, task.resume):
            with self.assertRaises(TaskError) as raised:
                ask()
            self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
        with self.assertRaises(TaskError) as raised:
            task.request(77)
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        with self.assertRaises(TaskError) as raised:
            task.request(CLOSE, b"\1")
        self.assertEqual(raised.exception.code, "CORRUPT")
        task.shut()
        for ask in (task.give_up, task.handover, task.hold, task.comms):
            with self.assertRaises(TaskError):
                ask()
        task.drain()
        self.assertEqual(task.hello()["state"], "drained")
        for ask in (task.shut, task.cut, task.drain, task.handover, task.comms):
            with self.assertRaises(TaskError):
                ask()
        task.give_up()
        for ask in (task.shut, task.drain, task.give_up, task.resume):
            with self.assertRaises(TaskError):
                ask()
        task.go_on()
        self.assertEqual(counter.ask("inc"), "1")


    def test_a_drained_process_goes_on_as_it_is(self):
        counter = self.counter()
        task = counter.task
        self.assertTrue(task.shut()["settled"])
        task.drain()
        counter.send("inc")
        self.assertFalse(counter.answers_within(0.1))
        task.resume()
        self.assertEqual(counter.answer(), "1")
        task.shut()
        task.drain()
        counter.send("inc")
        task.close()
        self.assertEqual(counter.answer(), "2")

    def test_a_process_that_is_to_hold_waits_for_the_next_ghost(self):
        counter = self.counter()
        for give_up in (False, True):
            counter.task.shut()
            counter.task.drain()
            counter.task.hold()
            if give_up:
                counter.task.give_up()
            counter.send("inc")
            counter.task.close()
            counter.task = self.enterContext(TaskClient(socket_path(self.folder, counter.pid)))
            self.assertEqual(counter.task.hello()["state"], "quiesced" if give_up else "drained")
            self.assertFalse(counter.answers_within(0.1))
            counter.task.go_on()
            self.assertEqual(counter.answer(), "2" if give_up else "1")
        # It holds no longer than that.
        counter.task.quiesce()
        counter.task.close()
        self.assertEqual(counter.ask("inc"), "3")


class ReleaseTest(CounterCase):
    """Everything the program has is given up, and given back."""

    def test_release_and_rebuild_in_place(self):
        counter = self.counter()
        self.assertEqual([counter.ask("inc") for _ in range(3)], ["1", "2", "3"])
        extents = counter.task.pause()
        self.assertEqual(counter.task.hello()["state"], "released")
        self.assertEqual([d["pids"] for d in self.node.devices()], [[], []])
        counter.send("inc")
        self.assertFalse(counter.answers_within(0.3))
        counter.task.unpause(extents, counter.driver)
        self.assertEqual(counter.answer(), "4")
        self.assertEqual(counter.task.hello()["generation"], 1)

    def test_progress_is_counted_before_and_after(self):
        counter = self.counter()
        iterations, launches = counter.task.progress()
        self.assertEqual(iterations, 0)
        for _ in range(3):
            counter.ask("inc")
        self.assertEqual(counter.task.progress(), (0, launches + 3))
        extents = counter.task.pause()
        self.assertEqual(counter.task.progress(), (0, launches + 3))
        counter.task.unpause(extents, counter.driver)
        counter.ask("inc")
        self.assertEqual(counter.task.progress(), (0, launches + 4))

    def test_released_process_waits_for_the_next_ghost(self):
        counter = self.counter()
        counter.ask("inc")
        extents = counter.task.pause()
        counter.task.close()
        with TaskClient(socket_path(self.folder, counter.pid)) as second:
            self.assertEqual(second.hello()["state"], "released")
            second.attach(counter.driver)
        with TaskClient(socket_path(self.folder, counter.pid)) as third:
            self.assertEqual(third.hello()["state"], "released")
            third.unpause(extents, counter.driver, placements=[(0, 1), (1, 0)])
            self.assertEqual(counter.ask("inc"), "2")
            self.assertIn(counter.pid, self.node.devices()[1]["pids"])
            self.assertNotIn(counter.pid, self.node.devices()[0]["pids"])

    def test_a_process_that_is_attached_waits_for_the_next_ghost(self):
        """The one that is gone may have held device memory of which only the next one can tell."""
        for rejoin in (False, True):
            counter = self.counter()
            counter.ask("inc")
            extents = counter.task.pause()
            counter.task.attach(counter.driver)
            counter.task.import_extents(extents)
            counter.task.rebuild()
            if rejoin:
                counter.task.rejoin_alone()
            counter.send("inc")
            counter.task.close()
            with TaskClient(socket_path(self.folder, counter.pid)) as second:
                self.assertEqual(second.hello()["state"], "drained" if rejoin else "quiesced")
                self.assertFalse(counter.answers_within(0.1))
                second.go_on()
                self.assertEqual(counter.answer(), "2")
            for extent in extents:
                extent.close()

    def test_deaf_process_holds_nothing_of_ours_but_its_folder_and_wakes(self):
        counter = self.counter()
        counter.ask("inc")
        extents = counter.task.pause()
        counter.task.prepare_dump()
        links = [os.readlink(f"/proc/{counter.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{counter.pid}/fd")]
        self.assertFalse(os.path.exists(socket_path(self.folder, counter.pid)))
        self.assertEqual([link for link in links if self.folder in link], [os.path.join(self.folder, "ctl")], links)
        with open(f"/proc/{counter.pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn(counter.driver, maps.read())
        wake(counter.pid)
        with wait_for_task(self.folder, counter.pid) as again:
            self.assertEqual(again.hello()["state"], "released")
            again.unpause(extents, counter.driver)
        self.assertEqual(counter.ask("inc"), "2")


if __name__ == "__main__":
    unittest.main()
