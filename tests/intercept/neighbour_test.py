#!/usr/bin/env python3
"""libstasis.so in programs that have nothing to do with it: nobody may notice."""

import os
import subprocess
import sys
import tempfile
import unittest

from softgpu import BUILD, Node, built

# What a process shows of itself: threads, descriptors, signal dispositions, and how often its memory was mapped.
LOOK = """
import os, threading
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(len(os.listdir("/proc/self/task")), sorted(os.listdir("/proc/self/fd"))[:-1], len(threading.enumerate()))
print([status[key].strip() for key in ("SigBlk", "SigIgn", "SigCgt", "Threads", "NoNewPrivs", "Seccomp")])
print(sorted(key for key in os.environ if key != "LD_PRELOAD"))
print("stasis" in open("/proc/self/comm").read(), os.path.exists(os.environ["STASIS_TASK"]))
"""


class NeighbourTest(unittest.TestCase):

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-neighbour-"))
        self.env = {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8",
                    "STASIS_TASK": os.path.join(folder, "task"), "STASIS_DRIVER": built("lib/softgpu/libcuda.so.1")}

    def both(self, *command, **extra):
        """Runs the command without and with the library; both results."""
        env = {**self.env, **extra}
        library = built("lib/libstasis.so")
        return [subprocess.run(command, env={**env, **preload}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=60, check=False) for preload in ({}, {"LD_PRELOAD": library})]

    def assert_same(self, *command, **extra):
        without, with_library = self.both(*command, **extra)
        self.assertEqual((with_library.returncode, with_library.stdout, with_library.stderr),
                         (without.returncode, without.stdout, without.stderr))
        return without

    def test_shell(self):
        self.assert_same("bash", "-c", "echo $BASH_VERSION; x=$(ls /proc/self/task | wc -l); echo $x; (exit 7) | cat; exit 3")

    def test_python(self):
        self.assertEqual(self.assert_same(sys.executable, "-c", LOOK).returncode, 0)

    def test_python_that_forks_and_threads(self):
        program = ("import multiprocessing as m\n"
                   "with m.get_context('fork').Pool(4) as pool: print(pool.map(abs, range(-9, 9)))\n")
        self.assertEqual(self.assert_same(sys.executable, "-c", program).returncode, 0)

    def test_the_library_is_really_there(self):
        _, with_library = self.both(sys.executable, "-c", "print('libstasis.so' in open('/proc/self/maps').read())")
        self.assertEqual(with_library.stdout, "True\n")

    def test_cuda_program_on_a_machine_without_driver(self):
        with tempfile.TemporaryDirectory() as runtime_only:
            runtime = built("lib/softgpu/libcudart.so.13")
            os.symlink(runtime, os.path.join(runtime_only, "libcudart.so.13"))
            for driver in ("/nonexistent/libcuda.so.1", ""):
                result = self.assert_same(built("samples/vector"), LD_LIBRARY_PATH=runtime_only, STASIS_DRIVER=driver)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn("driver", result.stderr)

    def test_driver_is_found_by_itself(self):
        with Node() as node:
            env = node.env(LD_PRELOAD=built("lib/libstasis.so"))
            result = subprocess.run([built("samples/vector")], env=env, capture_output=True, text=True, timeout=60,
                                    check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_library_in_the_place_of_the_driver_finds_the_next_one(self):
        with Node() as node, tempfile.TemporaryDirectory() as first:
            os.symlink(built("lib/libstasis.so"), os.path.join(first, "libcuda.so.1"))
            folders = first + ":" + os.path.join(BUILD, "lib", "softgpu")
            result = node.run(built("samples/vector"), LD_LIBRARY_PATH=folders)
            self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
