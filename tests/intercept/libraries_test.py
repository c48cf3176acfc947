#!/usr/bin/env python3
"""Programs with handles of cuBLAS, cuBLASLt and cuDNN are paused between any two of their steps, and while they make,
use and destroy handles; they go on as if nothing had happened."""

import os
import subprocess
import sys
import tempfile
import unittest

from softgpu import Node, built, die_with_parent
from step_program import StepProgram
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
STEPS = 5
MIB = 1 << 20
# Each handle of softgpu's hides as much.
HIDDEN_OF_BLAS, HIDDEN_OF_DNN = 8 * MIB, 4 * MIB
NOT_INITIALIZED, BAD_PARAM = 1, 2000
WORKER = "softgpu-worker"
CONTROL = "stasis-control"
TAKE_ALL_MEMORY = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
size = 1 << 30
while size >= 1 << 16:
    if cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) != 0:
        size //= 2
print("ready", flush=True)
sys.stdin.read()
"""


class LibrariesTest(unittest.TestCase):

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "1GiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def start(self, *command, **extra):
        program = StepProgram(self.node, *command, **extra)
        self.addCleanup(program.end)
        return program

    def undisturbed(self, *command):
        program = self.start(*command)
        output = program.until("ready") + "".join(program.step(i + 1) for i in range(STEPS))
        rest, code = program.finish()
        self.assertEqual(code, 0, output + rest)
        return output + rest

    def managed(self, *command, **extra):
        program = self.start(*command, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder,
                             STASIS_DRIVER=self.driver, **extra)
        ready = program.until("ready")
        return program, self.enterContext(wait_for_task(self.folder, program.process.pid)), ready

    def cycle(self, task, strategy, device=0):
        """A pause and its end; the bytes that were handed over."""
        extents = task.pause(strategy)
        held = sum(extent.size for extent in extents)
        # With the other strategy it is the driver that moves, and nobody asks it here.
        task.unpause(extents, self.driver, [(0, device), (1, 1 - device)] if strategy == RECONSTRUCT else [])
        return held

    def disturbed(self, strategy, devices, *command):
        program, task, output = self.managed(*command)
        for i in range(STEPS):
            self.cycle(task, strategy, devices[i % len(devices)])
            output += program.step(i + 1)
        self.assertEqual(task.hello()["taints"], [])
        rest, code = program.finish()
        self.assertEqual(code, 0, output + rest)
        return output + rest

    def check(self, strategy, *command, devices=(0,)):
        self.assertEqual(self.disturbed(strategy, devices, *command), self.undisturbed(*command))


class StateTest(LibrariesTest):

    def test_settings_reconstruct(self):
        self.check(RECONSTRUCT, built("tests/programs/libraries"), "state")

    def test_settings_reconstruct_on_the_other_device(self):
        self.check(RECONSTRUCT, built("tests/programs/libraries"), "state", devices=(1, 0))

    def test_settings_driver_checkpoint(self):
        self.check(DRIVER_CHECKPOINT, built("tests/programs/libraries"), "state")

    def test_a_library_that_no_wrapper_stands_before(self):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(strategy):
                self.check(strategy, built("tests/programs/libraries_by_handle"))


class ManyTest(LibrariesTest):

    def test_hidden_memory_is_given_up(self):
        program, task, _ = self.managed(built("tests/programs/libraries"), "many")
        hidden = 24 * HIDDEN_OF_BLAS + 24 * HIDDEN_OF_DNN
        before = task.status()["allocated_bytes"]
        self.assertGreaterEqual(before, hidden)
        held = self.cycle(task, RECONSTRUCT)
        self.assertLess(held, before - hidden + 16 * MIB)
        self.assertEqual(task.status()["allocated_bytes"], before)
        self.assertEqual(program.finish(), ("done\n", 0))

    def test_nothing_is_left_behind_by_many_cycles(self):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(strategy):
                program, task, _ = self.managed(built("tests/programs/libraries"), "state")
                program.step(1)
                seen, workers = [], []
                for i in range(40 if FULL else 12):
                    self.cycle(task, strategy)
                    program.step(i + 2)
                    status = task.status()
                    threads = program.thread_names()
                    # A worker that has only just started still has the name of the thread that started it.
                    while threads.count(CONTROL) > 1:
                        threads[threads.index(CONTROL)] = WORKER
                    workers.append(threads.count(WORKER))
                    seen.append((status["records"], status["allocations"], status["allocated_bytes"], status["extents"],
                                 status["threads"], program.descriptors(),
                                 *sorted(name for name in threads if name != WORKER)))
                self.assertEqual(set(seen[2:]), {seen[-1]})
                # The device starts a worker more when two pieces of its work happen to overlap; one that each cycle left
                # would be ten and more.
                self.assertLess(max(workers[2:]) - min(workers[2:]), 5, workers)
                self.assertEqual(program.finish()[1], 0)
                task.close()

    def test_the_device_is_empty_when_it_has_been_destroyed_in_the_end(self):
        program, task, _ = self.managed(built("tests/programs/libraries"), "many")
        self.cycle(task, RECONSTRUCT)
        self.assertEqual(program.finish()[1], 0)
        self.assertEqual([device["memory_used"] for device in self.node.devices()], [0, 0])


class ThreadsTest(LibrariesTest):
    """Pauses during creation, use and destruction of each library's handles."""

    def check_threads(self, strategy):
        program, task, _ = self.managed(built("tests/programs/libraries"), "threads")
        for i in range(60 if FULL else 12):
            program.step(i + 1)
            self.cycle(task, strategy, i % 2)
        self.assertEqual(program.finish(), ("done\n", 0))

    def test_reconstruct(self):
        self.check_threads(RECONSTRUCT)

    def test_driver_checkpoint(self):
        self.check_threads(DRIVER_CHECKPOINT)

    def test_a_pause_that_is_taken_back(self):
        program, task, _ = self.managed(built("tests/programs/libraries"), "threads")
        for i in range(8):
            task.quiesce(wait_low_ms=50 * (i % 2))
            for extent in task.handover():
                extent.close()
            task.go_on()
            program.step(i + 1)
        # The ghost goes away in the middle.
        task.quiesce()
        task.close()
        program.step(9)
        self.assertEqual(program.finish(), ("done\n", 0))


WITHOUT_LIBRARY = """
import ctypes
handle = ctypes.c_void_p()
print(ctypes.CDLL(None).cublasCreate_v2(ctypes.byref(handle)), handle.value)
"""
# The child's driver is of no use, nor are its parent's handles; it must find that out from the library.
FORK = """
import ctypes, os, sys
blas = ctypes.CDLL("libcublas.so.13", ctypes.RTLD_GLOBAL) and ctypes.CDLL(None)
handle, other = ctypes.c_void_p(), ctypes.c_void_p()
print("parent", blas.cublasCreate_v2(ctypes.byref(handle)), flush=True)
child = os.fork()
if child == 0:
    print("child", blas.cublasCreate_v2(ctypes.byref(other)), blas.cublasSetMathMode(handle, 1),
          blas.cublasDestroy_v2(handle), flush=True)
    os._exit(0)
print("ended", os.waitpid(child, 0)[1], blas.cublasDestroy_v2(handle), flush=True)
"""


class ProcessTest(LibrariesTest):

    def shim(self):
        return {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_TASK": self.folder, "STASIS_DRIVER": self.driver}

    def test_a_program_without_the_library(self):
        result = self.node.run(sys.executable, "-c", WITHOUT_LIBRARY, **self.shim())
        self.assertEqual((result.returncode, result.stdout), (0, f"{NOT_INITIALIZED} None\n"), result.stderr)
        self.assertRegex(result.stderr, "^stasis.* cublasCreate_v2: the process has not loaded libcublas.so.13\n$")

    def test_a_child_of_a_program_with_handles(self):
        plain = self.node.run(sys.executable, "-c", FORK)
        shim = self.node.run(sys.executable, "-c", FORK, **self.shim())
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((shim.returncode, shim.stdout), (0, plain.stdout), shim.stderr)


class FailureTest(LibrariesTest):

    def test_a_call_that_does_not_return_is_named(self):
        program, task, _ = self.managed(built("tests/programs/libraries"), "blocked")
        self.assertEqual(program.step(1), "step 1: begun\n")
        with self.assertRaisesRegex(TaskError, "cublasSdot_v2") as raised:
            task.quiesce(deadline_ms=200)
        self.assertEqual([call for _, call in raised.exception.blockers], ["cublasSdot_v2"])
        task.go_on()
        self.assertRegex(program.step(2), "step 2: dot [0-9]+\n")
        self.cycle(task, RECONSTRUCT)
        self.assertEqual(program.finish(), ("done\n", 0))

    def test_a_handle_that_cannot_be_made_again_is_known_by_the_library_as_none(self):
        program, task, _ = self.managed(built("tests/programs/libraries"), "broken")
        self.assertEqual(program.step(1), "step 1: blas 0 dnn 0\n")
        task.quiesce()
        with subprocess.Popen([sys.executable, "-c", TAKE_ALL_MEMORY, self.driver], env=self.node.env(),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as other:
            self.assertEqual(other.stdout.readline(), b"ready\n")
            # A ghost can ask for it again.
            for _ in range(2):
                with self.assertRaisesRegex(TaskError, "cublasCreate|cudnnCreate"):
                    task.rejoin_alone()
                self.assertEqual(task.hello()["state"], "quiesced")
            task.close()
            answer = program.step(2)
            other.communicate()
        task = self.enterContext(wait_for_task(self.folder, program.process.pid))
        # What a null handle is answered.
        self.assertEqual(answer, f"step 2: blas {NOT_INITIALIZED} dnn {BAD_PARAM}\n")
        self.assertRegex(task.hello()["taints"][0][0], "cublasCreate|cudnnCreate")
        with self.assertRaisesRegex(TaskError, "cublasCreate|cudnnCreate"):
            task.pause()
        task.go_on()
        self.assertEqual(program.finish()[1], 0)


if __name__ == "__main__":
    unittest.main()
