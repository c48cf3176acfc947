"""A program that sees many devices and uses one, restored where there are fewer, or other ones."""

import os
import re
import sys
import unittest

from stasis_job import Site, built

MEMORY = ["--memory", "256MiB"]
# As a process does that loads a framework and works on the processor.
ASKS_FOR_THE_VERSION = """
import ctypes, os, sys, time
version = ctypes.c_int()
status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
print("asked", status, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print("initialised", ctypes.CDLL("libcuda.so.1").cuInit(0), flush=True)
"""


class Devices(unittest.TestCase):
    def setUp(self):
        self.site = self.enterContext(Site("--gpus", "4", *MEMORY))
        self.command = os.path.join(self.site.folder.name, "go")

    def stopped(self, used, strategy="reconstruct"):
        job = self.site.start("job", built("tests/programs/devices"), str(used), self.command, options=["--strategy", strategy])
        job.wait_for_output("ready")
        job.verb("checkpoint", "--stop")
        job.wait()
        return job

    def finish(self, job, used):
        """What the first use of each device came to."""
        with open(self.command, "x", encoding="utf-8"):
            pass
        self.assertEqual(job.wait(), 0, job.output())
        uses = re.findall(r"device \d total 268435456 first use: (.*)", job.output())
        with open(self.command, encoding="utf-8"):
            undisturbed = self.site.node.run(built("tests/programs/devices"), "0", self.command).stdout
        self.assertIn("count 4\n", job.output())
        kept = re.search(r"kept \d+ on ", undisturbed).group()
        self.assertTrue(job.output().endswith(f"{kept}{used}\n"), job.output())
        return uses

    def test_where_there_are_fewer_the_one_that_is_used_has_a_place(self):
        job = self.stopped(3)
        self.site.node.restart("--gpus", "2", *MEMORY)
        _, answer = job.refused("restore", "--detach")
        self.assertEqual((answer["code"], answer["left"]), ("NOT_FOUND", "unchanged"), answer)
        self.assertIn("--gpus", answer["remedy"])
        _, answer = job.refused("restore", "--detach", "--gpus", "2")
        self.assertEqual(answer["code"], "NOT_FOUND", answer)
        job.verb("restore", "--detach", "--gpus", "0")
        self.assertTrue(self.site.node.devices()[0]["pids"])
        # One more finds room; the others are only names.
        gone = "cudaErrorDevicesUnavailable"
        self.assertEqual(self.finish(job, 3), [gone, "works", gone, "works"])

    def test_where_there_are_as_many_all_come_along(self):
        job = self.stopped(2)
        self.site.node.restart("--gpus", "4", *MEMORY)
        job.verb("restore", "--detach", "--gpus", "0")
        self.assertTrue(self.site.node.devices()[0]["pids"])
        self.assertEqual(self.finish(job, 2), ["works"] * 4)

    def test_where_there_is_room_again_they_part(self):
        job = self.stopped(3)
        self.site.node.restart("--gpus", "1", *MEMORY)
        job.verb("restore", "--detach", "--gpus", "0")
        job.verb("checkpoint", "--stop")
        job.wait()
        self.site.node.restart("--gpus", "4", *MEMORY)
        job.verb("restore", "--detach", "--gpus", "3,2,1,0")
        self.assertEqual(self.finish(job, 3), ["works"] * 4)

    def test_the_drivers_own_checkpoint_hears_of_every_device_that_the_driver_has(self):
        """Of a task that sees one of four devices, too: NVIDIA's driver refuses a list that lacks one."""
        job = self.site.start("job", built("tests/programs/holder"), "8",
                              options=["--strategy", "driver-checkpoint", "--gpus", "1"])
        job.wait_for_output("ready")
        place = 1
        for verb, there in (("migrate", 3), ("migrate", 0), ("restore", 2), ("migrate", 1)):
            if verb == "restore":
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach", "--gpus", str(there))
            else:
                job.verb(verb, "--gpus", str(there))
            used = [bool(device["memory_used"]) for device in self.site.node.devices()]
            self.assertEqual(used, [device == there for device in range(4)], f"{verb} from {place} to {there}")
            place = there

    def test_a_process_that_has_not_initialised_the_driver(self):
        """NVIDIA's driver does not know it, and has nothing of it to carry."""
        for strategy in ("driver-checkpoint", "reconstruct"):
            command = os.path.join(self.site.folder.name, strategy)
            job = self.site.start(strategy, sys.executable, "-c", ASKS_FOR_THE_VERSION, command, options=["--strategy", strategy])
            job.wait_for_output("asked 0")
            job.verb("pause")
            job.verb("resume")
            job.verb("checkpoint")
            job.kill()
            job.verb("restore", "--detach")
            with open(command, "x", encoding="utf-8"):
                pass
            self.assertEqual(job.wait(), 0, job.output())
            self.assertTrue(job.output().endswith("asked 0\ninitialised 0\n"), job.output())

    def test_the_drivers_own_checkpoint_wants_as_many(self):
        job = self.stopped(0, "driver-checkpoint")
        self.site.node.restart("--gpus", "2", *MEMORY)
        _, answer = job.refused("restore", "--detach")
        self.assertEqual((answer["code"], answer["left"]), ("NOT_FOUND", "unchanged"), answer)


if __name__ == "__main__":
    unittest.main()
