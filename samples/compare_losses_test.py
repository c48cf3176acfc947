#!/usr/bin/env python3
"""Tests of compare_losses.py."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("compare_losses.py")


def compare(first, second, *options):
    with tempfile.TemporaryDirectory() as name:
        paths = [pathlib.Path(name) / "first", pathlib.Path(name) / "second"]
        for path, text in zip(paths, (first, second)):
            path.write_text(text)
        return subprocess.run(
            [sys.executable, "-B", SCRIPT, *paths, *options], capture_output=True, text=True, timeout=20
        ).returncode


def log(losses, accuracy=None):
    lines = [f"step {step} loss {loss!r}\n" for step, loss in losses.items()]
    return "".join(lines) + ("" if accuracy is None else f"test accuracy {accuracy} (x)\n")


class CompareLosses(unittest.TestCase):
    def test_same(self):
        self.assertEqual(compare(log({1: 2.5, 100: 0.5}, 0.8), log({1: 2.5, 100: 0.5}, 0.8)), 0)

    def test_early_steps_are_compared_closely(self):
        self.assertEqual(compare(log({1: 2.5}), log({1: 2.5002})), 0)
        self.assertEqual(compare(log({1: 2.5}), log({1: 2.501})), 1)

    def test_late_steps_are_compared_loosely(self):
        self.assertEqual(compare(log({51: 0.50}), log({51: 0.52})), 0)
        self.assertEqual(compare(log({51: 0.50}), log({51: 0.60})), 1)
        self.assertEqual(compare(log({51: 0.50}), log({51: 0.52}), "--early-steps", "51"), 1)

    def test_accuracy(self):
        self.assertEqual(compare(log({1: 1.0}, 0.84), log({1: 1.0}, 0.845)), 0)
        self.assertEqual(compare(log({1: 1.0}, 0.84), log({1: 1.0}, 0.86)), 1)

    def test_not_a_number_is_never_near(self):
        nan = float("nan")
        for step in (1, 60):
            self.assertEqual(compare(log({step: nan, 2: 1.0}), log({step: 1.0, 2: 1.0})), 1)
            self.assertEqual(compare(log({step: 1.0, 2: 1.0}), log({step: nan, 2: 1.0})), 1)

    def test_what_cannot_be_compared(self):
        self.assertEqual(compare("", log({1: 1.0})), 2)
        self.assertEqual(compare(log({1: 1.0}), log({1: 1.0, 2: 1.0})), 2)
        self.assertEqual(compare(log({1: 1.0}, 0.8), log({1: 1.0})), 2)
        self.assertEqual(compare("step 1 loss x\n", log({1: 1.0})), 2)


if __name__ == "__main__":
    unittest.main()
