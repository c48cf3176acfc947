"""What the interposer costs in normal running: whole programs, one call, and what forwarding would cost instead."""

import os
import re
import subprocess
import sys
import tempfile
import time

import report
from softgpu import Node, built

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "7"))
CALLS = 5_000_000
PROGRAMS = {"mlp_train": ["samples/mlp_train", "--steps", "200"], "stencil": ["samples/stencil", "--iterations", "3000"]}


# Programs, and the beginning of a line that they print when all their memory is allocated.
MEMORY = {"mlp_train": (["samples/mlp_train"], "step 20 "), "gpt_train": (["samples/gpt_train"], "step 3 "),
          "stencil": (["samples/stencil", "--iterations", "100000"], "iteration 100"),
          "vector": (["samples/vector", "--rounds", "1000"], "round 3 ")}


class Arms:
    """The same program bare, and with the interposer as `stasis run` sets it up."""

    def __init__(self, node, folder):
        self.node = node
        self.shim = {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_DRIVER": built("lib/softgpu/libcuda.so.1"),
                     "STASIS_TASK": os.path.join(folder, "task")}
        os.mkdir(self.shim["STASIS_TASK"], 0o700)

    def run(self, shim, *command, timeout=600):
        result = self.node.run(*command, timeout=timeout, **(self.shim if shim else {}))
        if result.returncode != 0:
            sys.exit(f"{command}: {result.stderr}")
        return result.stdout


def programs(arms):
    rows = []
    for name, command in PROGRAMS.items():
        samples = {False: [], True: []}
        outputs = set()
        for run in range(RUNS):
            for shim in (False, True) if run % 2 == 0 else (True, False):
                started = time.monotonic()
                outputs.add(arms.run(shim, built(command[0]), *command[1:]))
                samples[shim].append(time.monotonic() - started)
        if len(outputs) != 1:
            sys.exit(f"{name} printed different results with and without the interposer")
        row = report.row(name, "s", samples[True], samples[False], "<= 1% slower")
        row["met"] = row["ratio"] <= 1.01
        rows.append(row)
    return rows


def device_memory(arms):
    """Device memory in use in the middle of each sample, as softgpu-smi shows it."""
    rows = []
    for name, (command, line) in MEMORY.items():
        used = {}
        for shim in (False, True):
            process = arms.node.start(built(command[0]), *command[1:], **(arms.shim if shim else {}))
            try:
                while not process.stdout.readline().startswith(line):
                    if process.poll() is not None:
                        sys.exit(f"{name} ended before it printed {line!r}")
                used[shim] = arms.node.devices()[0]["memory_used"] / 2**20
            finally:
                process.kill()
                process.communicate()
        row = report.row(f"device memory of {name}", "MiB", [used[True]], [used[False]], "< 3% more")
        row["met"] = row["ratio"] < 1.03
        rows.append(row)
    return rows


def call_times(arms, mode, count):
    samples = {False: [], True: []}
    for run in range(RUNS):
        for shim in (False, True) if run % 2 == 0 else (True, False):
            samples[shim].append(float(arms.run(shim, built("bin/call_cost"), mode, str(count))))
    return samples


def instructions(arms, shim, count):
    """Instructions that `count` calls take, start-up included."""
    with tempfile.NamedTemporaryFile() as out:
        result = arms.node.run("valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", built("bin/call_cost"), "direct",
                               str(count), timeout=600, **(arms.shim if shim else {}))
        if result.returncode != 0:
            sys.exit(f"callgrind: {result.stderr}")
        return int(re.search(r"Collected : (\d+)", result.stderr)[1])


def instructions_per_call(arms, shim):
    few, many = 20_000, 120_000
    return (instructions(arms, shim, many) - instructions(arms, shim, few)) / (many - few)


def calls(arms):
    query = call_times(arms, "direct", CALLS)
    added = [a - b for a, b in zip(query[True], query[False])]
    rows = [report.row("cuCtxGetDevice", "ns", query[True], query[False])]
    row = report.row("added to each call", "ns", added, goal="<= 15 ns")
    row["met"] = row["value"] <= 15
    rows.append(row)
    launch = call_times(arms, "launch", CALLS // 50)
    rows.append(report.row("launch of an empty kernel", "ns", launch[True], launch[False]))
    bare, with_shim = (instructions_per_call(arms, shim) for shim in (False, True))
    rows.append(report.row("instructions of cuCtxGetDevice", "instructions", [with_shim], [bare]))
    rows.append(report.row("instructions added to each call", "instructions", [with_shim - bare]))
    for mode, name in (("socket", "forwarded over a unix socket"), ("memory", "forwarded over shared memory")):
        samples = [float(arms.run(False, built("bin/call_cost"), mode, str(CALLS // 100))) for _ in range(RUNS)]
        rows.append(report.row(f"cuCtxGetDevice, {name}", "ns", samples, query[True]))
    return rows


def main():
    with tempfile.TemporaryDirectory() as folder, Node("--gpus", "1", "--memory", "2GiB") as node:
        arms = Arms(node, folder)
        report.write(sys.argv[1], "overhead", RUNS, [*programs(arms), *device_memory(arms), *calls(arms)])


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    for tool in ("valgrind",):
        subprocess.run([tool, "--version"], check=True, stdout=subprocess.DEVNULL)
    main()
