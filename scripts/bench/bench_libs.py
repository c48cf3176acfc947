"""What the wrappers of CUDA's libraries cost and save: the libraries' hooks in normal running, hidden memory given up for a
pause, and the time that 64 handles take to come back.

The baseline is the interposer without them: with the libraries preloaded before it, calls reach them straight away, and the
driver level alone covers them."""

import os
import resource
import statistics
import sys
import tempfile
import time

import report
from softgpu import BUILD, Node, built
from stasis_job import Site

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "7"))
LIBRARIES = ("libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")
PROGRAMS = {"gpt_train --blas": ["samples/gpt_train", "--blas", "--steps", "30"],
            "cnn_train": ["samples/cnn_train", "--steps", "60", "--test", "100"]}
CALLS = 3_000_000
# Programs in the middle of their work, and the beginning of a line that they print there.
PAUSED = {"gpt_train --blas": (["samples/gpt_train", "--blas", "--steps", "100000", "--log-every", "1"], "step 3 "),
          "cnn_train": (["samples/cnn_train", "--steps", "100000", "--log-every", "1"], "step 3 "),
          "64 handles": (["tests/programs/libraries", "many", "never"], "ready")}
MIB = 2**20


def preload(wrapped):
    before = [] if wrapped else [os.path.join(BUILD, "lib", "softgpu", name) for name in LIBRARIES]
    return " ".join([*before, built("lib/libstasis.so")])


class Arms:
    """The same program with and without the libraries' wrappers, as `stasis run` sets it up."""

    def __init__(self, node, folder):
        self.node = node
        self.task = os.path.join(folder, "task")
        os.mkdir(self.task, 0o700)

    def run(self, wrapped, *command):
        """What it printed, its wall time and its processor time."""
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        result = self.node.run(*command, timeout=600, LD_PRELOAD=preload(wrapped), STASIS_TASK=self.task,
                               STASIS_DRIVER=built("lib/softgpu/libcuda.so.1"))
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if result.returncode != 0:
            sys.exit(f"{command}: {result.stderr}")
        return result.stdout, wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def samples(self, *command):
        """(wall, processor) times of each arm, and what was printed."""
        wall, processor, printed = {False: [], True: []}, {False: [], True: []}, {False: [], True: []}
        for run in range(RUNS):
            for wrapped in (False, True) if run % 2 == 0 else (True, False):
                text, one_wall, one_processor = self.run(wrapped, *command)
                wall[wrapped].append(one_wall)
                processor[wrapped].append(one_processor)
                printed[wrapped].append(text)
        return wall, processor, printed


def programs(arms):
    rows = []
    for name, command in PROGRAMS.items():
        wall, processor, printed = arms.samples(built(command[0]), *command[1:])
        if len({text for texts in printed.values() for text in texts}) != 1:
            sys.exit(f"{name} printed different results with and without the wrappers")
        # The wrappers never wait, so what they cost is processor time too, which other work on the machine disturbs less.
        for what, times in ((name, wall), (f"{name}, processor time", processor)):
            row = report.row(what, "s", times[True], times[False], "<= 1% more")
            row["met"] = row["ratio"] <= 1.01
            rows.append(row)
    return rows


def calls(arms):
    rows = []
    for mode, name in (("get", "cublasGetPointerMode"), ("stream", "cublasSetStream")):
        _, _, printed = arms.samples(built("bin/library_call_cost"), mode, str(CALLS))
        times = {wrapped: [float(text) for text in texts] for wrapped, texts in printed.items()}
        rows.append(report.row(name, "ns", times[True], times[False]))
    return rows


def pauses(name, command, line):
    """Bytes held and written of the program in the middle, and how long it takes to go on, for both arms."""
    held, written, resumed, standstill = ({False: [], True: []} for _ in range(4))
    with Site("--gpus", "1", "--memory", "4GiB") as site:
        for run in range(max(3, RUNS // 2)):
            for wrapped in (False, True) if run % 2 == 0 else (True, False):
                job = site.start(f"job-{run}-{int(wrapped)}", "/usr/bin/env", "LD_PRELOAD=" + preload(wrapped),
                                 built(command[0]), *command[1:])
                job.wait_for_output(line)
                job.verb("pause", "--residency", "device")
                held[wrapped].append(site.node.devices()[0]["memory_used"] / MIB)
                started = time.monotonic()
                job.verb("resume")
                resumed[wrapped].append(time.monotonic() - started)
                answer = job.verb("checkpoint")
                written[wrapped].append(answer["copied_bytes"] / MIB)
                standstill[wrapped].append(answer["standstill_ms"])
                job.kill()
    saved = statistics.median(written[False]) - statistics.median(written[True])
    return [report.row(f"device memory held of {name}", "MiB", held[True], held[False]),
            report.row(f"device memory in an image of {name}", "MiB", written[True], written[False]),
            report.row(f"saved of an image of {name}", "MiB", [saved]),
            report.row(f"resume of {name}", "s", resumed[True], resumed[False]),
            report.row(f"standstill of a checkpoint of {name}", "ms", standstill[True], standstill[False])]


def main():
    with tempfile.TemporaryDirectory() as folder, Node("--gpus", "1", "--memory", "2GiB") as node:
        arms = Arms(node, folder)
        rows = programs(arms) + calls(arms)
    for name, (command, line) in PAUSED.items():
        rows += pauses(name, command, line)
    report.write(sys.argv[1], "libs", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    main()
