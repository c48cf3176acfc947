"""Checkpoints for which the device itself tells what the store has: what is copied, and that what comes back is right."""

import re
import unittest

from stasis_job import Site, built


class DeviceHash(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "1", "--memory", "1GiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def start(self, *options):
        return self.site.start("mlp", built("samples/mlp_train"), "--log-every", "10", *options, **self.site.rest())

    def test_frozen_weights_are_not_copied_again(self):
        job = self.start("--steps", "100000000", "--freeze-after", "10")
        job.wait_for_output("step 10 ")
        for snapshot in ("auto", "off"):
            first = job.verb("checkpoint", "--device-hash", "off", "--snapshot", snapshot)
            self.assertEqual(first["hashed_on_device_bytes"], 0)
            self.assertEqual(first["copied_bytes"], first["active_bytes"])
            second = job.verb("checkpoint", "--device-hash", "on", "--snapshot", snapshot)
            self.assertEqual(second["hashed_on_device_bytes"], second["active_bytes"])
            self.assertLessEqual(second["copied_bytes"], first["copied_bytes"] * 0.05)
            self.assertLessEqual(second["added_bytes"], first["image_bytes"] * 0.05)

    def test_training_restored_from_what_was_not_copied(self):
        undisturbed = self.site.node.run(built("samples/mlp_train"), "--log-every", "10", "--steps", "200", timeout=300)
        job = self.start("--steps", "200", "--pace-ms", "200")
        for step in (10, 30, 50):
            job.wait_for_output(f"step {step} ")
            answer = job.verb("checkpoint", "--device-hash", "on")
            self.assertGreater(answer["hashed_on_device_bytes"], 0)
        self.assertLess(answer["copied_bytes"], answer["active_bytes"] / 4)
        job.kill()
        job.verb("restore", "--detach")
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output())
        result = re.compile(r"^sha256 .*$", re.M)
        self.assertEqual(result.search(job.output())[0], result.search(undisturbed.stdout)[0])

    def test_a_slow_device_is_left_alone(self):
        job = self.start("--steps", "100000000")
        job.wait_for_output("step 10 ")
        self.assertEqual(job.verb("checkpoint")["hashed_on_device_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
