#!/usr/bin/env python3
"""What the samples do without a CUDA device: command lines, reference modes, the counter's protocol.

Usage: host_test.py DIR, where DIR holds the programs.
"""
import gzip
import hashlib
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = ("counter", "vector", "mlp_train", "stencil", "gpt_train", "cnn_train", "nccl_ring", "ddp_train", "pipeline_train", "tp_train")
TIMEOUT_S = 100
directory = None


def run(name, *arguments):
    return subprocess.run(
        [directory / name, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
    )


def run_reference(name, *arguments):
    result = run(name, "--reference", *arguments)
    if result.returncode != 0 or result.stderr:
        raise AssertionError(f"{name}: status {result.returncode}: {result.stderr}")
    return result.stdout.splitlines()


def losses(lines):
    return [float(match[1]) for line in lines if (match := re.match(r"step \d+ loss (\S+)$", line))]


class CommandLine(unittest.TestCase):
    def assert_usage_error(self, words, *command):
        result = run(*command)
        self.assertEqual(result.returncode, 2, command)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertTrue(result.stderr.startswith(command[0] + ": "), result.stderr)
        self.assertIn(words, result.stderr)

    def test_help_lists_the_options(self):
        for name in PROGRAMS:
            result = run(name, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)
            for option in ("--device", "--reference", "--help"):
                self.assertIn(option, result.stdout, name)

    def test_unknown_option(self):
        for name in PROGRAMS:
            self.assert_usage_error("unknown option '--bogus'", name, "--bogus", "1")
            self.assert_usage_error("unknown option 'stray'", name, "stray")

    def test_bad_values(self):
        for name in PROGRAMS:
            self.assert_usage_error("--device needs a value", name, "--device")
            self.assert_usage_error("--device '-1'", name, "--device", "-1")
            self.assert_usage_error("--device '1x'", name, "--device=1x")
            self.assert_usage_error("--device ''", name, "--device=")
            self.assert_usage_error("--reference takes no value", name, "--reference=1")
        self.assert_usage_error("--steps '0'", "mlp_train", "--steps", "0")
        self.assert_usage_error("--lr 'nan'", "mlp_train", "--lr", "nan")
        self.assert_usage_error("one of capture, explicit, none", "stencil", "--graph", "other")
        self.assert_usage_error("must be even", "stencil", "--iterations", "3")
        self.assert_usage_error("less than --ranks", "nccl_ring", "--ranks", "2", "--rank", "2")
        self.assert_usage_error("--rank needs --id-file", "nccl_ring", "--rank", "1")
        self.assert_usage_error("does not divide the number of ranks", "tp_train", "--reference", "--tensor", "2")
        self.assert_usage_error("multiple of --heads", "gpt_train", "--width", "10", "--heads", "4")


class NoDevice(unittest.TestCase):
    def test_a_device_that_is_not_there(self):
        """Whatever runtime and driver there are, none has that many devices."""
        for name in PROGRAMS:
            result = run(name, "--device", "1023")
            self.assertEqual(result.returncode, 1, result)
            self.assertIn("cudaSetDevice", result.stderr)
            self.assertIn("cudaError", result.stderr)


class Counter(unittest.TestCase):
    def start(self):
        server = subprocess.Popen([directory / "counter", "--reference"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        match = re.match(r"listening on 127\.0\.0\.1:(\d+)$", server.stdout.readline())
        return server, int(match[1])

    def connect(self, port):
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.addCleanup(client.close)
        lines = client.makefile("rw", newline="\n")
        self.addCleanup(lines.close)
        return client, lines

    def ask(self, lines, request):
        lines.write(request + "\n")
        lines.flush()
        return lines.readline()

    def test_counts_for_several_clients(self):
        server, port = self.start()
        _, first = self.connect(port)
        _, second = self.connect(port)
        self.assertEqual(self.ask(first, "get"), "0\n")
        self.assertEqual(self.ask(first, "inc"), "1\n")
        self.assertEqual(self.ask(second, "inc\r"), "2\n")
        self.assertEqual(self.ask(first, "get"), "2\n")
        self.assertTrue(self.ask(first, "nonsense").startswith("error: "))
        self.assertEqual(self.ask(second, "quit"), "bye\n")
        self.assertEqual(server.wait(timeout=10), 0)
        self.assertEqual(server.stdout.read(), "stopped at 2\n")

    def test_answers_lines_however_they_are_cut(self):
        _, port = self.start()
        client, lines = self.connect(port)
        for piece in (b"in", b"c\nget\ni", b"nc\n"):
            client.sendall(piece)
        self.assertEqual([lines.readline() for _ in range(3)], ["1\n", "1\n", "2\n"])

    def test_drops_a_client_that_sends_an_endless_line(self):
        _, port = self.start()
        bad, _ = self.connect(port)
        bad.sendall(b"x" * 1000)
        self.assertEqual(bad.recv(1), b"")
        _, good = self.connect(port)
        self.assertEqual(self.ask(good, "inc"), "1\n")

    def test_port_taken(self):
        _, port = self.start()
        result = run("counter", "--reference", "--port", str(port))
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot listen", result.stderr)


class References(unittest.TestCase):
    def test_vector(self):
        options = ("--elements", "1000", "--rounds", "3")
        lines = run_reference("vector", *options)
        self.assertEqual(lines, run_reference("vector", *options))
        self.assertEqual(len([line for line in lines if line.startswith("round ")]), 3)
        self.assertNotEqual(lines[-1], run_reference("vector", *options, "--seed", "2")[-1])

    def test_stencil_cools_towards_rest(self):
        lines = run_reference("stencil", "--width", "40", "--height", "30", "--iterations", "2050")
        residuals = [float(line.split()[3]) for line in lines if line.startswith("iteration ")]
        self.assertEqual(len(residuals), 41)
        self.assertEqual(residuals, sorted(residuals, reverse=True))
        self.assertLess(residuals[-1], 1e-3 * residuals[0])

    def test_stencil_bits(self):
        """Double precision is the same here: the residuals and the final field agree bit for bit."""
        width, height = 9, 7
        field = [[0.0] * width for _ in range(height)]
        field[0] = [400 * (j / (width - 1)) * (1 - j / (width - 1)) for j in range(width)]
        field[height // 3][width // 3] = 50.0
        residuals = []
        for _ in range(20):
            before = [row[:] for row in field]
            changes = []
            for i in range(1, height - 1):
                for j in range(1, width - 1):
                    old = before[i][j]
                    around = (before[i - 1][j] + before[i + 1][j]) + (before[i][j - 1] + before[i][j + 1])
                    changes.append(0.24 * (around - 4.0 * old))
                    field[i][j] = old + changes[-1]
            residuals.append(max(map(abs, changes)))
        digest = hashlib.sha256(struct.pack(f"<{width * height}d", *sum(field, []))).hexdigest()
        lines = run_reference(
            "stencil", "--width", "9", "--height", "7", "--iterations", "20", "--report-every", "10"
        )
        self.assertEqual([float(line.split()[3]) for line in lines[1:3]], [residuals[9], residuals[19]])
        self.assertEqual(lines[3], f"sha256 {digest}")

    def test_nccl_ring_bits(self):
        ranks, elements, seed, mask = 3, 5, 7, 0xFFFFFFFF

        def numbers(state, count):
            for _ in range(count):
                state = (state + 0x9E3779B97F4A7C15) % 2**64
                mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
                mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
                yield (mixed ^ (mixed >> 31)) & mask

        x = [list(numbers(seed * 1000003 + rank, elements)) for rank in range(ranks)]
        checksums = []
        for _ in range(4):
            x = [
                [((a ^ (b >> 7)) * 1664525 + b + 1013904223) & mask for a, b in zip(x[rank], x[rank - 1])]
                for rank in range(ranks)
            ]
            total = [sum(column) & mask for column in zip(*x)]
            x = [[((a << 5 | a >> 27) & mask) ^ t for a, t in zip(row, total)] for row in x]
            checksum = 0xCBF29CE484222325
            for value in total:
                checksum = ((checksum ^ value) * 0x100000001B3) % 2**64
            checksums.append(f"{checksum:016x}")
        digest = hashlib.sha256(struct.pack(f"<{ranks * elements}I", *sum(x, []))).hexdigest()
        options = ("--ranks", "3", "--elements", "5", "--rounds", "4", "--seed", "7")
        lines = run_reference("nccl_ring", *options)
        self.assertEqual([line.split()[-1] for line in lines[1:5]], checksums)
        self.assertEqual(lines[5], f"sha256 {digest}")

    def test_ranks_learn(self):
        for name, steps in (("ddp_train", "300"), ("pipeline_train", "100"), ("tp_train", "50")):
            lines = run_reference(name, "--ranks", "4", "--steps", steps)
            self.assertLess(losses(lines)[-1], 0.5 * losses(lines)[0], name)
            digests = dict(re.match(r"rank (\d) sha256 ([0-9a-f]{64})$", line).groups() for line in lines[-4:])
            self.assertEqual(sorted(digests), ["0", "1", "2", "3"], name)
            # All weights are everywhere; nowhere twice; at every second rank.
            self.assertEqual(len(set(digests.values())), {"ddp_train": 1, "pipeline_train": 4, "tp_train": 2}[name])

    def test_ddp_train_ranks_share_the_examples(self):
        """What is added up is whole numbers, but each rank has rounded its own share."""
        options = ("ddp_train", "--steps", "20")
        one = losses(run_reference(*options, "--batch", "32", "--ranks", "1"))
        for left, right in zip(one, losses(run_reference(*options, "--batch", "8", "--ranks", "4"))):
            self.assertAlmostEqual(left, right, delta=1e-5)
        self.assertNotEqual(one, losses(run_reference(*options, "--batch", "32", "--seed", "2")))

    def test_tp_train_is_the_same_in_parts(self):
        options = ("tp_train", "--steps", "10", "--ranks", "8")
        whole = losses(run_reference(*options, "--tensor", "1", "--batch", "4"))
        for tensor in ("2", "4", "8"):
            batch = str(4 * int(tensor))
            for left, right in zip(whole, losses(run_reference(*options, "--tensor", tensor, "--batch", batch))):
                self.assertAlmostEqual(left, right, delta=1e-4)

    def test_pipeline_train_is_the_same_in_any_stages(self):
        """As long as the network has as many layers; and one layer more makes another network."""
        options = ("pipeline_train", "--steps", "10")
        one = losses(run_reference(*options, "--ranks", "1", "--layers", "4"))
        self.assertEqual(one, losses(run_reference(*options, "--ranks", "4", "--layers", "1")))
        self.assertNotEqual(one, losses(run_reference(*options, "--ranks", "5", "--layers", "1")))

    def test_mlp_train_learns(self):
        lines = run_reference("mlp_train", "--steps", "150", "--log-every", "50")
        accuracy = float(re.match(r"test accuracy (\S+) ", lines[-2])[1])
        self.assertGreater(accuracy, 0.75)
        self.assertEqual(len(losses(lines)), 3)
        self.assertRegex(lines[-1], r"^sha256 [0-9a-f]{64}$")

    def test_mlp_train_depends_on_the_seed_alone(self):
        options = ("--steps", "5", "--width", "16", "--hidden", "2")
        lines = run_reference("mlp_train", *options)
        self.assertEqual(lines, run_reference("mlp_train", *options))
        self.assertNotEqual(losses(lines), losses(run_reference("mlp_train", *options, "--seed", "2")))

    def test_mlp_train_with_frozen_weights(self):
        options = ("--width", "16", "--log-every", "1")
        frozen = run_reference("mlp_train", *options, "--steps", "5", "--freeze-after", "3")
        self.assertEqual(frozen[-1], run_reference("mlp_train", *options, "--steps", "3")[-1])
        self.assertEqual(len(losses(frozen)), 5)

    def test_cnn_train_learns(self):
        options = ("--steps", "40", "--batch", "32", "--log-every", "20", "--test", "500")
        lines = run_reference("cnn_train", *options)
        self.assertGreater(float(re.match(r"test accuracy (\S+) ", lines[-2])[1]), 0.6)
        self.assertEqual(len(losses(lines)), 2)
        self.assertRegex(lines[-1], r"^sha256 [0-9a-f]{64}$")

    def test_cnn_train_depends_on_its_options_alone(self):
        options = ("--steps", "3", "--batch", "8", "--channels", "2", "--hidden", "8", "--test", "20", "--log-every", "1")
        lines = run_reference("cnn_train", *options)
        self.assertEqual(lines, run_reference("cnn_train", *options))
        self.assertNotEqual(losses(lines), losses(run_reference("cnn_train", *options, "--seed", "2")))
        self.assertNotEqual(losses(lines), losses(run_reference("cnn_train", *options, "--dropout", "0")))

    def test_gpt_train_learns_a_repeating_text(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("abcdefgh" * 200)
            text.flush()
            options = ("--text", text.name, "--steps", "60", "--width", "16", "--context", "16")
            lines = run_reference("gpt_train", *options)
            self.assertEqual(lines, run_reference("gpt_train", *options))
        self.assertGreater(losses(lines)[0], 1.9)  # the logarithm of 8 characters is 2.08
        self.assertLess(losses(lines)[-1], 0.3)

    def test_gpt_train_has_a_text_of_its_own(self):
        lines = run_reference("gpt_train", "--steps", "3")
        self.assertEqual(len(losses(lines)), 3)


class BadFiles(unittest.TestCase):
    def assert_fails(self, words, *command):
        result = run(*command)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(words, result.stderr)

    def test_gpt_text(self):
        self.assert_fails("cannot open /nonexistent", "gpt_train", "--reference", "--text", "/nonexistent")
        with tempfile.NamedTemporaryFile("w") as text:
            text.write("short")
            text.flush()
            self.assert_fails("has 5 bytes", "gpt_train", "--reference", "--text", text.name)

    def test_mlp_data(self):
        with tempfile.TemporaryDirectory() as name:
            data = pathlib.Path(name)
            command = ("mlp_train", "--reference", "--data", name)
            self.assert_fails("cannot open", *command)
            images = data / "train-images-idx3-ubyte.gz"
            header = bytes.fromhex("00000803 00000002 00000002 00000002")
            for content, words in (
                (b"", "truncated"),
                (bytes(16), "not an IDX file of images"),
                (header, "truncated"),
                (header[:4] + b"\xff" * 12, "unreasonable number"),
            ):
                images.write_bytes(gzip.compress(content))
                self.assert_fails(words, *command)
            images.write_bytes(gzip.compress(header + bytes(8)))
            labels = data / "train-labels-idx1-ubyte.gz"
            labels.write_bytes(gzip.compress(bytes.fromhex("00000801 00000003") + bytes(3)))
            self.assert_fails("not one label for each image", *command)
            labels.write_bytes(gzip.compress(bytes.fromhex("00000801 00000002 000a")))
            self.assert_fails("a label is out of range", *command)


if __name__ == "__main__":
    directory = pathlib.Path(sys.argv.pop(1))
    unittest.main()
