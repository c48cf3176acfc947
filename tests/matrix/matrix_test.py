#!/usr/bin/env python3
"""The object matrix: a program for each kind of object is disturbed at random points and prints what it prints undisturbed.

What is expected of a case follows from its kinds' rows in the table that docs/coverage.md is made of: a kind that is
restored has to be, one that is refused has to be refused by name, with the program undisturbed. Each case is paused and
resumed in place at every strategy; some, with STASIS_TEST_FULL=1 all, are also checkpointed, killed and restored under
`stasis`. The table of results is left in matrix.txt of the build folder. STASIS_MATRIX_SEED chooses points and cases;
STASIS_MATRIX_CASES="a b" runs these alone.
"""

import collections
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

from softgpu import Node, built, die_with_parent
from stasis_job import Site
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, STRATEGIES, TaskError, wait_for_task

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "scripts" / "gen"))
import coverage  # noqa: E402  pylint: disable=wrong-import-position

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_MATRIX_SEED", time.time_ns() % 2**32 if FULL else 5))
STEPS = 12 if FULL else 4
WHOLE = None if FULL else 6  # cases a strategy that go through `stasis`; None: all
LEAKS = None if FULL else 8  # cases a strategy that are looked at for leaks
CYCLES = 100
WORKERS = 2
NODE = ("--gpus", "2", "--memory", "512MiB")
PROGRAMS = ("matrix", "matrix_device_malloc", "matrix_managed", "matrix_libraries")
SLACK = 1 << 20  # bytes of host memory by which CYCLES may grow, for what malloc keeps

# Kinds that only calls make which no device here carries out. refused_test.py makes those of them that are refused; a tensor
# map is memory of the program, and nothing is done about it.
NO_DEVICE = {"kMulticast", "kGreenContext", "kExternalMemory", "kExternalSemaphore", "kGraphics", "kDriverCallback",
             "kTextureReference", "kSurfaceReference", "kTensorMap"}

SOFTGPU_SAYS = re.compile(r"softgpu\[|\w+\[\d+:\d+\] W softgpu ")

Result = collections.namedtuple("Result", "case strategy way checkpoints result")
RESULTS = []


class Case:
    """A row of `matrix --list`."""

    def __init__(self, program, line):
        self.program = program
        self.name, kinds, refused, ways = (line.split("|") + [""])[:4]
        self.kinds = kinds.split()
        self.refused_by, _, self.refused_text = refused.partition(" ")
        self.whole_only = ways == "processes"

    def refusal(self, strategy, status, by_driver=False):
        """The texts of which one has to be in the refusal; empty when the case is to be restored."""
        if self.refused_by in ("both", STRATEGIES[strategy]):
            return [self.refused_text]
        if by_driver and self.refused_by == "driver" and strategy == DRIVER_CHECKPOINT:
            return [self.refused_text]
        names = []
        for kind in self.kinds:
            outcome, makers = status[kind]
            if outcome == "refused" or (outcome == "refused under reconstruct" and strategy == RECONSTRUCT):
                names += [name for name, when in makers.items() if when == "always" or strategy == RECONSTRUCT]
        return names


class Program:
    """A case that takes its steps from standard input."""

    def __init__(self, node, case, **extra):
        self.process = subprocess.Popen([built(case.program), case.name], env=node.env(**extra), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def until(self, beginning):
        lines = []
        while not lines or not lines[-1].startswith(beginning):
            lines.append(self.process.stdout.readline())
            if not lines[-1]:
                raise AssertionError("the program has ended: " + "".join(lines) + f" ({self.process.wait()})")
        return "".join(lines)

    def send(self, line="\n"):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def finish(self):
        self.send("q\n")
        rest = self.process.stdout.read()
        code = self.process.wait(timeout=60)
        if code != 0:
            raise AssertionError(f"the program ended with {code}: {rest}")
        return rest


def undisturbed(node, case):
    with Program(node, case) as program:
        output = program.until("ready")
        for number in range(1, STEPS + 1):
            program.send()
            output += program.until(f"step {number}:")
        return output + program.finish()


def kept(task):
    """What a process holds that a leak would add to."""
    status = task.status()
    return {name: status[name] for name in ("records", "allocations", "extents", "extent_bytes", "host_bytes")}


class Light:
    """Pauses in place, by the protocol between ghost and interposer."""

    def __init__(self, node, case, strategy):
        self.node, self.case, self.strategy = node, case, strategy
        self.driver = built("lib/softgpu/libcuda.so.1")
        self.random = random.Random(f"{SEED} {case.name} {strategy}")

    @contextlib.contextmanager
    def started(self):
        with (tempfile.TemporaryDirectory(prefix="stasis-task-") as folder,
              Program(self.node, self.case, LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=folder, STASIS_DRIVER=self.driver,
                      STASIS_STRATEGY=STRATEGIES[self.strategy], STASIS_MANAGED="host") as program):
            with wait_for_task(folder, program.process.pid) as task:
                yield program, task

    def pause(self, task):
        extents = task.pause(self.strategy)
        # With the other strategy it is the driver that moves, and nobody asks it here.
        placements = self.random.choice([(), ((0, 1), (1, 0)), ((0, 0), (1, 1))]) if self.strategy == RECONSTRUCT else ()
        task.unpause(extents, self.driver, placements)

    def restored(self):
        """(output, what is held in the end, pauses)."""
        with self.started() as (program, task):
            output = program.until("ready")
            for number in range(1, STEPS + 1):
                if self.random.random() < 0.5:
                    self.pause(task)
                    program.send()
                else:
                    program.send()
                    time.sleep(self.random.uniform(0, 0.02))  # a moment somewhere within the step
                    self.pause(task)
                output += program.until(f"step {number}:")
            self.pause(task)
            held = kept(task)
            return output + program.finish(), held, STEPS + 1

    def paused_once(self):
        """What is held in the end, when nothing came before the one pause there."""
        with self.started() as (program, task):
            program.until("ready")
            for number in range(1, STEPS + 1):
                program.send()
                program.until(f"step {number}:")
            self.pause(task)
            return kept(task)

    def refused(self, texts):
        with self.started() as (program, task):
            output = program.until("ready")
            for number in range(1, STEPS + 1):
                program.send()
                output += program.until(f"step {number}:")
                task.quiesce()
                try:
                    task.release(self.strategy)
                    raise AssertionError(f"it was paused, and should have been refused for {texts}")
                except TaskError as error:
                    if error.code != "UNSUPPORTED" or not any(text in str(error) for text in texts):
                        raise AssertionError(f"{error} does not name one of {texts}") from error
                task.go_on()
            return output + program.finish(), STEPS

    def measure(self, task, pid):
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            anonymous = next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Anonymous:"))
        return kept(task) | {"device memory": sum(device["memory_used"] for device in self.node.devices()),
                             "fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
                             "host memory": anonymous}

    def leaks(self):
        """Differences that CYCLES pauses make: name -> (before, after)."""
        with self.started() as (program, task):
            program.until("ready")
            program.send()
            program.until("step 1:")
            for _ in range(5):
                self.pause(task)
            before = self.measure(task, program.process.pid)
            for _ in range(CYCLES):
                self.pause(task)
            after = self.measure(task, program.process.pid)
            program.send()
            program.until("step 2:")
            program.finish()
        grown = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        if "host memory" in grown and after["host memory"] - before["host memory"] <= SLACK:
            del grown["host memory"]
        return grown


class Whole:
    """Checkpoints, kills and restores of a task under `stasis`."""

    def __init__(self, site, case, strategy, number):
        self.site, self.case, self.strategy = site, case, strategy
        self.random = random.Random(f"{SEED} whole {case.name} {strategy}")
        self.folder = os.path.join(site.folder.name, f"steps-{number}")
        os.mkdir(self.folder)
        self.job = site.start(f"m{number}-{case.name}", built(case.program), case.name, self.folder, STEPS,
                              options=["--strategy", STRATEGIES[strategy], "--managed", "host"])
        self.job.wait_for_output("ready:")

    def allow(self, number):
        with open(os.path.join(self.folder, str(number)), "x", encoding="ascii"):
            pass

    def disturb(self):
        if self.random.random() < 0.3:
            self.job.verb("pause", "--residency", self.random.choice(["device", "host"]))
            self.job.verb("resume")
            return
        stop = self.random.random() < 0.5
        self.job.verb("checkpoint", *(["--stop"] if stop else []))
        if stop:
            self.job.wait()
        else:
            self.job.kill()
        self.job.verb("restore", "--detach", "--gpus", self.random.choice(["0,1", "1,0"]))

    def restored(self):
        """(output, checkpoints)."""
        points = sorted(self.random.sample(range(1, STEPS), min(2, STEPS - 1)))
        for number in range(1, STEPS + 1):
            self.allow(number)
            if number in points:
                if self.random.random() < 0.5:
                    self.job.wait_for_output(f"step {number}:")
                self.disturb()
        return self.end(), len(points)

    def refused(self, texts):
        self.allow(1)
        self.job.wait_for_output("step 1:")
        for verb in ("pause", "checkpoint"):
            _, answer = self.job.refused(verb)
            code = "DRIVER" if self.case.refused_by == "driver" else "UNSUPPORTED"
            if answer["code"] != code or not any(text in answer["message"] for text in texts):
                raise AssertionError(f"stasis {verb}: {answer} does not name one of {texts}")
        for number in range(2, STEPS + 1):
            self.allow(number)
        return self.end(), 2

    def end(self):
        code = self.job.wait()
        if code != 0:
            raise AssertionError(f"the task ended with {code}: {self.job.output()[-1000:]}")
        # softgpu says on the program's standard error what it refuses and what it does not have.
        return "".join(line for line in self.job.output().splitlines(True) if not SOFTGPU_SAYS.match(line))


def same(output, expected):
    if output != expected:
        difference = [f"- {e}\n+ {o}" for e, o in zip(expected.splitlines(), output.splitlines()) if e != o]
        raise AssertionError("it prints something else:\n" + ("\n".join(difference[:4]) or output[-500:]))


def setUpModule():  # pylint: disable=invalid-name
    print(f"matrix: seed {SEED}", file=sys.stderr, flush=True)


def table(status):
    """The results, as text."""
    rows = [("kind", "strategy", "by", "checkpoints", "result")]
    rows += [(r.case, STRATEGIES[r.strategy], r.way, str(r.checkpoints), r.result) for r in sorted(RESULTS)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    counts = collections.Counter(outcome for outcome, _ in status.values())
    failed = sum(r.result.startswith("FAILED") for r in RESULTS)
    lines.append(f"{len(status)} kinds of objects: {counts['restored']} restored, "
                 f"{counts['refused under reconstruct']} refused under reconstruct, {counts['refused']} refused; "
                 f"{len({r.case for r in RESULTS})} programs, {len(RESULTS)} runs, "
                 f"{sum(r.checkpoints for r in RESULTS)} checkpoints, {failed} failed; seed {SEED}")
    return "\n".join(lines) + "\n"


class MatrixTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.coverage = coverage.Coverage(os.environ["STASIS_CXX"], os.environ["STASIS_CUDA_INCLUDE"])
        cls.status = cls.coverage.status
        cls.site = Site(*NODE)
        cls.site.__enter__()
        cls.addClassCleanup(cls.site.__exit__, None, None, None)
        cls.addClassCleanup(cls.write_table)
        cls.node = cls.site.node
        cls.cases = []
        for name in PROGRAMS:
            program = "tests/programs/" + name
            listed = cls.node.run(built(program), "--list")
            if listed.returncode != 0:
                raise RuntimeError(f"{program} --list: {listed.stderr}")
            cls.cases += [Case(program, line) for line in listed.stdout.splitlines()]
        wanted = os.environ.get("STASIS_MATRIX_CASES", "").split()
        cls.all_cases, cls.cases = cls.cases, [case for case in cls.cases if not wanted or case.name in wanted]
        cls.expected = {}
        cls.numbers = iter(range(10000))
        cls.random = random.Random(SEED)

    @classmethod
    def write_table(cls):
        (pathlib.Path(os.environ["STASIS_BUILD_DIR"]) / "matrix.txt").write_text(table(cls.status))
        print(table(cls.status), file=sys.stderr, flush=True)

    def run_all(self, way, cases, one):
        """Runs one(case, strategy) -> (checkpoints, result) for all, WORKERS at a time."""
        def run(case, strategy):
            try:
                if case.name not in self.expected:
                    self.expected[case.name] = undisturbed(self.node, case) if not case.whole_only else None
                checkpoints, result = one(case, strategy)
            except Exception as error:  # pylint: disable=broad-except
                checkpoints, result = 0, f"FAILED {type(error).__name__}"
                failures.append(f"{case.name}, {STRATEGIES[strategy]}, {way}: {error}")
            RESULTS.append(Result(case.name, strategy, way, checkpoints, result))

        failures = []
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for future in [pool.submit(run, case, strategy) for case, strategy in cases]:
                future.result()
        self.assertEqual(failures, [], f"seed {SEED}\n" + "\n".join(failures))

    def sample(self, count, always=lambda case: False):
        """Cases with strategies: `count` random ones a strategy, and those for which `always` holds."""
        chosen = []
        for strategy in (RECONSTRUCT, DRIVER_CHECKPOINT):
            some = self.cases if count is None else self.random.sample(self.cases, min(count, len(self.cases)))
            chosen += [(case, strategy) for case in self.cases if case in some or always(case)]
        return chosen

    def test_every_kind_has_a_program(self):
        covered = {kind for case in self.all_cases for kind in case.kinds}
        self.assertEqual(sorted(covered - self.status.keys()), [], "no such kinds in base/object_kinds.inc")
        made = {kind for kind, (_, makers) in self.status.items() if makers or self.status[kind][0] == "restored"}
        self.assertEqual(sorted(made - covered - NO_DEVICE), [], "kinds without a program in tests/programs/matrix")

    def test_paused_in_place(self):
        def one(case, strategy):
            light = Light(self.node, case, strategy)
            texts = case.refusal(strategy, self.status)
            if texts:
                output, pauses = light.refused(texts)
                same(output, self.expected[case.name])
                return pauses, "refused by name"
            output, held, pauses = light.restored()
            same(output, self.expected[case.name])
            once = light.paused_once()
            if held != once:
                raise AssertionError(f"it holds {held}, and {once} when it is paused once")
            return pauses, "identical"

        self.run_all("pause", [(case, strategy) for case, strategy in self.sample(None) if not case.whole_only], one)

    def test_checkpointed_killed_and_restored(self):
        def one(case, strategy):
            whole = Whole(self.site, case, strategy, next(self.numbers))
            texts = case.refusal(strategy, self.status, by_driver=True)
            output, checkpoints = whole.refused(texts) if texts else whole.restored()
            if case.whole_only and self.expected[case.name] is None:
                self.expected[case.name] = self.undisturbed_whole(case)
            same(output, self.expected[case.name])
            return checkpoints, "refused by name" if texts else "identical"

        self.run_all("checkpoint", self.sample(WHOLE, lambda case: case.whole_only), one)

    def undisturbed_whole(self, case):
        folder = tempfile.mkdtemp(dir=self.site.folder.name)
        for number in range(1, STEPS + 1):
            pathlib.Path(folder, str(number)).touch()
        result = self.node.run(built(case.program), case.name, folder, str(STEPS))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_leaks_nothing(self):
        def one(case, strategy):
            with Node(*NODE) as node:  # where nobody else takes memory
                grown = Light(node, case, strategy).leaks()
            if grown:
                raise AssertionError(f"{CYCLES} cycles change {grown}")
            return CYCLES + 5, "no leak"

        self.run_all("leak", [(case, strategy) for case, strategy in self.sample(LEAKS)
                              if not case.whole_only and not case.refusal(strategy, self.status)], one)


if __name__ == "__main__":
    unittest.main()
