"""Memory that the program manages itself, through every verb, on the same and on other devices."""

import os
import signal
import unittest

from stasis_job import Site, built

ROUNDS, SEED = 60, 7


class Memory(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = Site("--gpus", "2", "--memory", "512MiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.go = os.path.join(self.site.folder.name, "command", "go")
        os.makedirs(os.path.dirname(self.go))

    def start(self, *program):
        job = self.site.start("job", built(program[0]), *map(str, program[1:]), options=["--strategy", self.strategy])
        job.wait_for_output("ready")
        return job

    def undisturbed(self, *program):
        result = self.site.node.run(built(program[0]), *map(str, program[1:]), timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def finish(self, job, expected):
        with open(self.go, "x", encoding="utf-8"):
            pass
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual([line for line in job.output().splitlines() if line != "ready"], expected.splitlines())

    def test_expandable_segments(self):
        self.through_every_verb("tests/programs/expandable", ROUNDS, SEED)

    def test_memory_that_processes_share(self):
        self.through_every_verb("tests/programs/share", 6, "host")

    def test_events_that_processes_share(self):
        self.through_every_verb("tests/programs/share", 6, "events")

    def through_every_verb(self, *program):
        expected = self.undisturbed(*program)
        job = self.start(*program, self.go)
        before = self.site.node.devices()[0]["memory_used"]
        for residency in ("device", "host", "disk"):
            job.verb("pause", "--residency", residency)
            held = self.site.node.devices()[0]["memory_used"]
            self.assertEqual(held > 0, residency == "device")
            if residency == "device":  # another takes over what this one holds
                os.kill(job.read_json("status.json")["ghost_pid"], signal.SIGKILL)
            job.verb("resume")
            self.assertEqual(self.site.node.devices()[0]["memory_used"], before)
        job.verb("migrate", "--gpus", "1,0")
        self.assertEqual(self.site.node.devices()[1]["memory_used"], before)
        for snapshot in ("device", "off"):
            job.verb("checkpoint", "--snapshot", snapshot)
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach", "--gpus", "0,1")
        self.assertEqual(self.site.node.devices()[0]["memory_used"], before)
        self.finish(job, expected)


class MemoryByDriverCheckpoint(Memory):
    strategy = "driver-checkpoint"

    def test_events_that_processes_share(self):
        """Nobody says that the driver's own checkpoint carries them."""
        expected = self.undisturbed("tests/programs/share", 6, "events")
        job = self.start("tests/programs/share", 6, "events", self.go)
        _, answer = job.refused("pause")
        self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", "unchanged"), answer)
        self.assertIn("cuIpcGetEventHandle", answer["message"])
        self.finish(job, expected)


if __name__ == "__main__":
    unittest.main()
