"""Something of a job is killed while all its ranks are paused, checkpointed or restored: a rank's program, its ghost, its CRIU, or
the coordinator. Afterwards all ranks run on, or all come back from the last image; never half of each. The output is that of an
undisturbed run."""

import contextlib
import os
import random
import signal
import subprocess
import time
import unittest

from softgpu import die_with_parent
from stasis_ranks import RankSite, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
RANKS = 2
STEPS = 300
# What the verbs say of themselves, in order, by the part of the operation that it belongs to.
PHASES = {
    "pause": {"prepare": "wait for the device", "commit": "release the device", "hold": "store device memory"},
    "checkpoint": {"prepare": "wait for the device", "communicators": "end communicators", "criu": "close connections",
                   "dump": "save", "join": "make communicators", "commit": "commit the image"},
    "checkpoint --stop": {"drain": "wait for the device", "criu": "close connections", "dump": "save",
                          "commit": "commit the image", "end": "end the task"},
    "resume": {"load": "load device memory", "rebuild": "rebuild", "join": "make communicators"},
    "restore": {"criu": "restore processes", "processes": "restore processes", "rebuild": "rebuild",
                "join": "make communicators"},
}
VICTIMS = ("program", "ghost", "coordinator")
# In the normal run.
FEW = (("pause", "prepare", "program"), ("pause", "commit", "coordinator"), ("checkpoint", "dump", "ghost"),
       ("checkpoint --stop", "criu", "criu"), ("restore", "processes", "ghost"))


def all_cases():
    for verb, phases in PHASES.items():
        for phase in phases:
            for victim in ("criu",) if phase == "criu" else VICTIMS:
                yield verb, phase, victim


def processes():
    """(pid, command line, environment) of all that can be looked at."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as environment:
                yield int(pid), line.read().split(b"\0"), environment.read().split(b"\0")


def children(pid):
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="utf-8") as file:
            yield from map(int, file.read().split())


def is_criu(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip() == "criu"


class Attack:
    """A verb on a job, and what is killed in it."""

    def __init__(self, job, verb, phase, victim, chance):
        self.job, self.verb, self.text, self.victim = job, verb.split(), PHASES[verb][phase], victim
        self.rank, self.delay = chance.randrange(RANKS), chance.random() * 0.03

    def ghosts(self):
        task, run = self.job.ranks[self.rank].name.encode(), self.job.site.run_dir.encode()
        return [pid for pid, line, _ in processes() if line[0].endswith(b"stasis-ghost") and task in line and run in line]

    def programs(self):
        folder = os.path.join(self.job.site.run_dir, "tasks", self.job.ranks[self.rank].name)
        mark = f"STASIS_TASK={folder}".encode()
        return [pid for pid, line, environment in processes() if mark in environment and b"ddp_train" in line[0]]

    def await_criu(self, coordinator):
        """It is about to start, and is soon done."""
        ghosts = self.ghosts()
        while coordinator.poll() is None:
            for ghost in ghosts:
                with contextlib.suppress(OSError):
                    found = list(filter(is_criu, children(ghost)))
                    if found:
                        return found
        return []

    def targets(self, coordinator):
        """Pids to kill."""
        if self.victim == "criu":
            return self.await_criu(coordinator)
        time.sleep(self.delay)
        if self.victim == "coordinator":
            return [coordinator.pid] if coordinator.poll() is None else []
        if self.victim == "program":
            return self.programs()
        ghosts = self.ghosts()
        return [self.serving(ghosts)] if ghosts else []

    def serving(self, ghosts):
        """Not its guardian, which looks the same."""
        with contextlib.suppress(OSError, KeyError):
            pid = self.job.ranks[self.rank].read_json("status.json")["ghost_pid"]
            if pid in ghosts:
                return pid
        return min(ghosts)

    def strike(self, coordinator):
        targets = self.targets(coordinator)
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(targets)

    def run(self):
        """(whether something was killed, exit status of the verb, what it said)."""
        command = [built("bin/stasis"), self.verb[0], self.job.name, *self.verb[1:]]
        if self.verb[0] == "restore":
            command.append("--detach")
        struck, said = False, []
        with subprocess.Popen(command, env=self.job.site.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as coordinator:
            for line in coordinator.stderr:
                said.append(line)
                if not struck and line.strip() == f"stasis: {self.text}":
                    struck = self.strike(coordinator)
        return struck, coordinator.returncode, "".join(said)


class Kills(unittest.TestCase):
    def setUp(self):
        self.site = RankSite("--gpus", str(RANKS), "--memory", "256MiB").__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.command = [built("samples/ddp_train"), "--steps", str(STEPS), "--log-every", "5"]
        reference = self.site.node.run(*self.command, "--reference", "--ranks", str(RANKS))
        self.assertEqual(reference.returncode, 0, reference.stderr)
        self.expected = sorted(reference.stdout.splitlines())

    def start(self, name):
        """A job with one committed image."""
        job = self.site.start_ranks(name, RANKS, *self.command, "--pace-ms", "50", **self.site.rest(name))
        job.ranks[0].wait_for_output("step 5 ")
        job.verb("checkpoint")
        return job

    def prepare(self, job, verb):
        if verb == "resume":
            job.verb("pause", "--residency", "host")
        if verb == "restore":
            job.verb("checkpoint", "--stop")

    def bring_back(self, job, said):
        """Whatever the job has been left in, all of it runs afterwards; how."""
        status, answer = job.call("resume")
        if status == 0:
            return "resumed"
        # That a program was killed while it was frozen may be found only now.
        self.assertIn(answer["code"], ("FAILED_PRECONDITION", "PEER_DIED"), (answer, said))
        if "is running" in answer["message"]:
            return "ran on"
        self.assertIn("ended", answer["message"], said)
        status, answer = job.call("cancel")
        self.assertTrue(status == 0 or "has ended" in answer["message"], answer)
        job.verb("restore", "--detach")
        return "restored"

    def check(self, number, verb, phase, victim):
        chance = random.Random(f"{SEED} {number} {verb} {phase} {victim}")
        with self.subTest(seed=SEED, number=number, verb=verb, phase=phase, victim=victim):
            job = self.start(f"job{number}")
            self.prepare(job, verb)
            attack = Attack(job, verb, phase, victim, chance)
            struck, status, said = attack.run()
            self.site.hurry(job.name)
            # It may have ended by itself when nothing was there to be killed any more.
            over = not any(rank.alive() for rank in job.ranks)
            if over and job.wait() == 0 and job.lines() == self.expected:
                how = "had ended"
            else:
                how = self.bring_back(job, said)
                self.assertEqual(job.wait(), 0, (said, job.lines()))
            self.assertEqual(job.lines(), self.expected, said)
            print(f"{verb:18} {phase:14} {victim:12} rank {attack.rank} {'killed' if struck else 'missed'}, "
                  f"exit {status}: {how}", flush=True)
            self.site.ok("rm", job.name)

    def test_never_half_of_each(self):
        cases = list(all_cases()) * 2 if FULL else FEW
        for number, case in enumerate(cases):
            self.check(number, *case)


if __name__ == "__main__":
    unittest.main()
