#!/usr/bin/env python3
"""Runs a program that prints `step N ...` three times and compares what it prints: undisturbed; under `stasis`, paused and
resumed; and under `stasis`, checkpointed after a quarter, killed with SIGKILL and restored.

usage: run_cycle.py [options] -- PROGRAM [ARGUMENT...]

Exit status 0 when all outputs are the same, line for line; 1 when they differ or a verb fails, with the reason; 2 on a command
line that makes no sense. `--json FILE` gets the times of the verbs.
"""

import argparse
import contextlib
import difflib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

LOG_END = 4000  # bytes of a log that say what happened at last


class CycleFailed(Exception):
    """The sentence that says what went wrong."""

    logs = {}  # of the task, the end of each: name: text


class UndisturbedFailed(CycleFailed):
    """Without stasis the program fails, too."""


class Task:
    """One task under `stasis`, ended when left."""

    def __init__(self, stasis, env, name, limit):
        self.stasis, self.env, self.name, self.limit = stasis, env, name, limit
        self.brought_back = False  # by the driver, since it last let go

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        if isinstance(error, CycleFailed):
            error.logs = self.logs()
        if self.brought_back:
            with contextlib.suppress(CycleFailed):
                self.let_go()
        for command in (["cancel", "--quiet", "--grace", "1ms", self.name], ["rm", self.name]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([self.stasis, *command], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.limit,
                               check=False)

    def let_go(self):
        """What a driver has brought back is let go of again before it is killed: one has taken the whole machine along else."""
        self.verb("pause")

    def verb(self, verb, *arguments, subject=True):
        command = [self.stasis, verb, "--json", *([self.name] if subject else []), *arguments]
        self.brought_back = self.brought_back or verb in ("resume", "checkpoint", "migrate", "restore")
        try:
            done = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=self.limit, check=False)
        except subprocess.TimeoutExpired:
            raise CycleFailed(f"stasis {verb} has not ended after {self.limit:g} s") from None
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {"message": done.stdout[-500:] + done.stderr[-500:]}
        if verb == "pause" and done.returncode == 0:
            self.brought_back = False
        if done.returncode != 0:
            raise CycleFailed(f"stasis {verb}: {answer.get('message', done.stderr[-500:])}")
        return answer

    def start(self, options, program):
        self.verb("run", "--detach", "--name", self.name, *options, "--", *program, subject=False)

    def state_file(self, name):
        return os.path.join(self.env["STASIS_STATE_DIR"], "tasks", self.name, name)

    def logs(self):
        """The ends of all that has been written down of the task: what it printed, what its ghost and CRIU did."""
        ends = {}
        for folder, _, names in os.walk(self.state_file("")):
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith(".log"):
                    continue
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    file.seek(max(0, os.path.getsize(path) - LOG_END))
                    ends[os.path.relpath(path, self.state_file(""))] = file.read().decode(errors="replace")
        return ends

    def output(self):
        with open(self.state_file("output.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for(self, reached, what):
        """Follows the log until `reached` is true of it."""
        give_up = time.monotonic() + self.limit
        with subprocess.Popen([self.stasis, "logs", "-f", self.name], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as follow:
            try:
                seen = b""
                while reached is None or not reached(seen.decode(errors="replace")):
                    ready, _, _ = select.select([follow.stdout], [], [], max(0, give_up - time.monotonic()))
                    if not ready:
                        raise CycleFailed(f"no {what} after {self.limit:g} s: {self.output()[-500:]!r}")
                    chunk = os.read(follow.stdout.fileno(), 1 << 16)
                    if not chunk:
                        if reached is None:
                            return
                        raise CycleFailed(f"ended before {what}: {self.output()[-1000:]!r}")
                    seen += chunk
            finally:
                follow.kill()

    def wait_for_step(self, step):
        self.wait_for(lambda text: any(number >= step for number in steps_of(text)), f"step {step}")

    def finish(self):
        self.wait_for(None, "end")
        self.brought_back = False
        for task in self.verb("ps", "--all", subject=False)["tasks"]:
            if task["name"] == self.name and task.get("exit_code", 1) == 0:
                return self.output()
        raise CycleFailed(f"the program did not end well: {self.output()[-1000:]!r}")

    def kill(self):
        if self.brought_back:
            self.let_go()
        with open(self.state_file("process.json"), encoding="utf-8") as file:
            pid = json.load(file)["pid"]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            raise CycleFailed("the program had ended before it could be killed: give it more steps, or a longer --pace-ms") from None
        self.wait_for(None, "end after SIGKILL")


def steps_of(text):
    return [int(number) for number in re.findall(r"^step (\d+)\b.*\n", text, re.MULTILINE)]


def compare(name, expected, got, which):
    def lines(text):
        return [line for line in text.splitlines() if not which or re.search(which, line)]
    if not lines(expected):
        raise CycleFailed(f"no line of the output matches {which}")
    if lines(expected) == lines(got):
        return
    difference = list(difflib.unified_diff(lines(expected), lines(got), "undisturbed", name, lineterm="", n=0))
    raise CycleFailed(f"{name}: other output than undisturbed:\n  " + "\n  ".join(difference[:12]))


def run_undisturbed(program, env, limit):
    started = time.monotonic()
    try:
        done = subprocess.run(program, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise UndisturbedFailed(f"the undisturbed run has not ended after {limit:g} s") from None
    if done.returncode != 0:
        raise UndisturbedFailed(f"the undisturbed run failed: {(done.stdout + done.stderr)[-1000:]}")
    return done.stdout, (time.monotonic() - started) * 1000


def pick(answer, *names):
    return {name: answer[name] for name in names if name in answer}


@contextlib.contextmanager
def paced(env):
    """An environment in which samples rest between their steps where --pace-ms says so, and what lets them hurry."""
    with tempfile.TemporaryDirectory(prefix="stasis-pace-") as folder:
        until = os.path.join(folder, "hurry")
        yield dict(env, PACE_UNTIL=until), lambda: open(until, "w", encoding="utf-8").close()


def run_cycle(program, *, stasis, env, run_env=None, options=(), lines=None, limit=300, which=("paused", "restored"), name="cycle"):
    """The figures of all runs. `env` is that of the undisturbed run, `run_env` that of stasis and, through it, of the program."""
    expected, alone_ms = run_undisturbed(program, dict(env, PACE_UNTIL="/"), limit)
    steps = steps_of(expected)
    if len(steps) < 3:
        raise CycleFailed(f"the undisturbed run printed {len(steps)} steps; a cycle needs at least 3")
    figures = {"steps": len(steps), "undisturbed_ms": round(alone_ms, 1)}
    run_env = run_env or env
    if "paused" in which:
        with paced(run_env) as (slow, hurry), Task(stasis, slow, name + "-paused", limit) as task:
            task.start(options, program)
            for at, residency in ((len(steps) // 8, "device"), (len(steps) // 4, "host")):
                task.wait_for_step(steps[at])
                figures[f"pause_{residency}"] = pick(task.verb("pause", "--residency", residency), "pause_ms", "device_bytes")
                figures[f"resume_{residency}"] = pick(task.verb("resume"), "resume_ms")
            hurry()
            compare("paused", expected, task.finish(), lines)
    if "restored" in which:
        with paced(run_env) as (slow, hurry), Task(stasis, slow, name + "-restored", limit) as task:
            task.start(options, program)
            task.wait_for_step(steps[len(steps) // 4])
            figures["checkpoint"] = pick(task.verb("checkpoint"), "total_ms", "standstill_ms", "logical_bytes", "added_bytes")
            task.kill()
            figures["restore"] = pick(task.verb("restore", "--detach"), "total_ms")
            hurry()
            compare("restored", expected, task.finish(), lines)
    if "moved" in which:
        with paced(run_env) as (slow, hurry), Task(stasis, slow, name + "-moved", limit) as task:
            task.start([*options, "--gpus", "0"], program)
            task.wait_for_step(steps[len(steps) // 4])
            figures["migrate"] = pick(task.verb("migrate", "--gpus", "1"), "total_ms", "standstill_ms")
            hurry()
            compare("moved", expected, task.finish(), lines)
    return figures


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [options] -- PROGRAM [ARGUMENT...]",
                                     description="Undisturbed, paused, restored: the output has to be the same.")
    parser.add_argument("--stasis", default="stasis", help="the command (default: stasis in PATH)")
    parser.add_argument("--device", default="auto", choices=["auto", "nvidia", "soft"])
    parser.add_argument("--strategy", choices=["reconstruct", "driver-checkpoint"], help="default: what the driver offers")
    parser.add_argument("--only", choices=["paused", "restored", "moved"],
                        help="only this of the disturbed runs; moved: from GPU 0 to GPU 1 (left out otherwise)")
    parser.add_argument("--lines", metavar="REGEX", help="compare these alone: not warnings, which go into a task's log as well")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for each run and verb (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("program", nargs="+", metavar="PROGRAM")
    given = parser.parse_args()
    options = ["--device", given.device] + (["--strategy", given.strategy] if given.strategy else [])
    with tempfile.TemporaryDirectory(prefix="stasis-cycle-") as folder:
        env = dict(os.environ)
        run_env = dict(os.environ, STASIS_STATE_DIR=os.path.join(folder, "state"), STASIS_RUN_DIR=os.path.join(folder, "run"))
        try:
            figures = run_cycle(given.program, stasis=given.stasis, env=env, run_env=run_env, options=options, lines=given.lines,
                                limit=given.limit, which=[given.only] if given.only else ("paused", "restored"))
        except CycleFailed as failed:
            print(f"run_cycle: FAIL {failed}", file=sys.stderr)
            return 1
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    print(f"run_cycle: PASS {json.dumps(figures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
