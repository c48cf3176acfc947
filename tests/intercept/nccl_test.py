#!/usr/bin/env python3
"""NCCL in one process: a program whose ranks are paused anywhere ends as if nothing had been, and what cannot be carried is
refused by name while the program goes on."""

import os
import random
import subprocess
import tempfile
import threading
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
DEVICES = 4
STRATEGIES = (RECONSTRUCT, DRIVER_CHECKPOINT)


class Ranks:
    """nccl_ranks, and its lines as they come."""

    def __init__(self, case, how, ranks, rounds, seed=1, **extra):
        self.process = subprocess.Popen([built("tests/programs/nccl_ranks"), how, str(ranks), str(rounds), str(seed)],
                                        env=case.node.env(**extra), text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        self.lines = []

    def read_until(self, start):
        while not self.lines or not self.lines[-1].startswith(start):
            self.lines.append(self.process.stdout.readline())
            assert self.lines[-1], f"the program has ended: {self.lines}"

    def end(self):
        """The lines of the ranks."""
        self.lines += self.process.stdout.readlines()
        assert self.process.wait(timeout=60) == 0, self.lines
        return [line for line in self.lines if line.startswith("rank")]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Steps:
    """nccl_steps: each step is answered by a line that starts with it."""

    def __init__(self, case, **extra):
        self.process = subprocess.Popen([built("tests/programs/nccl_steps")], env=case.node.env(**extra), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        self.answers = {}
        assert self.process.stdout.readline() == "ready\n"

    def send(self, *steps):
        self.process.stdin.write("".join(step + "\n" for step in steps))
        self.process.stdin.flush()

    def answer(self, step):
        """The next answer to this step; those of others may come before."""
        while not self.answers.get(step):
            line = self.process.stdout.readline()
            assert line, "the program has ended"
            words = line.split()
            known = " ".join(words[:2]) if words[1:] and words[1] in "01" and not words[0].startswith("abort-") else words[0]
            self.answers.setdefault(known, []).append(line[len(known):].strip())
        return self.answers[step].pop(0)

    def main(self, step):
        self.send(step)
        return self.answer(step)

    def rank(self, number, step):
        return self.main(f"{step} {number}")

    def both(self, step):
        """The step of both ranks at the same time."""
        self.send(f"{step} 0", f"{step} 1")
        return [self.answer(f"{step} 0"), self.answer(f"{step} 1")]

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class NcclTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", str(DEVICES), "--memory", "512MiB"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def managed(self, folder):
        return {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_TASK": folder, "STASIS_DRIVER": self.driver}

    # ---- ranks at work

    def disturbed(self, how, ranks, rounds, strategy, seed, placements=lambda _: ()):
        """What the ranks end with, and how often they were paused."""
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="stasis-task-") as folder:
            program = Ranks(self, how, ranks, rounds, **self.managed(folder))
            pauses = 0
            with wait_for_task(folder, program.process.pid) as task:
                try:
                    while True:
                        extents = task.pause(strategy)
                        task.unpause(extents, self.driver, placements(pauses))
                        pauses += 1
                        threading.Event().wait(chance.random() * 0.02)
                except ConnectionError:
                    pass
                except TaskError as error:
                    self.assertIn("the process is ending", str(error))
            return program.end(), pauses

    def undisturbed(self, how, ranks, rounds):
        return Ranks(self, how, ranks, rounds).end()

    def check_disturbed(self, how, ranks, rounds, placements=lambda _: (), strategies=STRATEGIES):
        expected = self.undisturbed(how, ranks, rounds)
        for strategy in strategies:
            for seed in range(5 if FULL else 1):
                with self.subTest(how=how, ranks=ranks, strategy=strategy, seed=seed):
                    result, pauses = self.disturbed(how, ranks, rounds, strategy, seed, placements)
                    self.assertEqual(result, expected)
                    self.assertGreater(pauses, 2)

    def test_a_thread_for_each_rank(self):
        for ranks in (1, 2, 4):
            self.check_disturbed("threads", ranks, 150)

    def test_one_thread_for_all_ranks(self):
        self.check_disturbed("group", 4, 200)

    def test_communicators_that_come_and_go(self):
        self.check_disturbed("churn", 3, 60)

    def test_on_other_devices_each_time(self):
        def turned(pause):
            return [(device, (device + pause + 1) % DEVICES) for device in range(DEVICES)]
        self.check_disturbed("threads", 4, 150, turned, [RECONSTRUCT])
        self.check_disturbed("churn", 4, 60, turned, [RECONSTRUCT])


if __name__ == "__main__":
    unittest.main()
