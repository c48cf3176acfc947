#!/usr/bin/env python3
"""What is rebuilt: addresses, and the variables of modules."""

import unittest

from cases import FULL, STRATEGIES, SiteCase


class Rebuilt(SiteCase):

    def insist(self, job, verb, *options):
        """The verb, until no mapping of the program has come into the way; where one has, it is named as long as it is there, and
        nothing is lost."""
        while True:
            status, answer, _ = self.site.call(verb, job.name, *options)
            if status == 0:
                return
            self.assertEqual(answer["code"], "ALREADY_EXISTS", answer)
            self.assertRegex(answer["message"], "there is [0-9a-f]+-[0-9a-f]+|whoever was there has gone")
            self.assertIn(answer["left"], ("unchanged",) if verb == "restore" else ("paused", "rolled-back"), answer)
            if verb != "resume" and answer["left"] == "paused":
                self.insist(job, "resume")

    def test_addresses_while_the_program_maps_memory_everywhere(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("mappings", go, strategy=strategy)
                for _ in range(20 if FULL else 2):
                    for residency in ("host", "device"):
                        # Not frozen, it also gives up again what is in the way.
                        self.insist(job, "pause", "--residency", residency, "--no-freeze")
                        self.insist(job, "resume")
                self.insist(job, "checkpoint", "--stop")
                job.wait()
                self.insist(job, "restore", "--detach")
                self.touch(go)
                self.finish(job, "ready\nTrue\n")

    def test_variables_however_they_were_written(self):
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("variables", go)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("variables", go, strategy=strategy)
                job.verb("pause", "--residency", "host")
                job.verb("resume", *(["--gpus", "1,0"] if strategy == "reconstruct" else []))
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach", "--gpus", "0,1")
                self.touch(go)
                self.finish(job, expected)


if __name__ == "__main__":
    unittest.main()
