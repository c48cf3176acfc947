"""One image of a job of many ranks: how long it stands still, what is copied off the devices, what is written and read, beside
the same ranks as tasks of their own that know nothing of each other.

The baseline copies and writes the whole of every rank, and reads it again: each of its tasks has a store of its own, hashes
nothing on the device and keeps no snapshot.
"""

import contextlib
import os
import subprocess
import sys
import time

import report
from softgpu import built, die_with_parent
from stasis_ranks import RankSite

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))
RANKS = tuple(int(n) for n in os.environ.get("STASIS_BENCH_RANKS", "1,2,4,8").split(","))
MIB = 2**20
# 216 MiB of weights, momentum and gradients. In the middle of a step the ranks differ in the gradients of one layer.
MODEL = ["--width", "384", "--layers", "96", "--batch", "4", "--rows", "4096", "--lr", "0.0001"]
ENDLESS = ["--steps", "100000000", "--log-every", "1", "--pace-ms", "200"]
PROGRAM = "samples/ddp_train"
# The first step is behind it, so that momentum is there.
LINE = "step 2 "


def beside(commands, env):
    """Verbs of several tasks at the same time: their answers."""
    running = [subprocess.Popen([built("bin/stasis"), *command], env=e, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
               for command, e in zip(commands, env)]
    answers = []
    for process in running:
        out, err = process.communicate()
        if process.returncode != 0:
            sys.exit(f"stasis {process.args[1:]}: {out}\n{err}")
        answers.append(report.json.loads(out))
    return answers


def total(answers, key):
    return sum(answer[key] for answer in answers)


class Sample:
    """One checkpoint and one restore, of all ranks."""

    def __init__(self, checkpoints, restores, seconds):
        self.standstill_ms = max(answer["standstill_ms"] for answer in checkpoints)
        self.copied = total(checkpoints, "copied_bytes") / MIB
        self.added = total(checkpoints, "added_bytes") / MIB
        self.active = total(checkpoints, "active_bytes") / MIB
        self.restore_ms = 1000 * seconds
        self.read = total(restores, "read_bytes") / MIB
        self.fanned_out = total(restores, "fanned_out_bytes") / MIB


def clear_cache(site):
    """What was written is read from the disk again."""
    for folder, _, files in os.walk(os.path.join(site.state, "store")):
        for name in files:
            with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def job_sample(node, ranks, *options):
    with RankSite(beside=node) as site:
        job = site.start_ranks("ddp", ranks, built(PROGRAM), *MODEL, *ENDLESS)
        job.ranks[0].wait_for_output(LINE)
        report.warm_memory(256 * ranks)
        saved = job.verb("checkpoint", *options)
        job.verb("cancel")
        job.wait()
        clear_cache(site)
        start = time.monotonic()
        restored = job.verb("restore", "--detach")
        seconds = time.monotonic() - start
        job.verb("cancel")
        job.wait()
        return Sample(saved["ranks"], restored["ranks"], seconds)


def alone_sample(node, ranks):
    with contextlib.ExitStack() as stack:
        sites = [stack.enter_context(RankSite(beside=node)) for _ in range(ranks)]
        jobs = [site.start("ddp", built(PROGRAM), *MODEL, *ENDLESS, "--device", str(i)) for i, site in enumerate(sites)]
        for job in jobs:
            job.wait_for_output(LINE)
        report.warm_memory(256 * ranks)

        def all_of(verb, *options):
            return beside([[verb, "--json", "ddp", *options] for _ in sites], [site.env() for site in sites])

        saved = all_of("checkpoint", "--snapshot", "off", "--device-hash", "off")
        all_of("cancel")
        for job in jobs:
            job.wait()
        for site in sites:
            clear_cache(site)
        start = time.monotonic()
        restored = all_of("restore", "--detach")
        seconds = time.monotonic() - start
        all_of("cancel")
        for job in jobs:
            job.wait()
        return Sample(saved, restored, seconds)


def samples_of(ranks):
    """By side, alternating."""
    sides = {"job": lambda node: job_sample(node, ranks), "hash": lambda node: job_sample(node, ranks, "--device-hash", "on"),
             "alone": lambda node: alone_sample(node, ranks)}
    samples = {side: [] for side in sides}
    with RankSite("--gpus", str(max(ranks, 1)), "--memory", "1GiB") as node:
        for run in range(RUNS):
            print(f"{ranks} ranks, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
            for side in sides if run % 2 == 0 else reversed(sides):
                samples[side].append(sides[side](node))
    return samples


def rows_of(ranks, samples, of_one):
    def row(name, unit, side, key, goal=None, limit=None, one=None):
        result = report.row(f"{ranks} ranks: {name}", unit, [getattr(s, key) for s in samples[side]],
                            [getattr(s, key) for s in samples["alone"]], goal)
        if goal is not None:
            base = report.row("", unit, [getattr(s, key) for s in of_one[side]])["ours"]
            result["of_one"] = result["ours"] / base
            result["met"] = result["of_one"] <= limit
        return result

    return [row("standstill", "ms", "job", "standstill_ms"), row("image, and bytes written", "MiB", "job", "added",
                                                                 "<= 1.25 of one rank's", 1.25),
            row("copied off the devices", "MiB", "job", "copied"),
            row("copied off the devices, device hash", "MiB", "hash", "copied", "<= 1.25 of one rank's", 1.25),
            row("image, device hash", "MiB", "hash", "added"), row("restore", "ms", "job", "restore_ms"),
            row("read for device memory", "MiB", "job", "read", "<= 1.25 of one rank's", 1.25),
            row("fanned out", "MiB", "job", "fanned_out")]


def main():
    rows, of_one = [], None
    for ranks in RANKS:
        samples = samples_of(ranks)
        of_one = of_one or samples
        rows += rows_of(ranks, samples, of_one)
    report.write(sys.argv[1], "multirank", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with report.large_device_pages():
        main()
