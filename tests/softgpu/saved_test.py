"""The samples' own checkpoints: a run that was saved and gone on with by another prints what an undisturbed one does."""

import os
import re
import tempfile
import unittest

from rank_launcher import start_ranks, wait_for_ranks
from softgpu import Node, built

ALONE = {
    "mlp_train": ["--steps", "30", "--batch", "32", "--width", "32", "--log-every", "1"],
    "gpt_train": ["--steps", "12", "--width", "16", "--context", "16"],
    "cnn_train": ["--steps", "12", "--batch", "16", "--channels", "2", "--hidden", "16", "--test", "100", "--log-every", "1"],
    "stencil": ["--width", "64", "--height", "64", "--iterations", "240", "--report-every", "20"],
}
AT = {"mlp_train": "17", "gpt_train": "5", "cnn_train": "7", "stencil": "100"}
RANKS = ["ddp_train", "pipeline_train", "tp_train"]


def results(lines):
    """The lines that depend on what was computed."""
    return [line for line in lines if re.match(r"(step|iteration|test|rank \d+|sha256) ", line)]


class Saved(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", "2", "--memory", "512MiB")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)

    def setUp(self):
        self.file = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "state")

    def lines(self, *command):
        result = self.node.run(*command)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout[-2000:])
        return result.stdout.splitlines()

    def check(self, run, at):
        """`run(options)`: what all of it has printed."""
        whole = results(run())
        first = run("--save", self.file, "--save-at", at)
        self.assertEqual([line for line in first if "saved" in line], [first[-1]])
        before, after = results(first), results(run("--load", self.file))
        self.assertTrue(before and after)
        self.assertEqual(before + after, whole)

    def test_programs_alone(self):
        for name, options in ALONE.items():
            with self.subTest(name):
                self.check(lambda *more, name=name, options=options: self.lines(built(f"samples/{name}"), *options, *more),
                           AT[name])

    def run_ranks(self, *command):
        with tempfile.TemporaryFile("w+") as output:
            status = wait_for_ranks(start_ranks(2, command, self.node.env(), None, stdout=output, stderr=output))
            output.seek(0)
            lines = output.read().splitlines()
        self.assertEqual(status, 0, lines)
        return [line for line in lines if not line.startswith("rank")] + sorted(line for line in lines if line.startswith("rank"))

    def test_ranks(self):
        for name in RANKS:
            with self.subTest(name):
                self.check(lambda *more, name=name: self.run_ranks(built(f"samples/{name}"), "--steps", "10", *more), "4")
                self.assertEqual(len(os.listdir(os.path.dirname(self.file))), 2)
                for rank in (0, 1):
                    os.remove(f"{self.file}.{rank}")

    def fails(self, status, words, *command):
        result = self.node.run(*command)
        self.assertEqual(result.returncode, status, result)
        self.assertIn(words, result.stderr)

    def test_files_that_cannot_be_used(self):
        command = [built("samples/gpt_train"), *ALONE["gpt_train"]]
        self.lines(*command, "--save", self.file, "--save-at", "3")
        with open(self.file, "rb") as file:
            content = file.read()
        self.fails(1, "was saved by a run with other options", *command, "--seed", "2", "--load", self.file)
        for size in (0, 5, len(content) // 2, len(content) - 1):
            with open(self.file, "wb") as file:
                file.write(content[:size])
            self.fails(1, "is damaged or cut short", *command, "--load", self.file)
        self.fails(1, "cannot open", *command, "--load", self.file + "x")
        self.fails(1, "cannot create", *command, "--save", "/nonexistent/x", "--save-at", "1")
        self.fails(2, "need each other", *command, "--save", self.file)
        self.fails(2, "not for --reference", *command, "--reference", "--load", self.file)


if __name__ == "__main__":
    unittest.main()
