#!/usr/bin/env python3
"""Faults of the driver's own checkpoint, and of tools around it."""

import contextlib
import ctypes
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from cases import FULL, STRATEGIES, SiteCase
from softgpu import built, die_with_parent

PIECES = 60 if FULL else 15
RESIDENCIES = ("host", "disk", "device") if FULL else ("host", "device")


class OutOfMemory(SiteCase):
    """On the way back there is not enough device memory, at any moment; later there is."""

    def assert_every_allocation(self, attempt, held):
        """attempt() fails for want of memory at each allocation that it makes, and holds `held` afterwards; then it succeeds."""
        for allocations in itertools.count():
            self.oom_after(allocations)
            status, answer = attempt()
            if status == 0:
                break
            self.assertEqual(answer["code"], "RESOURCE_EXHAUSTED", answer)
            self.assertEqual(self.used(), held, f"after {allocations} allocations")
        self.oom_after(None)
        print(f"{allocations} allocations", file=sys.stderr, flush=True)
        return allocations

    def expected_of_pieces(self):
        go = self.new_file()
        self.touch(go)
        return self.undisturbed("pieces", PIECES, go)

    def test_a_resume_fails_at_every_allocation(self):
        expected = self.expected_of_pieces()
        for strategy in STRATEGIES:
            go = self.new_file()
            job = self.start("pieces", PIECES, go, strategy=strategy)
            for residency in RESIDENCIES:
                with self.subTest(strategy, residency=residency):
                    job.verb("pause", "--residency", residency)
                    held = self.used()
                    self.assertEqual(held[0] == 0, residency != "device")

                    def resume():
                        status, answer, _ = self.site.call("resume", job.name)
                        self.assertTrue(status == 0 or answer["left"] == "paused", answer)
                        return status, answer

                    failures = self.assert_every_allocation(resume, held)
                    if residency != "device":
                        self.assertGreater(failures, 3)
            self.touch(go)
            self.finish(job, expected)

    def test_a_restore_fails_at_every_allocation(self):
        expected = self.expected_of_pieces()
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("pieces", PIECES, go, strategy=strategy)
                job.verb("checkpoint", "--stop")
                job.wait()

                def restore():
                    status, answer, _ = self.site.call("restore", job.name, "--detach")
                    self.assertEqual(job.alive(), status == 0)
                    return status, answer

                self.assertGreater(self.assert_every_allocation(restore, [0, 0]), 3)
                self.touch(go)
                self.finish(job, expected)

    def test_somebody_else_has_the_memory(self):
        go, expected = self.new_file(), self.expected_of_pieces()
        job = self.start("pieces", PIECES, go)
        before = self.used()[0]
        for residency in ("host", "disk"):
            job.verb("pause", "--residency", residency)
            filler = self.start("hold", (512 << 20) - before + (4 << 20), 0)
            filled = self.used()
            for _ in range(2):
                _, answer = job.refused("resume")
                self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "paused"), answer)
                self.assertRegex(answer["message"], r"needs .* free")
                self.assertIn("--gpus", answer["remedy"])
                self.assertEqual(self.used(), filled)
            filler.verb("cancel")
            filler.wait()
            job.verb("resume")
            self.assertEqual(self.used()[0], before)
        self.touch(go)
        self.finish(job, expected)


class Killed(SiteCase):
    """A program that is killed, wherever it is on its way, leaves the devices empty and its neighbour undisturbed."""

    def assert_empty_but(self, neighbour, held):
        lines = neighbour.output().count("\n")
        while neighbour.output().count("\n") < lines + 2:
            self.assertTrue(neighbour.alive())
            time.sleep(0.01)
        give_up = time.monotonic() + 60
        while self.used() != held and time.monotonic() < give_up:
            time.sleep(0.01)
        self.assertEqual(self.used(), held)

    def kill(self, job):
        os.kill(job.process()["pid"], signal.SIGKILL)
        self.assertEqual(job.wait(), -signal.SIGKILL)
        job.wait_for_ghost_to_leave()

    def test_after_it_was_brought_back(self):
        neighbour = self.start("trainer", 1 << 20, ready="turn")
        held = self.used()
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                job = self.start("trainer", 4 << 20, strategy=strategy, ready="turn")
                job.verb("pause", "--residency", "host")
                job.verb("resume")
                self.kill(job)
                self.assert_empty_but(neighbour, held)
                job = self.start("trainer", 4 << 20, strategy=strategy, ready="turn")
                job.verb("checkpoint")
                self.kill(job)
                job.verb("restore", "--detach")
                self.kill(job)
                self.assert_empty_but(neighbour, held)

    def test_while_its_memory_is_copied(self):
        neighbour = self.start("trainer", 1 << 20, ready="turn")
        held = self.used()
        for strategy in STRATEGIES:
            for verb, point in (("pause", "store-inside"), ("resume", "load-inside"), ("checkpoint", "snapshot-inside")):
                with self.subTest(strategy, verb=verb):
                    job = self.start("trainer", 4 << 20, strategy=strategy, ready="turn")
                    self.kill_at(job, verb, point)
                    self.assert_empty_but(neighbour, held)

    def kill_at(self, job, verb, point):
        """The program is killed while the ghost stands at `point` of the verb."""
        fault = {"STASIS_GHOST_FAULT": f"{point}:stop"}
        if verb == "resume":
            job.verb("pause", "--residency", "host", **fault)
        options = ["--residency", "host"] if verb == "pause" else []
        asked = subprocess.Popen([built("bin/stasis"), verb, "--json", job.name, *options], env=self.site.env(**fault),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        ghost = self.await_stopped_ghost(job, asked)
        os.kill(job.process()["pid"], signal.SIGKILL)
        os.kill(ghost, signal.SIGCONT)
        answer = json.loads(asked.communicate(timeout=120)[0])
        self.assertEqual(job.wait(), -signal.SIGKILL)
        self.assertTrue(asked.returncode != 0 or verb == "checkpoint", answer)
        job.wait_for_ghost_to_leave()

    def ghosts(self, job):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
                if words[0].endswith("/stasis-ghost") and {job.name, self.site.state} <= set(words):
                    yield int(pid)

    def await_stopped_ghost(self, job, asked):
        """Nothing tells when somebody else's process has stopped."""
        while asked.poll() is None:
            for pid in self.ghosts(job):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                        return pid
            time.sleep(0.005)
        self.fail(f"the verb ended with {asked.communicate()[0]}")


class Threads(SiteCase):
    """Whatever threads are doing when a pause comes, they go on with it afterwards."""

    def test_threads_and_libraries_that_come_and_go(self):
        # Where the driver's device files are, and under a name as theirs.
        file, device = tempfile.mkstemp(prefix="nvidia-stasis-test-", dir="/dev")
        os.close(file)
        self.addCleanup(os.unlink, device)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("churn", 16, built("tests/nvml/libnvidia-ml.so.1"), go, strategy=strategy,
                                 STASIS_FAKE_DEVICE=device)
                for _ in range(50 if FULL else 5):
                    job.verb("pause")
                    job.verb("resume")
                self.touch(go)
                self.finish(job, "ready\nall right\n")

    def test_threads_that_synchronise_while_it_is_paused(self):
        for strategy in STRATEGIES:
            for frozen in (True, False):
                with self.subTest(strategy, frozen=frozen):
                    self.synchronise(strategy, [] if frozen else ["--no-freeze"])

    def synchronise(self, strategy, options):
        go, counts = self.new_file(), self.new_file("counts")
        with open(counts, "wb") as file:
            file.truncate(8 * 8)
        job = self.start("synchronize", counts, go, strategy=strategy)

        def numbers():
            with open(counts, "rb") as file:
                return struct.unpack("8Q", file.read())

        def await_all_moving():
            before = numbers()
            while not all(now > then for now, then in zip(numbers(), before)):
                self.assertTrue(job.alive(), job.output())
                time.sleep(0.005)

        for _ in range(3 if FULL else 1):
            await_all_moving()
            job.verb("pause", *options)
            held = numbers()
            time.sleep(0.2)  # in which whoever could come past would
            # Who was not frozen may have had a call behind it that it had not counted yet.
            most = 1 if options else 0
            self.assertLessEqual(max(now - then for now, then in zip(numbers(), held)), most)
            job.verb("resume")
        await_all_moving()
        self.touch(go)
        self.finish(job, "ready\nsame\n")


class CannotAnswer(SiteCase):
    """A process that is stopped or traced answers nothing. No verb waits longer for it than it says."""

    @contextlib.contextmanager
    def stopped(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.await_state(pid, "T")
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def traced(self, pid):
        """By a debugger that holds the thread `pid`."""
        libc = ctypes.CDLL(None, use_errno=True)
        seize, interrupt, detach = 0x4206, 0x4207, 17
        wait_all = 0x40000000
        if libc.ptrace(seize, pid, None, None) != 0 or libc.ptrace(interrupt, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "trace the program")
        os.waitpid(pid, wait_all)
        try:
            yield
        finally:
            libc.ptrace(detach, pid, None, None)

    @staticmethod
    def await_state(pid, state):
        while True:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == state:
                    return
            time.sleep(0.005)

    def control_thread(self, pid):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as comm:
                if comm.read().strip() == "stasis-control":
                    return int(tid)
        raise AssertionError("no control thread")

    def refused_in_time(self, job, verb, *options):
        """The verb ends by itself, with an error that leaves the task as it was."""
        _, answer = job.refused(verb, *options, "--deadline", "1s", timeout=60)
        self.assertIn(answer["code"], ("FAILED_PRECONDITION", "TIMEOUT"), answer)
        self.assertIn(answer["left"], ("unchanged", "rolled-back"), answer)
        return answer["message"]

    def test_a_running_task(self):
        for strategy in STRATEGIES:
            job = self.start("trainer", 1 << 16, strategy=strategy, ready="turn")
            pid = job.process()["pid"]
            for how, held, expected in ((self.stopped, pid, "stopped by a signal"), (self.traced, pid, "debugger"),
                                        (self.traced, self.control_thread(pid), "debugger")):
                for verb, options in (("pause", ()), ("checkpoint", ()), ("checkpoint", ("--stop",)), ("migrate", ("--gpus", "1,0"))):
                    with self.subTest(strategy, how=how.__name__, verb=verb, held=held == pid):
                        with how(held):
                            self.assertIn(expected, self.refused_in_time(job, verb, *options))
                            self.assertEqual([task["state"] for task in self.site.tasks()], ["running"])
                        job.verb("pause")
                        job.verb("resume")
            job.verb("cancel")
            job.wait()
            job.verb("rm")

    def test_a_paused_task(self):
        """The stop arrives while it is frozen, and holds it when it is let go of."""
        for strategy in STRATEGIES:
            for residency in ("device", "host"):
                with self.subTest(strategy, residency=residency):
                    go = self.new_file()
                    self.touch(go)
                    expected = self.undisturbed("pieces", 5, go)
                    wait = self.new_file()
                    job = self.start("pieces", 5, wait, strategy=strategy)
                    job.verb("pause", "--residency", residency)
                    pid = job.process()["pid"]
                    os.kill(pid, signal.SIGSTOP)
                    _, answer = job.refused("resume", timeout=120)
                    self.assertEqual(answer["left"], "paused", answer)
                    self.assertIn("stopped by a signal", answer["message"])
                    os.kill(pid, signal.SIGCONT)
                    job.verb("resume")
                    self.touch(wait)
                    self.finish(job, expected)


class FoundLate(SiteCase):

    def test_what_cannot_be_carried_comes_after_pauses_that_worked(self):
        steps, when = 6, 3
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                folder = os.path.dirname(self.new_file("1"))
                for step in range(1, steps + 1):
                    self.touch(os.path.join(folder, str(step)))
                expected = self.undisturbed("managed", folder, steps, when)
                folder = os.path.dirname(self.new_file("1"))
                job = self.start("managed", folder, steps, when, strategy=strategy)
                for step in range(1, steps + 1):
                    for verb in ("pause", "checkpoint"):
                        if step <= when:
                            job.verb(verb)
                        else:
                            _, answer = job.refused(verb)
                            self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", "unchanged"), answer)
                            self.assertIn("cuMemAllocManaged", answer["message"])
                        if step <= when and verb == "pause":
                            job.verb("resume")
                    self.touch(os.path.join(folder, str(step)))
                    job.wait_for_output(f"step {step} ")
                self.finish(job, expected)


if __name__ == "__main__":
    unittest.main()
