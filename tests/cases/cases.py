"""What the tests of this folder share: a site, and programs in Python that use a device."""

import os
import sys
import unittest

from stasis_job import Site

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
FULL = os.environ.get("STASIS_TEST_FULL") == "1"
STRATEGIES = ("reconstruct", "driver-checkpoint")


def command(program, *arguments):
    return [sys.executable, "-B", os.path.join(PROGRAMS, program + ".py"), *map(str, arguments)]


class SiteCase(unittest.TestCase):
    node = ("--gpus", "2", "--memory", "512MiB")

    def setUp(self):
        self.site = self.enterContext(Site(*self.node))
        self.count = 0

    def new_file(self, name="go"):
        """A path in a folder of its own, for a program that waits for it."""
        self.count += 1
        folder = os.path.join(self.site.folder.name, f"files-{self.count}")
        os.mkdir(folder)
        return os.path.join(folder, name)

    @staticmethod
    def touch(path):
        with open(path, "x", encoding="utf-8"):
            pass

    def undisturbed(self, program, *arguments, **extra):
        """What the program prints when nobody disturbs it."""
        result = self.site.node.run(*command(program, *arguments), **extra)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def start(self, program, *arguments, strategy="reconstruct", options=(), ready="ready", **extra):
        """A task that has printed `ready`."""
        self.count += 1
        job = self.site.start(f"{program}-{self.count}", *command(program, *arguments),
                              options=["--strategy", strategy, *options], **extra)
        job.wait_for_output(ready)
        return job

    def used(self):
        return [device["memory_used"] for device in self.site.node.devices()]

    def finish(self, job, expected):
        """The program ends by itself, and has printed what it prints undisturbed."""
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), expected)

    def oom_after(self, allocations, gpu=0):
        kind = "none" if allocations is None else f"oom-after={allocations}"
        self.assertEqual(self.site.node.smi("fault", "--gpu", str(gpu), "--kind", kind).returncode, 0)
