#!/usr/bin/env python3
"""Every refused call is named by the refusal, and a program that was refused runs on, undisturbed.

The calls are made on a driver that says yes to all of them: no device here carries out what most of them ask for. One
process makes all of them; some, with STASIS_TEST_FULL=1 each, are the only one of a task that `stasis pause` is told to
pause.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
import unittest

import hung
import softgpu
from softgpu import Node, built, die_with_parent
from stasis_job import Site
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, STRATEGIES, TaskError, wait_for_task

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_MATRIX_SEED", time.time_ns() % 2**32 if FULL else 5))
STEPS = 3


def expected():
    """What the steps of the program print."""
    value, lines = 7, ["ready:"]
    for number in range(1, STEPS + 1):
        lines.append(f"step {number}: {value}")
        value = (value * 3 + number) % 2**32
    return lines + ["end:"]


class RefusedTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        listed = subprocess.run([built("bin/refused"), "--list"], capture_output=True, text=True, check=True,
                                env=os.environ | {"LD_LIBRARY_PATH": built("tests/agreeable")})
        cls.calls = dict(line.split() for line in listed.stdout.splitlines())
        assert len(cls.calls) > 50, cls.calls

    def test_all_are_named(self):
        driver = built("tests/agreeable/libcuda.so.1")
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with (self.subTest(STRATEGIES[strategy]), Node("--gpus", "1", "--memory", "64MiB") as node,
                  tempfile.TemporaryDirectory(prefix="stasis-task-") as folder,
                  hung.started([built("bin/refused"), "all"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               preexec_fn=die_with_parent,
                               env=node.env(LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder,
                                            STASIS_DRIVER=driver, STASIS_STRATEGY=STRATEGIES[strategy],
                                            LD_LIBRARY_PATH=os.path.dirname(driver))) as process):
                task = self.enterContext(wait_for_task(folder, process.pid))
                output = [process.stdout.readline()]
                self.assertEqual(dict(task.hello()["taints"]), {name: by == "both" for name, by in self.calls.items()})
                for _ in range(STEPS):
                    task.quiesce()
                    with self.assertRaises(TaskError) as raised:
                        task.release(strategy)
                    task.go_on()
                    self.assertEqual(raised.exception.code, "UNSUPPORTED")
                    named = set(str(raised.exception).rpartition(": ")[2].split(", "))
                    self.assertEqual(named, {name for name, by in self.calls.items() if by == "both" or strategy == RECONSTRUCT})
                    process.stdin.write("\n")
                    process.stdin.flush()
                    output.append(process.stdout.readline())
                process.stdin.close()
                output.append(process.stdout.read())
                self.assertEqual("".join(output).splitlines(), expected())
                self.assertEqual(process.wait(), 0)

    def install(self):
        """A folder with `stasis` as the build has it, where the software device's driver is the agreeable one."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-agreeable-", dir=softgpu.BUILD))
        for path in ("bin/stasis", "bin/stasis-init", "bin/stasis-ghost", "bin/softgpud", "bin/softgpu-smi", "bin/refused",
                     "lib/libstasis.so", "lib/softgpu/libcudart.so.13"):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            os.link(os.path.realpath(built(path)), os.path.join(folder, path))
        shutil.copy(built("tests/agreeable/libcuda.so.1"), os.path.join(folder, "lib", "softgpu", "libcuda.so.1"))
        return folder

    def test_stasis_pause_names_each(self):
        installed = self.install()
        before = softgpu.BUILD
        self.addCleanup(setattr, softgpu, "BUILD", before)
        softgpu.BUILD = installed
        chosen = random.Random(SEED)
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            refused = sorted(name for name, by in self.calls.items() if by == "both" or strategy == RECONSTRUCT)
            with Site("--gpus", "1", "--memory", "64MiB") as site:
                for number, name in enumerate(refused if FULL else chosen.sample(refused, 2)):
                    with self.subTest(name, strategy=STRATEGIES[strategy], seed=SEED):
                        self.pause_one(site, f"r{number}", name, strategy)

    def pause_one(self, site, job_name, call, strategy):
        folder = os.path.join(site.folder.name, job_name)
        os.mkdir(folder)
        job = site.start(job_name, built("bin/refused"), call, folder, STEPS, options=["--strategy", STRATEGIES[strategy]])
        job.wait_for_output("ready:")
        for number in range(1, STEPS + 1):
            _, answer = job.refused("pause")
            self.assertEqual(answer["code"], "UNSUPPORTED")
            self.assertIn(f" has called {call}, ", answer["message"])
            self.assertEqual(answer["left"], "unchanged", answer)
            with open(os.path.join(folder, str(number)), "x", encoding="ascii"):
                pass
        self.assertEqual(job.wait(), 0)
        self.assertEqual(job.output().splitlines(), expected())


if __name__ == "__main__":
    unittest.main()
