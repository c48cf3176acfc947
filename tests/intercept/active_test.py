#!/usr/bin/env python3
"""Active memory of a task: what it covers, when it is least, and memory that is held for a snapshot."""

import contextlib
import os
import select
import struct
import subprocess
import tempfile
import time
import unittest

from softgpu import Node, built, die_with_parent
from task_client import CLOSE, ERROR, OK, STATES, STATUS, TaskError, cut_report, wait_for_task

MIB = 1 << 20
WAIT_LONG = struct.pack("=II", 10000, 600000)


def merged(ranges):
    """Ranges that touch are one."""
    out = []
    for address, size in sorted(ranges):
        if out and out[-1][0] + out[-1][1] >= address:
            out[-1] = (out[-1][0], max(out[-1][0] + out[-1][1], address + size) - out[-1][0])
        else:
            out.append((address, size))
    return out


def spoil_all_but(node, ranges, extents):
    """Overwrites every byte of the extents that is in no range, as an image does that does not hold it."""
    orders, spoiled = [], 0
    for extent in extents:
        orders.append(f"extent {extent.fd} {extent.size}")
        at, end = extent.address, extent.address + extent.size
        for address, size in [(a, s) for a, s in ranges if extent.address <= a < end] + [(end, 0)]:
            if address > at:
                orders.append(f"spoil {at - extent.address} {address - at}")
            spoiled += address - at
            at = address + size
    subprocess.run([built("bin/intercept_spoil")], input="\n".join(orders), env=node.env(), text=True, check=True,
                   pass_fds=[extent.fd for extent in extents], timeout=60)
    return spoiled


class Program:
    """tests/programs/active, as a task or as somebody else on the node."""

    def __init__(self, node, allocator, seed=1, name="active", **extra):
        self.process = subprocess.Popen([built("tests/programs/" + name), allocator, str(seed)], env=node.env(**extra),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        preexec_fn=die_with_parent)
        self.expect("ready")

    def close(self):
        self.process.kill()
        self.process.communicate()

    def expect(self, wanted):
        line = self.process.stdout.readline().strip()
        if line != wanted:
            raise AssertionError(f"{line!r} instead of {wanted!r}")

    def send(self, command):
        self.process.stdin.write(command + "\n")

    def answer(self):
        lines = []
        while not lines or lines[-1] != "done":
            lines.append(self.process.stdout.readline().strip())
            if not lines[-1]:
                raise AssertionError("the program has ended")
        return lines[:-1]

    def ask(self, command):
        self.send(command)
        return self.answer()

    def live(self):
        return [tuple(map(int, line.split()[1:])) for line in self.ask("list")]

    def free_bytes(self):
        return int(self.ask("free")[0].split()[1])


class ActiveTest(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--memory", "256MiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def start(self, allocator, seed=1, name="active"):
        program = Program(self.node, allocator, seed, name, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder,
                          STASIS_DRIVER=self.driver)
        self.addCleanup(program.close)
        return program, self.enterContext(wait_for_task(self.folder, program.process.pid))

    def other(self):
        program = Program(self.node, "plain")
        self.addCleanup(program.close)
        return program


class RangesTest(ActiveTest):

    def check_ranges(self, allocator, name="active"):
        program, task = self.start(allocator, name=name)
        spoiled = 0
        for _ in range(8):
            self.assertEqual(program.ask("step 150"), [])
            live = merged(program.live())
            stopped = task.quiesce()
            extents = task.handover()
            active = task.active()
            self.assertEqual(active, sorted(active))
            self.assertEqual(merged(active), live)
            self.assertEqual(stopped["active_bytes"], sum(size for _, size in live))
            task.release()
            spoiled += spoil_all_but(self.node, active, extents)
            task.unpause(extents, self.driver)
            self.assertEqual(program.ask("check"), [])
        self.assertEqual(program.ask("step 100"), [])
        self.assertEqual(task.status()["ignored_notes"], 0)
        self.assertGreater(spoiled, MIB)

    def test_noted_blocks_are_all_that_is_needed(self):
        self.check_ranges("stub")

    def test_noted_blocks_are_all_that_is_needed_of_a_program_without_pie(self):
        self.check_ranges("stub", "active_no_pie")

    def test_plain_allocations_are_all_that_is_needed(self):
        self.check_ranges("plain")

    def test_stream_ordered_allocations_are_all_that_is_needed(self):
        self.check_ranges("async")

    def test_every_range_lies_in_an_extent(self):
        program, task = self.start("plain")
        program.ask("step 300")
        task.quiesce()
        extents = task.handover()
        for address, size in task.active():
            self.assertTrue(any(e.address <= address and address + size <= e.address + e.size for e in extents))
        for extent in extents:
            extent.close()
        task.go_on()

    def test_the_ranges_are_told_of_a_process_that_stands_still(self):
        _, task = self.start("plain")
        with self.assertRaises(TaskError) as raised:
            task.active()
        self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")


class LowPointTest(ActiveTest):

    @contextlib.contextmanager
    def looping(self, command):
        program, task = self.start("stub")
        low = sum(size for _, size in program.live())
        program.send(command)
        program.expect("looping")
        yield task, low
        program.send("check")
        self.assertEqual(program.answer(), [])
        self.assertEqual(program.answer(), [])

    def wait_until_learned(self, task):
        deadline = time.monotonic() + 60
        while task.status()["low_bytes"] == 0:
            self.assertLess(time.monotonic(), deadline)

    def check_stops(self, command):
        with self.looping(command) as (task, low):
            self.wait_until_learned(task)
            for _ in range(20):
                stopped = task.quiesce(wait_low_ms=20000)
                self.assertTrue(stopped["at_low"])
                self.assertEqual(stopped["low_bytes"], low)
                self.assertGreater(stopped["high_bytes"], low + 2000000)
                self.assertEqual(stopped["active_bytes"], low)
                self.assertEqual(sum(size for _, size in task.active()), low)
                self.assertLess(stopped["waited_ms"], 20000)
                task.go_on()

    def test_stops_at_the_low_point_between_iterations(self):
        self.check_stops("rounds")

    def test_stops_at_the_low_point_of_cycles_that_nobody_told(self):
        self.check_stops("loop")

    def test_the_time_ends_a_wait_for_what_does_not_come(self):
        _, task = self.start("stub")
        stopped = task.quiesce(wait_low_ms=50)
        self.assertFalse(stopped["at_low"])
        self.assertGreaterEqual(stopped["waited_ms"], 50)
        self.assertEqual((stopped["low_bytes"], stopped["high_bytes"]), (0, 0))
        task.go_on()

    def test_without_a_cycle_the_first_boundary_has_to_do(self):
        program, task = self.start("stub")
        task.send(CLOSE, WAIT_LONG)
        program.send("rounds")
        kind, payload = task.receive()
        self.assertEqual(kind, OK)
        self.assertTrue(task.stand_still(cut_report(payload))["at_low"])
        self.assertEqual(task.status()["iterations"], 1)
        self.assertEqual(task.progress()[0], 1)
        task.go_on()
        program.send("check")
        program.expect("looping")
        self.assertEqual(program.answer() + program.answer(), [])

    def test_a_ghost_that_goes_away_meanwhile_leaves_the_program_running(self):
        program, task = self.start("stub")
        task.hello()  # it has taken the connection
        descriptors = len(os.listdir(f"/proc/{program.process.pid}/fd"))
        task.send(CLOSE, WAIT_LONG)
        task.close()
        with wait_for_task(self.folder, program.process.pid) as again:
            self.assertEqual(again.hello()["state"], "running")
            self.assertEqual(program.ask("step 50"), [])
            again.quiesce()
            again.go_on()
            self.assertEqual(len(os.listdir(f"/proc/{program.process.pid}/fd")), descriptors)

    def test_a_request_meanwhile_ends_the_wait(self):
        program, task = self.start("stub")
        task.send(CLOSE, WAIT_LONG)
        task.send(STATUS)
        kind, payload = task.receive()
        self.assertEqual(kind, ERROR)
        self.assertIn(b"waits no longer", payload)
        kind, payload = task.receive()
        self.assertEqual((kind, STATES[payload[0]]), (OK, "running"))
        self.assertEqual(program.ask("step 50"), [])


class PressureTest(ActiveTest):
    HELD = 100

    def setUp(self):
        super().setUp()
        self.ask_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.given_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for fd in (self.ask_fd, self.given_fd):
            self.addCleanup(os.close, fd)

    def hold(self, allocator="plain"):
        """A task that runs on while another process, in the ghost's place, keeps device memory."""
        program, task = self.start(allocator)
        task.hello()  # it has taken the connection
        self.descriptors = self.own_descriptors(program)
        free = program.free_bytes()
        holder = self.other()
        self.assertEqual(holder.ask(f"take {self.HELD}"), [])
        taken = free - program.free_bytes()
        self.assertGreaterEqual(taken, self.HELD * MIB)
        task.quiesce()
        task.go_on([(0, taken)], [self.ask_fd, self.given_fd])
        self.assertEqual(program.free_bytes(), free, "what is held counts as free")
        return program, task, holder

    @staticmethod
    def own_descriptors(program):
        return sorted(map(int, os.listdir(f"/proc/{program.process.pid}/fd")))

    def await_ask(self):
        self.assertTrue(select.select([self.ask_fd], [], [], 60)[0])
        self.assertGreaterEqual(os.eventfd_read(self.ask_fd), 1)

    def check_memory_comes_back(self, allocator):
        program, task, holder = self.hold(allocator)
        program.send("take 180")
        self.await_ask()
        holder.close()
        os.eventfd_write(self.given_fd, 1)
        self.assertEqual(program.answer(), [])
        self.assertLess(program.free_bytes(), 100 * MIB, "what was given back is not counted twice")
        self.assertEqual(program.ask("check"), [])
        task.snapshot_done()
        self.assertEqual(self.own_descriptors(program), self.descriptors)

    def test_held_memory_comes_back_when_the_program_needs_it(self):
        self.check_memory_comes_back("plain")

    def test_memory_that_is_no_longer_held_is_not_asked_for(self):
        program, task, _ = self.hold()
        task.snapshot_done()
        self.assertEqual(self.own_descriptors(program), self.descriptors)
        start = time.monotonic()
        self.assertEqual(program.ask("take 180"), ["failed"])
        self.assertLess(time.monotonic() - start, 9, "as long as for a ghost that gives nothing back")

    def test_what_a_ghost_that_goes_away_has_held_comes_back_with_its_end(self):
        program, task, holder = self.hold()
        program.send("take 180")
        self.await_ask()
        task.close()
        holder.close()
        self.assertEqual(program.answer(), [])
        self.assertEqual(program.ask("check"), [])

    def test_a_ghost_that_gives_nothing_back_is_waited_for_a_while(self):
        program, _, _ = self.hold()
        start = time.monotonic()
        self.assertEqual(program.ask("take 180"), ["failed"])
        self.assertGreater(time.monotonic() - start, 9)

    def test_held_memory_without_descriptors_is_refused(self):
        program, task = self.start("plain")
        task.quiesce()
        with self.assertRaises(TaskError) as raised:
            task.go_on([(0, MIB)])
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        task.go_on()
        self.assertEqual(program.ask("check"), [])

    def test_nothing_of_it_is_open_in_a_child(self):
        program, _, _ = self.hold()
        event = "anon_inode:[eventfd]"
        links = [os.readlink(f"/proc/{program.process.pid}/fd/{fd}") for fd in self.own_descriptors(program)]
        self.assertGreaterEqual(links.count(event), 2)
        child = program.ask("fork")
        self.assertGreaterEqual(len(child), 3, child)
        # Those of the driver below are closed by itself.
        self.assertNotIn("open " + event, child)

    def test_nothing_of_it_is_open_at_a_dump(self):
        program, task, _ = self.hold()
        task.pause()
        task.prepare_dump()
        left = [os.readlink(f"/proc/{program.process.pid}/fd/{fd}") for fd in self.own_descriptors(program)]
        self.assertFalse([link for link in left if "eventfd" in link or "memfd" in link], left)


if __name__ == "__main__":
    unittest.main()
