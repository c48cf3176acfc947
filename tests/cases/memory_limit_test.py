#!/usr/bin/env python3
"""Jobs and ghosts whose control groups limit their memory, as Slurm, containers and systemd do."""

import contextlib
import json
import os
import subprocess
import time
import unittest

from cases import STRATEGIES, SiteCase, command
from softgpu import built, die_with_parent

MIB = 1 << 20
HELD = 100 * MIB


class Group:
    """A control group of this test's own, of either version."""

    def __init__(self):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = {line.split(":")[1]: line.strip().split(":", 2)[2] for line in file}
        name = f"stasis-test-{os.getpid()}-{os.urandom(3).hex()}"
        if "memory" in own:
            self.folder = os.path.join("/sys/fs/cgroup/memory", own["memory"].lstrip("/"), name)
            self.limit_file, self.usage_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            self.folder = os.path.join("/sys/fs/cgroup", name)
            self.limit_file, self.usage_file = "memory.max", "memory.current"

    def __enter__(self):
        os.mkdir(self.folder)
        return self

    def __exit__(self, *_):
        """The last of its processes may just be on their way out."""
        give_up = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                return os.rmdir(self.folder)
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.folder} is still in use")
            time.sleep(0.02)

    def path(self, name):
        return os.path.join(self.folder, name)

    def limit(self, size):
        with open(self.path(self.limit_file), "w", encoding="ascii") as file:
            file.write(str(size))

    def usage(self):
        with open(self.path(self.usage_file), encoding="ascii") as file:
            return int(file.read())

    def killed(self):
        """How many of its processes have been killed for want of memory."""
        names = [name for name in ("memory.oom_control", "memory.events") if os.path.exists(self.path(name))]
        with open(self.path(names[0]), encoding="ascii") as file:
            return int(dict(line.split() for line in file).get("oom_kill", 0))

    def within(self, *words):
        """A command line that runs this one in the group."""
        return ["/bin/sh", "-c", f'echo $$ >{self.path("cgroup.procs")}; exec "$@"', "sh", *words]


@unittest.skipUnless(os.geteuid() == 0, "control groups are made by root")
class Limits(SiteCase):

    def setUp(self):
        super().setUp()
        self.group = self.enterContext(Group())

    def hold(self, strategy, within=False):
        words = command("hold", HELD, 0)
        self.count += 1
        job = self.site.start(f"job-{self.count}", *(self.group.within(*words) if within else words),
                              options=["--strategy", strategy])
        job.wait_for_output("ready")
        return job

    def end(self, job):
        self.assertTrue(job.alive())
        self.assertEqual(self.group.killed(), 0)
        job.verb("cancel")
        job.wait()
        job.wait_for_ghost_to_leave()
        self.group.limit(1 << 40)

    def test_what_is_saved_is_not_charged_to_the_job(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                job = self.hold(strategy, within=True)
                self.group.limit(self.group.usage() + HELD // 4)
                for verb, *options in (("pause", "--residency", "host"), ("resume",), ("pause", "--residency", "disk"), ("resume",),
                                       ("checkpoint", "--snapshot", "host"), ("checkpoint", "--snapshot", "off")):
                    job.verb(verb, *options)
                self.end(job)

    def test_a_ghost_that_may_not_have_so_much_refuses_before_it_takes_any(self):
        for strategy in STRATEGIES:
            job = self.hold(strategy)
            self.group.limit(self.group.usage() + HELD - 20 * MIB)
            for verb, *options in (("pause", "--residency", "host"), ("checkpoint", "--snapshot", "host")):
                with self.subTest(strategy, verb=verb):
                    asked = subprocess.run(self.group.within(built("bin/stasis"), verb, "--json", job.name, *options),
                                           env=self.site.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                           timeout=120, preexec_fn=die_with_parent, check=False)
                    answer = json.loads(asked.stdout)
                    self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
                    self.assertRegex(answer["message"], r"100\.0 MiB.* host memory")
                    self.assertTrue(answer["remedy"], answer)
                    job.wait_for_ghost_to_leave()
            self.end(job)


if __name__ == "__main__":
    unittest.main()
