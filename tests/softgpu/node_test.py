"""A node of softgpu devices seen from outside: capacity, processes, faults, process death, fork, CRIU."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from softgpu import Node, built

PROBE = built("tests/programs/probe")
MIB = 1 << 20


def wait_until(condition, seconds, what):
    """Polls a condition of another process; fails when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def finish(process):
    out, err = process.communicate(timeout=60)
    return out, err


class Capacity(unittest.TestCase):
    def test_four_processes_on_four_devices(self):
        with Node("--gpus", "4", "--memory", "2GiB") as node:
            holders = [node.start(PROBE, "alloc", "1024", str(device)) for device in range(4)]
            for holder in holders:
                self.assertEqual(holder.stdout.readline(), "malloc cudaSuccess\n")
            for device in node.devices():
                self.assertEqual(device["memory_total"], 2048 * MIB)
                self.assertGreaterEqual(device["memory_used"], 1024 * MIB)
                self.assertEqual(device["pids"], [holders[device["index"]].pid])
            more = node.run(PROBE, "alloc", "1100", "2")
            self.assertEqual(more.stdout, "malloc cudaErrorMemoryAllocation\n", more.stderr)
            fits = node.run(PROBE, "alloc", "900", "2")
            self.assertEqual(fits.stdout, "malloc cudaSuccess\n", fits.stderr)
            for holder in holders:
                finish(holder)

    def test_memory_of_a_killed_process_is_back(self):
        with Node("--gpus", "1", "--memory", "1GiB") as node:
            before = node.devices()[0]["memory_used"]
            holder = node.start(PROBE, "alloc", "700")
            self.assertEqual(holder.stdout.readline(), "malloc cudaSuccess\n")
            self.assertGreaterEqual(node.devices()[0]["memory_used"], before + 700 * MIB)
            holder.kill()
            wait_until(lambda: node.devices()[0]["memory_used"] == before, 60, "memory of the killed process given back")
            finish(holder)
            self.assertEqual(node.run(PROBE, "alloc", "900").stdout, "malloc cudaSuccess\n")

    def test_properties(self):
        with Node("--gpus", "3", "--memory", "512MiB") as node:
            result = node.run(PROBE, "properties")
            self.assertIn("devices 3\n", result.stdout, result.stderr)
            self.assertEqual(result.stdout.count(f" 12.0 {512 * MIB}\n"), 3, result.stdout)

    def test_visible_devices(self):
        with Node("--gpus", "4") as node:
            self.assertIn("devices 2\n", node.run(PROBE, "properties", CUDA_VISIBLE_DEVICES="3,1").stdout)
            holder = node.start(PROBE, "alloc", "64", "0", CUDA_VISIBLE_DEVICES="3,1")
            self.assertEqual(holder.stdout.readline(), "malloc cudaSuccess\n")
            self.assertEqual([device["pids"] for device in node.devices()], [[], [], [], [holder.pid]])
            finish(holder)


class Faults(unittest.TestCase):
    def test_device_falls_off_the_bus(self):
        with Node("--gpus", "2") as node:
            first, second = node.start(PROBE, "loop", "0"), node.start(PROBE, "loop", "1")
            for process in (first, second):
                self.assertEqual(process.stdout.readline(), "first cudaSuccess\n")
            result = node.smi("fault", "--gpu", "1", "--kind", "fell-off-bus")
            self.assertEqual(result.returncode, 0, result.stderr)
            line = second.stdout.readline()
            self.assertTrue(line.startswith("last cudaError"), line)
            finish(second)
            self.assertEqual(second.returncode, 3)
            self.assertIsNone(first.poll(), "the program on the other device must run on")
            fresh = node.run(PROBE, "loop", "0", "3")
            self.assertEqual(fresh.stdout, "first cudaSuccess\nlast cudaSuccess\n", fresh.stderr)
            self.assertIsNone(first.poll())
            first.kill()
            finish(first)

    def test_out_of_memory_after_some_allocations(self):
        with Node("--gpus", "1") as node:
            self.assertEqual(node.smi("fault", "--gpu", "0", "--kind", "oom-after=0").returncode, 0)
            self.assertEqual(node.run(PROBE, "alloc", "64").stdout, "malloc cudaErrorMemoryAllocation\n")
            self.assertEqual(node.smi("fault", "--gpu", "0", "--kind", "none").returncode, 0)
            self.assertEqual(node.run(PROBE, "alloc", "64").stdout, "malloc cudaSuccess\n")

    def test_daemon_dies(self):
        with Node("--gpus", "1") as node:
            program = node.start(PROBE, "loop", "0")
            self.assertEqual(program.stdout.readline(), "first cudaSuccess\n")
            node.daemon.kill()
            line = program.stdout.readline()
            self.assertTrue(line.startswith("last cudaError"), line)
            finish(program)

    def test_bad_fault_requests(self):
        with Node("--gpus", "1") as node:
            for arguments in (["--gpu", "7", "--kind", "ecc"], ["--gpu", "0", "--kind", "bogus"],
                              ["--gpu", "0", "--kind", "slow=9"], ["--gpu", "-1", "--kind", "none"]):
                result = node.smi("fault", *arguments)
                self.assertNotEqual(result.returncode, 0, arguments)
                self.assertTrue(result.stderr.strip(), arguments)


class Processes(unittest.TestCase):
    def test_launches_return_before_the_kernel_ran(self):
        with Node("--gpus", "1") as node:
            result = node.run(PROBE, "async")
            self.assertEqual(result.stdout, "host cudaSuccess\nlaunch cudaSuccess\nquery cudaErrorNotReady\n"
                                            "sync cudaSuccess\nquery cudaSuccess\n", result.stderr)

    def test_child_of_fork_cannot_use_the_device(self):
        with Node("--gpus", "1") as node:
            result = node.run(PROBE, "fork")
            lines = result.stdout.splitlines()
            self.assertEqual([l for l in lines if l.startswith("child")],
                             ["child cudaErrorInitializationError", "childsync cudaErrorInitializationError"], result.stderr)
            self.assertEqual([l for l in lines if l.startswith("parent")], ["parent cudaSuccess"] * 3)
            self.assertEqual(result.returncode, 0)

    @unittest.skipUnless(os.geteuid() == 0, "CRIU needs privilege")
    def test_criu_refuses_a_live_context(self):
        criu = os.environ["STASIS_CRIU"]
        with Node("--gpus", "1") as node, tempfile.TemporaryDirectory() as images:
            def dump(pid):
                return subprocess.run([criu, "dump", "-t", str(pid), "-D", images, "--shell-job", "-o", "dump.log", "-v4"],
                                      capture_output=True, text=True, timeout=60, check=False)

            # The same program without a context can be dumped, so the refusal below is the context's doing.
            plain = subprocess.Popen([shutil.which("sleep"), "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
            result = dump(plain.pid)
            self.assertEqual(result.returncode, 0, text_of(os.path.join(images, "dump.log"))[-2000:])
            plain.wait()

            log = open(os.path.join(node.folder.name, "out"), "w+")
            holder = subprocess.Popen([PROBE, "loop"], env=node.env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      start_new_session=True)
            wait_until(lambda: "first" in text_of(log.name), 60, "the program has a context")
            result = dump(holder.pid)
            self.assertNotEqual(result.returncode, 0)
            reason = text_of(os.path.join(images, "dump.log"))
            self.assertRegex(reason, r"(?i)Error.*(unix|socket|external)", reason[-2000:])
            self.assertIsNone(holder.poll(), "a refused dump leaves the program running")
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            log.close()


if __name__ == "__main__":
    unittest.main()
