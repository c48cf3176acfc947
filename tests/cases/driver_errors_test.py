#!/usr/bin/env python3
"""A driver of which one call fails, whichever it is, while a program is paused or brought back.

The driver is softgpu's behind a library that counts calls down and answers CUDA_ERROR_OUT_OF_MEMORY instead of the one at
which the count is zero. Each failure has to be told, once; the next attempt has to succeed, and the program to end as it
does undisturbed. STASIS_TEST_FULL=1 takes every call, else some of them, chosen by STASIS_CASES_SEED.
"""

import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from cases import FULL, command
from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, STRATEGIES, TaskError, wait_for_task

CC = os.environ.get("STASIS_CC", "cc")
SEED = os.environ.get("STASIS_CASES_SEED", "3")
SAMPLE = 12
NEVER = 1 << 60

STARTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
extern const char* const names[];
extern void* slots[];
extern int64_t* countdown;
static int64_t never = INT64_C(1) << 60;
static void* real;
__attribute__((constructor)) static void Begin(void) {
  real = dlopen(REAL_DRIVER, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (real == NULL) abort();
  for (int i = 0; names[i] != NULL; ++i) slots[i] = dlsym(real, names[i]);
  countdown = &never;
  int file = open(getenv("STASIS_TEST_COUNTDOWN"), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED) countdown = shared;
  close(file);
}
__attribute__((destructor)) static void End(void) {
  if (countdown != &never) munmap(countdown, 4096);
  countdown = &never;
  dlclose(real);
}
"""


def make_driver(folder):
    """The library, which stands before softgpu's driver with all its functions."""
    driver = built("lib/softgpu/libcuda.so.1")
    listed = subprocess.run(["nm", "-D", "--defined-only", driver], capture_output=True, text=True, check=True).stdout
    names = [line.split()[2] for line in listed.splitlines() if line.split()[1] == "T" and line.split()[2].startswith("cu")]
    assert len(names) > 500, names
    lines = [".text", "fail:", "  movl $2, %eax", "  ret"]
    for number, name in enumerate(names):
        lines += [f".globl {name}", f".type {name}, @function", f"{name}:", "  movq countdown(%rip), %r11", "  lock decq (%r11)",
                  "  je fail", f"  jmp *slots+{8 * number}(%rip)"]
    lines += [".data", ".hidden countdown", ".globl countdown", "countdown: .quad 0", ".hidden slots", ".globl slots",
              f"slots: .fill {len(names)}, 8, 0", ".hidden names", ".globl names", "names:"]
    lines += [f"  .quad text{number}" for number in range(len(names))] + ["  .quad 0"]
    lines += [f'text{number}: .asciz "{name}"' for number, name in enumerate(names)]
    lines += ['.section .note.GNU-stack,"",@progbits', ""]
    for name, text in (("functions.s", "\n".join(lines)), ("start.c", STARTER)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)
    library = os.path.join(folder, "libcuda.so.1")
    subprocess.run([CC, "-shared", "-fPIC", "-O1", f'-DREAL_DRIVER="{driver}"', "-o", library, os.path.join(folder, "functions.s"),
                    os.path.join(folder, "start.c"), "-ldl"], check=True)
    return library


class Countdown:
    """Shared with the driver."""

    def __init__(self, path):
        with open(path, "w+b") as file:
            file.truncate(4096)
            self.memory = mmap.mmap(file.fileno(), 4096)
        self.set(NEVER)

    def set(self, calls):
        self.memory[:8] = struct.pack("=q", calls)

    def left(self):
        return struct.unpack("=q", self.memory[:8])[0]


class Failing(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="stasis-errors-"))
        cls.driver = make_driver(cls.folder)
        cls.node = cls.enterClassContext(Node("--gpus", "1", "--memory", "256MiB"))

    def start(self, program, strategy):
        self.count = Countdown(os.path.join(self.folder, "count"))
        task_folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.go = os.path.join(task_folder, "go")
        process = subprocess.Popen(command(*program, self.go), stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent,
                                   env=self.node.env(LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=task_folder,
                                                     STASIS_DRIVER=self.driver, STASIS_STRATEGY=STRATEGIES[strategy],
                                                     STASIS_TEST_COUNTDOWN=os.path.join(self.folder, "count")))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        task = self.enterContext(wait_for_task(task_folder, process.pid))
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process, task

    def undisturbed(self, program):
        go = os.path.join(self.folder, "there")
        if not os.path.exists(go):
            with open(go, "x", encoding="ascii"):
                pass
        result = self.node.run(*command(*program, go))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def calls_of(self, step):
        """What the step returns, and how many calls of the driver it made."""
        self.count.set(NEVER)
        value = step()
        return value, NEVER - self.count.left()

    @staticmethod
    def chosen(calls, what):
        numbers = range(1, calls + 1)
        return numbers if FULL or calls <= SAMPLE else sorted(random.Random(f"{SEED} {what}").sample(numbers, SAMPLE))

    def attempt(self, step, number):
        """The step with that call of it failing: True when it succeeded all the same."""
        self.count.set(number)
        try:
            step()
            return True
        except TaskError as error:
            self.assertLessEqual(self.count.left(), 0, f"it failed for another reason: {error}")
            self.assertTrue(error.message)
            return False
        finally:
            self.count.set(NEVER)

    def let_go(self, task, strategy, number):
        """One pause in which a call fails."""
        task.quiesce()
        extents = task.handover()
        done = self.attempt(lambda: task.release(strategy), number)
        state = task.hello()["state"]
        self.assertTrue(state == "released" or (state == "quiesced" and not done), state)
        if state == "released":  # by halves, where it failed
            task.unpause(extents, self.driver)
        else:
            for extent in extents:
                extent.close()
            task.go_on()

    def bring_back(self, task, strategy, number):
        """One resume in which a call fails."""
        extents = task.pause(strategy)

        def come_back():
            task.attach(self.driver)
            task.import_extents(extents)
            task.rebuild()
            task.rejoin_alone()

        if not self.attempt(come_back, number):
            if task.hello()["state"] != "released":
                task.release(strategy)
            come_back()
        task.resume()
        for extent in extents:
            extent.close()

    def each_call(self, program, strategy):
        expected = self.undisturbed(program)
        process, task = self.start(program, strategy)
        extents, letting_go = self.calls_of(lambda: task.pause(strategy))
        _, bringing_back = self.calls_of(lambda: task.unpause(extents, self.driver))
        print(f"{program[0]}, {STRATEGIES[strategy]}: {letting_go} calls to pause, {bringing_back} to resume", file=sys.stderr,
              flush=True)
        for what, calls, one in (("pause", letting_go, self.let_go), ("resume", bringing_back, self.bring_back)):
            for number in self.chosen(calls, f"{program[0]} {what}"):
                with self.subTest(what, call=number, seed=SEED):
                    one(task, strategy, number)
        with open(self.go, "x", encoding="ascii"):
            pass
        rest, _ = process.communicate(timeout=60)
        self.assertEqual(("ready\n" + rest, process.returncode), (expected, 0))

    def each_strategy(self, *program):
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            with self.subTest(STRATEGIES[strategy]):
                self.each_call(program, strategy)

    def test_memory(self):
        self.each_strategy("pieces", 15)

    def test_variables(self):
        self.each_strategy("variables")

    def test_memory_that_the_program_maps_itself(self):
        self.each_strategy("ranges")

    def test_streams_graphs_and_pools(self):
        self.each_strategy("ends", "return")


if __name__ == "__main__":
    unittest.main()
