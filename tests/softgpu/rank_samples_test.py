"""The samples whose ranks are processes, on softgpu: the lines of all ranks together are those of the host-only mode."""

import os
import re
import socket
import tempfile
import unittest

from rank_launcher import start_ranks, wait_for_ranks
from softgpu import Node, built

SAMPLES = ("ddp_train", "pipeline_train", "tp_train")
FEW_STEPS = ("--steps", "20")


class RankSamples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", "8", "--memory", "256MiB")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)

    def run_ranks(self, ranks, *command, port=None, **extra):
        """What all ranks have printed, sorted."""
        with tempfile.TemporaryFile("w+") as output:
            status = wait_for_ranks(start_ranks(ranks, command, self.node.env(**extra), port, stdout=output, stderr=output))
            output.seek(0)
            lines = output.read().splitlines()
        self.assertEqual(status, 0, lines)
        return sorted(lines)

    def reference(self, *command):
        result = self.node.run(*command, "--reference")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(result.stdout.splitlines())

    def check(self, name, *options, ranks=(1, 2, 4, 8)):
        program = built(os.path.join("samples", name))
        for count in ranks:
            with self.subTest(ranks=count):
                expected = self.reference(program, *options, "--ranks", str(count))
                self.assertEqual(len([line for line in expected if re.match(r"rank \d+ sha256", line)]), count)
                self.assertEqual(self.run_ranks(count, program, *options), expected)

    def test_ddp_train(self):
        self.check("ddp_train", *FEW_STEPS)

    def test_ddp_train_with_several_devices_a_process(self):
        program = built("samples/ddp_train")
        expected = self.reference(program, *FEW_STEPS, "--ranks", "6")
        for processes, devices in ((1, 6), (2, 3), (3, 2)):
            with self.subTest(processes=processes):
                self.assertEqual(self.run_ranks(processes, program, *FEW_STEPS, "--devices-per-rank", str(devices)), expected)

    def test_pipeline_train(self):
        self.check("pipeline_train", *FEW_STEPS)

    def test_pipeline_train_with_fewer_micro_batches_than_stages(self):
        for micro_batches in ("1", "2"):
            self.check("pipeline_train", *FEW_STEPS, "--micro-batches", micro_batches, ranks=(4,))

    def test_tp_train(self):
        self.check("tp_train", *FEW_STEPS)

    def test_tp_train_in_other_groups(self):
        for tensor in ("1", "4"):
            self.check("tp_train", *FEW_STEPS, "--tensor", tensor, ranks=(4,))

    def test_ranks_out_of_step(self):
        for name in SAMPLES:
            self.check(name, "--steps", "5", "--log-every", "3", "--pace-ms", "20", ranks=(4,))

    def test_the_launcher_has_the_port_itself(self):
        """As torchrun has, which says so."""
        with socket.socket() as store:
            store.bind(("127.0.0.1", 0))
            store.listen()
            lines = self.run_ranks(2, built("samples/ddp_train"), "--steps", "2", port=store.getsockname()[1],
                                   TORCHELASTIC_USE_AGENT_STORE="True")
        self.assertEqual(lines, self.reference(built("samples/ddp_train"), "--steps", "2", "--ranks", "2"))

    def test_the_devices_are_empty_afterwards(self):
        for name in SAMPLES:
            self.run_ranks(2, built(os.path.join("samples", name)), "--steps", "2")
            self.assertEqual([device["memory_used"] for device in self.node.devices()], [0] * 8, name)

    def test_an_environment_that_makes_no_sense(self):
        result = self.node.run(built("samples/ddp_train"), WORLD_SIZE="2", RANK="2")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, "ddp_train: RANK '2': expected a whole number from 0 to 1\n")


if __name__ == "__main__":
    unittest.main()
