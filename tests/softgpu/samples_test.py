"""The samples on softgpu: results against their host-only modes, run to run, and under a memory limit."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from softgpu import Node, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples")


def sample(name):
    return built(os.path.join("samples", name))


def line_of(text, prefix):
    found = [line for line in text.splitlines() if line.startswith(prefix)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} lines begin with '{prefix}':\n{text[-2000:]}")
    return found[0]


class Samples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", "2", "--memory", "1GiB")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)

    def run_ok(self, *command, timeout=240):
        result = self.node.run(*command, timeout=timeout)
        self.assertEqual(result.returncode, 0, result.stdout[-2000:] + result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def reference(self, *command):
        result = self.node.run(*command, "--reference", timeout=240)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def check_losses(self, device, reference):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, text in (("device", device), ("reference", reference)):
                paths.append(os.path.join(folder, name))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(text)
            result = subprocess.run([sys.executable, os.path.join(SAMPLES, "compare_losses.py"), *paths],
                                    capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_mlp_train_learns(self):
        command = [sample("mlp_train")] + ([] if FULL else ["--steps", "80"])
        first = self.run_ok(*command)
        accuracy = float(re.match(r"test accuracy (\S+)", line_of(first, "test accuracy"))[1])
        self.assertGreaterEqual(accuracy, 0.80 if FULL else 0.75)
        self.check_losses(first, self.reference(*command))
        second = self.run_ok(*command, "--device", "1")
        self.assertEqual(line_of(first, "sha256"), line_of(second, "sha256"))

    def test_mlp_train_with_frozen_weights(self):
        command = [sample("mlp_train"), "--log-every", "1"]
        frozen = self.run_ok(*command, "--steps", "5", "--freeze-after", "3")
        self.assertEqual(line_of(frozen, "sha256"), line_of(self.run_ok(*command, "--steps", "3"), "sha256"))

    def test_gpt_train(self):
        command = [sample("gpt_train"), "--steps", "12" if FULL else "6"]
        first = self.run_ok(*command)
        self.check_losses(first, self.reference(*command))
        self.assertEqual(first, self.run_ok(*command))

    def test_gpt_train_on_cublas(self):
        command = [sample("gpt_train"), "--steps", "12" if FULL else "6"]
        first = self.run_ok(*command, "--blas")
        self.check_losses(first, self.reference(*command))
        self.assertEqual(first, self.run_ok(*command, "--blas", "--device", "1"))
        # A kernel of OpenBLAS may add in the same order as the sample's own; not all of them do.
        results = {line_of(self.node.run(*command, "--blas", timeout=240, OPENBLAS_CORETYPE=core).stdout, "sha256")
                   for core in ("Prescott", "Haswell")}
        self.assertNotEqual(results, {line_of(self.run_ok(*command), "sha256")})

    def test_cnn_train(self):
        command = [sample("cnn_train"), "--steps", "25", "--test", "500", "--log-every", "5"]
        plain = self.run_ok(*command, "--dropout", "0")
        self.check_losses(plain, self.reference(*command, "--dropout", "0"))
        self.assertGreaterEqual(float(re.match(r"test accuracy (\S+)", line_of(plain, "test accuracy"))[1]), 0.65)

    def test_cnn_train_drops_the_same_every_time(self):
        command = [sample("cnn_train"), "--steps", "10", "--test", "100"]
        first = self.run_ok(*command)
        self.assertEqual(first, self.run_ok(*command, "--device", "1"))
        self.assertNotEqual(line_of(first, "sha256"), line_of(self.run_ok(*command, "--dropout", "0"), "sha256"))

    def test_stencil_is_exact(self):
        command = [sample("stencil")] + ([] if FULL else ["--iterations", "100"])
        reference = line_of(self.reference(*command), "sha256")
        for graph in ("capture", "explicit"):
            self.assertEqual(line_of(self.run_ok(*command, "--graph", graph), "sha256"), reference, graph)

    def test_vector(self):
        self.run_ok(sample("vector"))

    def test_nccl_ring(self):
        command = [sample("nccl_ring"), "--ranks", "2", "--rounds", "5"]
        expected = self.reference(*command).splitlines()[1:]
        for init in ("all", "group"):
            self.assertEqual(self.run_ok(*command, "--init", init).splitlines()[1:], expected, init)
        with tempfile.TemporaryDirectory() as folder, Node("--gpus", "2", "--memory", "256MiB") as other:
            for place, nodes in (("one", (self.node, self.node)), ("two", (self.node, other))):
                ranks = [nodes[rank].start(*command, "--rank", str(rank), "--id-file", os.path.join(folder, place))
                         for rank in (1, 0)]
                for rank in ranks:
                    out, error = rank.communicate(timeout=60)
                    self.assertEqual((rank.returncode, error), (0, ""))
                    self.assertEqual(out.splitlines()[1:], expected)
            self.assertEqual(os.listdir(folder), [])

    def test_counter_counts_per_request(self):
        program = self.node.start(sample("counter"), "--port", "0")
        try:
            port = int(re.search(r"127\.0\.0\.1:(\d+)", program.stdout.readline())[1])
            import socket
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rw") as lines:
                for expected in range(1, 6):
                    lines.write("inc\n")
                    lines.flush()
                    self.assertEqual(int(lines.readline().split()[-1]), expected)
                lines.write("quit\n")
                lines.flush()
            program.communicate(timeout=60)
            self.assertEqual(program.returncode, 0)
        finally:
            if program.poll() is None:
                program.kill()
                program.communicate()

    def test_too_little_memory_is_reported(self):
        with Node("--gpus", "1", "--memory", "16MiB") as small:
            result = small.run(sample("mlp_train"), "--steps", "1", "--width", "4096")
        self.assertEqual(result.returncode, 1)
        self.assertIn("out of memory", result.stderr)


if __name__ == "__main__":
    unittest.main()
