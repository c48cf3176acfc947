"""Every step of every verb fails once, or the ghost is killed there: the program runs on and ends as if nothing had been.

STASIS_TEST_FULL=1 takes every verb at every point; else, for each point, a seeded one of those whose way leads past it.
"""

import os
import random
import re
import sys
import time
import unittest

from stasis_job import GIVE_UP_SECONDS, Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_UNDO_SEED", "7"))
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
VERBS = ("pause", "pause-host", "pause-disk", "checkpoint", "checkpoint-stop", "checkpoint-hungry", "migrate", "resume",
         "resume-host", "resume-disk", "restore")


def points():
    with open(os.path.join(SOURCES, "ghost", "fault.h"), encoding="utf-8") as file:
        found = re.findall(r'X\(k\w+, "([a-z-]+)"\)', file.read())
    assert len(found) > 20, found
    return [point for point in found if not point.startswith("vote-")]  # a task of its own does not vote


STEP = re.compile(r"\bstep ([a-z-]+) in phase ")


def expected_result():
    value = 0x01010101
    for _ in range(1001):
        value = (value * 1664525 + 1013904223) % 2**32
    return f"ready\nresult {value}\n"


class Undo(unittest.TestCase):
    strategy = "reconstruct"
    verbs = VERBS

    @classmethod
    def setUpClass(cls):
        cls.site = Site("--gpus", "2", "--memory", "256MiB")
        cls.site.__enter__()
        cls.addClassCleanup(cls.site.__exit__, None, None, None)
        cls.count = 0

    def start(self, mode="plain"):
        type(self).count += 1
        self.command = os.path.join(self.site.folder.name, f"command-{self.count}", "go")
        os.makedirs(os.path.dirname(self.command))
        job = self.site.start(f"job-{self.count}", built("tests/programs/stubborn"), mode, self.command,
                              options=["--strategy", self.strategy])
        job.wait_for_output("ready")
        return job

    def call(self, job, verb, fault=None):
        """The verb with the fault armed in the ghost that it starts: (exit status, answer)."""
        name, _, option = verb.partition("-")
        arguments = {"pause": ["--residency", option or "device"], "migrate": ["--gpus", "1,0"], "restore": ["--detach"],
                     "checkpoint": ["--stop"] if option == "stop" else []}.get(name, [])
        extra = {"STASIS_GHOST_FAULT": fault} if fault else {}
        if fault:
            job.wait_for_ghost_to_leave()
        status, answer, _ = self.site.call(name, job.name, *arguments, **extra)
        return status, answer

    def must(self, job, verb, fault=None):
        status, answer = self.call(job, verb, fault)
        self.assertEqual(status, 0, answer)
        return answer

    def finish(self, job):
        with open(self.command, "x", encoding="utf-8"):
            pass
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), expected_result())

    def one(self, verb, fault):
        """True when the fault lay on the verb's way."""
        point, action = fault.split(":")
        job = self.start("hungry" if verb == "checkpoint-hungry" else "plain")
        if verb.startswith("resume"):
            # The ghost that holds the pause is the one that resumes; what fails in the pause itself is no case here.
            status, _ = self.call(job, verb.replace("resume", "pause"), fault)
            if status != 0:
                self.finish(job)
                return False
            status, answer = self.call(job, "resume")
        elif verb == "restore":
            self.must(job, "checkpoint-stop")
            job.wait()
            status, answer = self.call(job, verb, fault)
        else:
            status, answer = self.call(job, verb, fault)
        hit = status != 0
        if hit and action == "fail":
            self.assertIn(point, answer["message"], answer)
        self.settle(job, verb, status, answer)
        self.finish(job)
        self.forget(job)
        return hit

    def forget(self, job):
        """Nothing is left in the store of a task without images, whatever happened to the ghosts that wrote them."""
        job.wait_for_ghost_to_leave()
        names = [name for name in self.site.image_names(job.name) if name.endswith(".image") and name != "held.image"]
        if names:
            self.site.images("rm", "--force", *(f"{job.name}/{name.removesuffix('.image')}" for name in names))
        self.site.collect()
        report = self.site.images("verify")
        self.assertEqual((report["damages"], report["images"], report["packs"]), ([], 0, 0), report)
        packs = os.path.join(self.site.state, "store", "packs")
        self.assertEqual(os.listdir(packs) if os.path.isdir(packs) else [], [])
        self.assertEqual(self.site.image_names(job.name), [])

    def settle(self, job, verb, status, answer):
        """Brings the task back to running, checking that nothing was lost on the way."""
        name = verb.partition("-")[0]
        if status == 0:
            if name == "pause":
                # The fault may lie on the way back, in the ghost that holds the pause.
                again, second = self.call(job, "resume")
                self.assertTrue(again == 0 or second.get("left") != "lost", second)
                if job.alive() and again != 0:
                    again, second = self.call(job, "resume")
                    self.assertTrue(again == 0 or second["code"] == "FAILED_PRECONDITION", second)
            elif verb == "checkpoint-stop":
                job.wait()
                # The ghost with the fault may not have ended yet, and then it is the one that restores.
                again, second = self.call(job, "restore")
                if again != 0:
                    self.assertTrue("fault point" in second["message"] or second["code"] == "PEER_DIED", second)
                    again, second = self.call(job, "restore")
                    # A ghost that was killed after the last step has restored all the same.
                    self.assertTrue(again == 0 or second["code"] == "ALREADY_EXISTS", second)
            return
        self.assertNotEqual(answer.get("left"), "lost", answer)
        if name == "resume":
            again, second = self.call(job, "resume")
            # A ghost that was killed after the last step has resumed all the same.
            self.assertTrue(again == 0 or second["code"] == "FAILED_PRECONDITION", second)
        elif name == "restore":
            again, second = self.call(job, "restore")
            self.assertTrue(again == 0 or second["code"] == "ALREADY_EXISTS", second)
        elif verb == "checkpoint-stop" and not job.alive():
            self.must(job, "restore")

    def steps(self, verb):
        """Those that the verb takes undisturbed, as its ghost writes them down."""
        job = self.start("hungry" if verb == "checkpoint-hungry" else "plain")
        if verb.startswith("resume"):
            self.must(job, verb.replace("resume", "pause"))
        elif verb == "restore":
            self.must(job, "checkpoint-stop")
            job.wait()
        with open(job.path("ghost.log"), "a+", encoding="utf-8") as log:
            log.seek(0, os.SEEK_END)
            self.must(job, verb)
            if verb.startswith("pause"):
                self.must(job, "resume")
            job.wait_for_ghost_to_leave()
            steps = set(STEP.findall(log.read()))
        if verb == "checkpoint-stop":
            job.wait()
            self.must(job, "restore")
        self.finish(job)
        self.forget(job)
        return steps

    def orders(self):
        """For each point all verbs, those first whose way leads past its step."""
        chosen = random.Random(SEED)
        ways = {verb: self.steps(verb) for verb in self.verbs}
        for point in points():
            order = list(self.verbs)
            chosen.shuffle(order)
            step = point.rpartition("-")[0]
            yield point, sorted(order, key=lambda verb: step not in ways[verb])

    def test_every_point(self):
        missed = []
        for point, order in self.orders():
            hits = 0
            for verb in order:
                for action in ("fail", "kill"):
                    with self.subTest(point=point, verb=verb, action=action):
                        hits += self.one(verb, f"{point}:{action}")
                if hits and not FULL:
                    break
            if not hits:
                missed.append(point)
        self.assertEqual(missed, [], "no verb comes past these points")
        print(f"undo: {self.count} runs at {len(points())} points ({self.strategy})", file=sys.stderr, flush=True)

    def test_the_last_image_survives_a_failed_checkpoint(self):
        job = self.start()
        first = self.must(job, "checkpoint")
        for fault in ("commit-before:fail", "save-inside:kill", "commit-inside:kill"):
            status, answer = self.call(job, "checkpoint", fault)
            self.assertNotEqual(status, 0, answer)
        job.verb("pause")
        job.verb("resume")
        job.kill()
        answer = self.must(job, "restore")
        self.assertEqual(answer["image"], first["image"])
        self.finish(job)
        self.forget(job)

    def hungry_checkpoint(self, job, *options):
        """With nothing of the task in the store, so that writing it takes its time; when it did not just hold so much that there is
        no room on the device, and has taken some meanwhile: (exit status, answer)."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            for name in self.site.image_names(job.name):
                self.site.images("rm", "--force", f"{job.name}/{name.removesuffix('.image')}")
            self.site.collect()
            status, answer, _ = self.site.call("checkpoint", job.name, "--snapshot", "device", *options)
            done = answer["snapshot"] != "device" if status == 0 else not answer["message"].startswith("snapshot: ")
            if done or time.monotonic() > give_up:
                return status, answer
            job.wait_for_ghost_to_leave()

    def test_a_program_that_needs_the_snapshot_s_memory_has_it(self):
        job = self.start("hungry")
        status, answer = self.hungry_checkpoint(job)
        self.assertEqual((status, answer.get("snapshot")), (0, "device, then host"), answer)
        job.wait_for_ghost_to_leave()
        status, answer = self.hungry_checkpoint(job, "--snapshot-host-share", "0")
        self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
        self.assertIn("--snapshot-host-share", answer["remedy"])
        self.finish(job)
        self.forget(job)


class UndoByDriverCheckpoint(Undo):
    strategy = "driver-checkpoint"
    verbs = VERBS


if __name__ == "__main__":
    unittest.main()
