"""Images that are encrypted at rest: a task through every verb by the public key alone, and back by the identity."""

import contextlib
import glob
import json
import os
import signal
import subprocess
import tempfile
import unittest

import hung
from stasis_job import GIVE_UP_SECONDS, Site, built

ROUNDS, SEED = 20, 7
SECRET = f"xq7-the-password-of-the-job-{os.getpid()}-8Zp"


class Encrypted(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = Site("--memory", "512MiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)
        self.go = os.path.join(self.site.folder.name, "command", "go")
        os.makedirs(os.path.dirname(self.go))
        self.identity = os.path.join(self.site.folder.name, "identity")
        self.key = self.images("keygen", self.identity)
        self.images("encrypt-to", self.key["public_key"])

    def images(self, verb, *arguments, fails=False, **extra):
        command = [built("bin/stasis"), "images", verb, "--json", *map(str, arguments)]
        result = hung.run_within(GIVE_UP_SECONDS, command, env=self.site.env(**extra), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode != 0, fails, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def finish(self, job, expected):
        with open(self.go, "x", encoding="utf-8"):
            pass
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual([line for line in job.output().splitlines() if line != "ready"], expected.splitlines())

    def assert_no_trace(self):
        """Of what the task has in its memory, where anything but its own records lies."""
        self.assertGreater(self.look_through(self.site.state), 5)
        for scratch in glob.glob("/dev/shm/stasis-scratch-*"):  # of other tests at most
            self.look_through(scratch)

    def look_through(self, top):
        looked_at = 0
        for folder, _, files in os.walk(top):
            for name in set(files) - {"task.json"}:
                with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
                    looked_at += 1
                    self.assertNotIn(SECRET.encode(), file.read(), os.path.join(folder, name))
        return looked_at

    def test_by_the_public_key_alone_and_back_by_the_identity(self):
        program = [built("tests/programs/expandable"), str(ROUNDS), str(SEED)]
        undisturbed = self.site.node.run(*program, timeout=120)
        self.assertEqual(undisturbed.returncode, 0, undisturbed.stderr)
        job = self.site.start("job", *program, self.go, options=["--strategy", self.strategy], PASSWORD=SECRET)
        job.wait_for_output("ready")
        job.verb("checkpoint")
        job.verb("pause", "--residency", "disk")
        job.verb("checkpoint")
        os.kill(job.read_json("status.json")["ghost_pid"], signal.SIGKILL)  # who takes its place has no identity either
        job.verb("resume")
        job.verb("checkpoint", "--stop")
        job.wait()
        self.assert_no_trace()

        answer = self.images("verify")
        self.assertEqual(answer["damages"], [])
        self.assertEqual(answer["sealed_images"], answer["images"])
        self.assertEqual({image["encrypted_to"] for image in self.images("ls")["images"]}, {self.key["id"]})
        status, refused = job.refused("restore")
        self.assertEqual((refused["code"], refused["left"]), ("PERMISSION_DENIED", "unchanged"), refused)
        self.assertIn(self.key["id"], refused["message"])
        self.assertIn("STASIS_IDENTITY", refused["message"])
        other = os.path.join(self.site.folder.name, "other")
        self.images("keygen", other)
        status, refused = job.refused("restore", STASIS_IDENTITY=other)
        self.assertEqual(refused["code"], "PERMISSION_DENIED", refused)

        answer = self.images("verify", STASIS_IDENTITY=self.identity)
        self.assertEqual((answer["damages"], answer["sealed_images"], answer["sealed_chunks"]), ([], 0, 0))
        self.images("rm", "job/000001")
        self.site.collect()
        exported = os.path.join(self.site.folder.name, "exported")
        self.images("export", "job/000003", exported, fails=True)
        self.images("export", "job/000003", exported, STASIS_IDENTITY=self.identity)
        with open(exported, "rb") as file:
            self.assertNotIn(SECRET.encode(), file.read())

        job.verb("restore", "--detach", STASIS_IDENTITY=self.identity)
        self.assert_no_trace()
        self.finish(job, undisturbed.stdout)
        # What a ghost that was killed in a dump leaves.
        left = tempfile.mkdtemp(prefix="stasis-scratch-", dir="/dev/shm")
        os.symlink(left, job.path("dump.partial"))
        job.wait_for_ghost_to_leave()
        self.site.ok("rm", "job")
        self.assertFalse(os.path.exists(left))


class EncryptedByDriverCheckpoint(Encrypted):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
