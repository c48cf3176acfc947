"""Bad input of every kind: the documented CUDA error or one clear line, never a crash of the caller, never a hang."""

import os
import random
import subprocess
import tempfile
import unittest

from softgpu import BUILD, Node, built

PROBE = built("tests/programs/probe")


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", "1")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)

    def check_fault(self, kind, error):
        result = self.node.run(PROBE, "fault", kind)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [
            "launch cudaSuccess", f"sync {error}", f"sticky {error}", "reset cudaSuccess", "after cudaSuccess"],
            kind + result.stderr)

    def test_illegal_addresses(self):
        for kind in ("far", "null", "host", "freed"):
            self.check_fault(kind, "cudaErrorIllegalAddress")

    def test_misaligned(self):
        self.check_fault("misaligned", "cudaErrorMisalignedAddress")

    def test_trap(self):
        self.check_fault("trap", "cudaErrorLaunchFailure")

    def test_outside_shared_memory(self):
        self.check_fault("shared", "cudaErrorIllegalAddress")

    def test_launch_limits(self):
        result = self.node.run(PROBE, "limits")
        self.assertEqual(result.stdout.splitlines(), [
            "threads cudaErrorInvalidConfiguration", "gridz cudaErrorInvalidConfiguration", "zero cudaErrorInvalidConfiguration",
            "shared cudaErrorInvalidValue", "raise cudaSuccess", "raised cudaSuccess", "sync cudaSuccess"], result.stderr)


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", "1")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def load(self, content):
        path = os.path.join(self.folder.name, "image")
        with open(path, "wb") as file:
            file.write(content)
        result = self.node.run(PROBE, "load", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip(), result.stderr

    def test_unknown_opcode(self):
        text = b""".version 8.0
.target sm_75
.address_size 64
.visible .entry k() {
  .reg .b32 %r<3>;
  frobnicate.u32 %r1, %r2;
  ret;
}
"""
        outcome, log = self.load(text)
        self.assertEqual(outcome, "load cudaErrorInvalidPtx")
        self.assertIn("frobnicate.u32", log)
        self.assertIn("line 6", log)

    def test_syntax_error(self):
        outcome, log = self.load(b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k( {\n")
        self.assertEqual(outcome, "load cudaErrorInvalidPtx")
        self.assertIn("line 4", log)

    def test_no_ptx_for_this_device(self):
        result = self.node.run(built("tests/programs/probe_no_ptx"), "loop")
        self.assertIn("cudaErrorNoKernelImageForDevice", result.stdout, result.stderr)
        self.assertEqual(result.returncode, 3)

    def test_damaged_fat_binary(self):
        with open(PROBE, "rb") as file:
            program = file.read()
        # The last one: the first is an unreferenced image of nvcc's device link step, without PTX.
        start = program.rindex(b"\x50\xed\x55\xba")
        size = int.from_bytes(program[start + 8:start + 16], "little") + 16
        image = program[start:start + size]
        self.assertEqual(self.load(image)[0], "load cudaSuccess")
        allowed = {"load cudaErrorInvalidKernelImage", "load cudaErrorNoKernelImageForDevice", "load cudaErrorInvalidPtx",
                   "load cudaSuccess", "load cudaErrorUnsupportedPtxVersion", "load cudaErrorInvalidValue"}
        seen = set()
        rng = random.Random(20)
        for length in (0, 1, 8, 15, 16, 40, 80, 200, size // 2, size - 9):
            # What follows a truncated image in memory is not ours: claim the true size, give zeros.
            outcome = self.load(image[:length] + bytes(size - length))[0]
            self.assertIn(outcome, allowed)
            seen.add(outcome)
        for _ in range(30 if os.environ.get("STASIS_TEST_FULL") != "1" else 1000):
            damaged = bytearray(image)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(16, size)] ^= 1 << rng.randrange(8)
            outcome = self.load(bytes(damaged))[0]
            self.assertIn(outcome, allowed)
            seen.add(outcome)
        self.assertGreater(len(seen), 1, "damage is noticed")


class Environment(unittest.TestCase):
    def run_probe(self, **env):
        base = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTGPU_", "CUDA_"))}
        base["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib", "softgpu")
        base.update(env)
        return subprocess.run([PROBE, "loop", "0", "2"], env=base, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)

    def test_no_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_probe(SOFTGPU_SOCKET=os.path.join(folder, "nobody.sock"), SOFTGPU_AUTOSTART="0")
        self.assertIn("last cudaErrorNoDevice", result.stdout)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertIn("nobody.sock", result.stderr)

    def test_no_driver(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(built("lib/softgpu/libcudart.so.13"), os.path.join(folder, "libcudart.so.13"))
            result = self.run_probe(LD_LIBRARY_PATH=folder)
        self.assertIn("last cudaErrorInsufficientDriver", result.stdout)

    def test_wrong_values(self):
        for name, value in (("SOFTGPU_SMS", "many"), ("SOFTGPU_SMS", "0"), ("SOFTGPU_AUTOSTART", "perhaps")):
            with Node("--gpus", "1") as node:
                result = node.run(PROBE, "loop", "0", "2", **{name: value})
            self.assertIn("last cudaError", result.stdout, f"{name}={value}")
            self.assertNotIn("last cudaSuccess", result.stdout, f"{name}={value}")
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
            self.assertIn(name, result.stderr)

    def test_wrong_daemon_options(self):
        for options in (["--gpus", "0"], ["--gpus", "x"], ["--memory", "12parsecs"], ["--h2d-gbps", "-1"], ["--bogus"]):
            with tempfile.TemporaryDirectory() as folder:
                result = subprocess.run([built("bin/softgpud"), "--socket", os.path.join(folder, "s"), *options],
                                        capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 2, f"{options}: {result.stderr}")
            self.assertTrue(result.stderr.strip(), options)


if __name__ == "__main__":
    unittest.main()
