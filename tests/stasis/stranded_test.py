"""A ghost and its guardian are killed together, and with them what they held of a task. The task cannot go on: every verb says so
and what helps, none makes an image of what is left, and it comes back from the last one."""

import contextlib
import glob
import json
import os
import select
import signal
import subprocess
import time
import unittest

import hung
from softgpu import die_with_parent
from stasis_job import Site, built
from stasis_ranks import GhostLog


class Stranded(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "1", "--memory", "256MiB").__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.command = [built("samples/vector"), "--rounds", "40", "--elements", "65536"]
        self.expected = self.site.node.run(*self.command).stdout.splitlines()[1:-1]

    def start(self):
        job = self.site.start("vector", *self.command, "--pace-ms", "2000", **self.site.rest())
        job.wait_for_output("round 1 ")
        job.verb("checkpoint")
        job.wait_for_ghost_to_leave()
        return job

    def kill_ghosts(self, job):
        """Returns when they are dead."""
        killed = []
        for pid in self.ghosts(job):
            killed.append(os.pidfd_open(pid))
            self.addCleanup(os.close, killed[-1])
        self.assertEqual(len(killed), 2, "a ghost and its guardian")
        # Neither sees the other one's end.
        for kill in (signal.SIGSTOP, signal.SIGKILL):
            for pidfd in killed:
                signal.pidfd_send_signal(pidfd, kill)
        for pidfd in killed:
            self.assertTrue(select.select([pidfd], [], [], 60)[0])

    def ghosts(self, job):
        """Without their children that are about to become other programs: a guardian says what it is."""
        words = {pid: hung.read(f"/proc/{pid}/cmdline").split(" ") for pid in os.listdir("/proc") if pid.isdigit()}
        found = {pid for pid in words if words[pid][0].endswith("stasis-ghost") and {job.name, self.site.state} <= set(words[pid])}
        parents = {pid: hung.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1:2] for pid in found}
        return [int(pid) for pid in found if "--guard" in words[pid] or not found & set(parents[pid])]

    def state(self, job):
        return next(task["state"] for task in self.site.tasks() if task["name"] == job.name)

    def check(self, job):
        images, process = self.site.image_names(job.name), job.process()
        for verb in ("resume", "pause", "checkpoint"):
            status, answer = job.refused(verb)
            self.assertEqual((status, answer["code"], answer["left"]), (4, "FAILED_PRECONDITION", "unchanged"), answer)
            self.assertIn("is held by a ghost that is gone", answer["message"])
            self.assertIn("stasis cancel vector", answer["remedy"])
            self.assertIn(self.state(job), ("paused", "stranded"))
        self.assertEqual(self.site.image_names(job.name), images)
        job.verb("cancel", "--grace", "1ms")
        self.assertEqual(glob.glob(f"/sys/fs/cgroup/**/stasis-{job.name}-{process['init_pid']}", recursive=True), [])
        job.verb("restore", "--detach")
        self.site.hurry()
        self.assertEqual(job.wait(), 0)
        self.assertEqual([line for line in job.output().splitlines() if line.startswith("round ")],
                         [line for line in self.expected if line.startswith("round ")])

    def test_one_that_was_paused(self):
        job = self.start()
        job.verb("pause")
        self.kill_ghosts(job)
        self.assertEqual(self.state(job), "stranded")
        self.check(job)

    def test_one_that_was_paused_and_not_frozen(self):
        job = self.start()
        job.verb("pause", "--no-freeze")
        self.kill_ghosts(job)
        self.check(job)

    def cgroup_around(self, job):
        """All of the task is in it, or a skip."""
        with open("/proc/self/mounts", encoding="ascii") as file:
            mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
        outer = f"{mounts[0]}/stasis-outer-{os.getpid()}" if mounts else ""
        try:
            os.mkdir(outer)
        except OSError as error:
            self.skipTest(f"no cgroup v2 to write to: {error}")
        self.addCleanup(self.remove_cgroup, mounts[0], outer)
        pids = [job.process()["init_pid"]]
        for pid in pids:
            pids += map(int, hung.read(f"/proc/{pid}/task/{pid}/children").split())
            self.write(f"{outer}/cgroup.procs", str(pid))
        return outer

    def remove_cgroup(self, mount, outer):
        """What is in it, where the test has failed, is for the end of the site."""
        for folder in (*glob.glob(f"{outer}/stasis-*"), outer):
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                pids = file.read().split()
            for pid in pids:
                with contextlib.suppress(OSError):  # it is ending
                    self.write(f"{mount}/cgroup.procs", pid)
            os.rmdir(folder)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def test_one_that_does_not_thaw_as_a_cgroup_around_it_is_frozen(self):
        job = self.start()
        outer = self.cgroup_around(job)
        job.verb("pause")
        inner = f"{outer}/stasis-{job.name}-{job.process()['init_pid']}"
        self.assertTrue(os.path.isdir(inner))
        self.kill_ghosts(job)
        self.write(f"{outer}/cgroup.freeze", "1")
        job.verb("cancel", "--grace", "1ms")
        self.assertFalse(os.path.isdir(inner))
        self.assertEqual(self.state(job), "killed")

    def test_one_that_was_being_dumped(self):
        job = self.start()
        log = GhostLog(job)
        self.addCleanup(log.close)
        with self.command_of("checkpoint", job):
            self.assertTrue(log.wait_for("step dump in phase deaf", 60))
            self.kill_ghosts(job)
        self.check(job)

    def test_one_that_criu_is_at_work_in_without_them(self):
        """Where it stands can be seen when CRIU has ended; that is waited for."""
        job = self.start()
        criu = os.path.join(self.site.folder.name, "criu")
        with open(criu, "w", encoding="utf-8") as script:
            script.write(f"#!/bin/sh\nCRIU_STOPS=1 LD_PRELOAD={built('lib/libkill_awaited.so')} exec {os.environ['STASIS_CRIU']} \"$@\"\n")
        os.chmod(criu, 0o700)
        with self.command_of("checkpoint", job, STASIS_CRIU=criu):
            stopped = self.await_stopped("criu dump ")
            self.addCleanup(self.go_on, stopped)
            log = GhostLog(job)
            self.addCleanup(log.close)
            self.kill_ghosts(job)
        with hung.started([built("bin/stasis"), "pause", "--json", job.name], env=self.site.env(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=die_with_parent) as verb:
            self.assertTrue(log.wait_for("is at work for a ghost that is gone", 60))
            self.go_on(stopped)
            answer = json.loads(verb.communicate(timeout=60)[0])
        self.assertIn("is held by a ghost that is gone", answer["message"])
        self.check(job)

    @staticmethod
    def go_on(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def await_stopped(self, words):
        """The process of this test with that in its command line, once it stands still: only its parent is told."""
        give_up = time.monotonic() + 60
        while True:
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                command = hung.read(f"/proc/{pid}/cmdline")
                if words in command and self.site.state in command and \
                        hung.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["T"]:
                    return pid
            self.assertLess(time.monotonic(), give_up, words)
            time.sleep(0.01)

    def test_one_of_which_nobody_has_written_down_that_it_stands_still(self):
        job = self.start()
        self.stop_in("release-after", "pause", job, STASIS_GHOST_FAULT="release-after:stop")
        self.assertEqual(self.state(job), "running")
        self.check(job)

    def command_of(self, verb, job, **extra):
        return hung.started([built("bin/stasis"), verb, job.name], env=self.site.env(**extra), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def stop_in(self, point, verb, job, **extra):
        """The ghost stands still there, and is killed."""
        with self.command_of(verb, job, **extra) as command:
            self.await_stopped(f"stasis-ghost --task {job.name} ")
            self.kill_ghosts(job)
            self.assertNotEqual(command.wait(60), 0, point)

    def resume_until(self, point):
        job = self.start()
        job.verb("pause", STASIS_GHOST_FAULT=f"{point}:stop")
        self.stop_in(point, "resume", job)
        self.check(job)

    def test_one_that_was_thawed_to_be_resumed(self):
        self.resume_until("thaw-after")

    def test_one_that_had_got_back_what_it_had(self):
        self.resume_until("attach-after")

    def test_one_that_only_had_to_be_let_go_on(self):
        self.resume_until("rejoin-after")


if __name__ == "__main__":
    unittest.main()
