"""Images of whole tasks: what leaving out inactive memory, dedup and compression save, alone and together, and how long the
program stands still.

The naive image is what `criu dump` and a copy of all device memory take: no byte left out, found again or compressed.
"""

import json
import os
import subprocess
import sys

import report
from softgpu import built
from stasis_job import Site

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "5"))
HOLDER_MIB = int(os.environ.get("STASIS_BENCH_HOLDER_MIB", "1024"))
REPLICAS = 4
STEP = 40
MIB = 2**20
# Never ends by itself; from one step on the weights are frozen, so that replicas are equal whenever they are looked at.
FROZEN = ["--steps", "100000000", "--log-every", str(STEP), "--freeze-after", str(STEP)]
TRAINING = ["--steps", "100000000", "--log-every", "10"]


def weigh(site, *images):
    result = subprocess.run([built("bin/store_bench"), "weigh", os.path.join(site.state, "store"), *images],
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"store_bench weigh: {result.stderr}")
    return json.loads(result.stdout)


def start(site, name, program, options):
    job = site.start(name, built(program), *options)
    job.wait_for_output("step ")
    return job


def end(job):
    job.verb("cancel")
    job.wait()


def checkpoint(job, *options):
    answer = job.verb("checkpoint", *options)
    answer["name"] = f"{job.name}/{answer['image']}"
    return answer


def images_of(site, count, label):
    """One image each of `count` frozen replicas, whose allocators tell nothing, and tell what is in use."""
    answers = {}
    for program in ("tests/programs/silent_mlp", "samples/mlp_train"):
        images = []
        for rank in range(count):
            job = start(site, f"{label}-{os.path.basename(program)}-{rank}", program, FROZEN)
            images.append(checkpoint(job)["name"])
            end(job)
        answers[program] = weigh(site, *images)
    return answers["tests/programs/silent_mlp"], answers["samples/mlp_train"]


def size_rows(site, count, label, limit):
    """Medians over runs of the bytes that one rank's share of the images takes."""
    naive, active = [], []
    for run in range(RUNS):
        print(f"{label}, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        silent, telling = images_of(site, count, f"{label.replace(' ', '-')}-{run}")
        naive.append(silent)
        active.append(telling)

    def row(name, samples, key, goal=None):
        result = report.row(f"{label}: {name}", "MiB", [s[key] / MIB / count for s in samples],
                            [s["raw"] / MIB / count for s in naive], goal)
        if goal is not None:
            result["met"] = result["ratio"] <= limit
        return result

    return [row("active memory alone", active, "raw"), row("dedup alone", naive, "unique"),
            row("compression alone", naive, "compressed"), row("dedup and compression", naive, "both"),
            row("active memory and dedup", active, "unique"), row("active memory and compression", active, "compressed"),
            row("all together", active, "both", f"<= 1/{round(1 / limit)} of the naive image")]


# What is compared with `--snapshot off` alone: waiting for the low point is worth it for either.
WAYS = {"snapshot": ("--snapshot", "auto"), "low point": ("--snapshot", "off", "--wait-low", "500ms"),
        "snapshot, low point": ("--snapshot", "auto", "--wait-low", "500ms")}
PLAIN = ("--snapshot", "off")


def standstill_rows(job, label):
    samples = {name: [] for name in ("plain", *WAYS)}
    low = []
    for run in range(RUNS):
        print(f"standstill of {label}, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        ways = [("plain", PLAIN), *WAYS.items()]
        for name, options in ways if run % 2 == 0 else reversed(ways):
            answer = checkpoint(job, *options)
            samples[name].append(answer["standstill_ms"])
            if name == "low point":
                low.append(answer["active_bytes"] / MIB)
    rows = []
    for name in WAYS:
        goal = "<= 1/3 of the checkpoint's" if name == "snapshot" and label.startswith("holder") else None
        row = report.row(f"{label}: standstill, {name}", "ms", samples[name], samples["plain"], goal)
        if goal is not None:
            row["met"] = row["ratio"] <= 1 / 3
        rows.append(row)
    return [*rows, report.row(f"{label}: active at the low point", "MiB", low)]


def second_rows():
    """Two checkpoints of one process whose weights no longer change."""
    first, second = [], []
    for run in range(RUNS):
        print(f"frozen weights, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        with Site("--gpus", "1", "--memory", "2GiB") as own:  # a store that knows nothing yet
            job = start(own, "frozen", "samples/mlp_train", FROZEN)
            first.append(checkpoint(job))
            second.append(checkpoint(job))
            end(job)
    rows = []
    for name, key in (("bytes written", "added_bytes"), ("device bytes copied", "copied_bytes")):
        if not all(key in answer for answer in first):
            continue
        row = report.row(f"second of frozen weights: {name}", "MiB", [a[key] / MIB for a in second], [a[key] / MIB for a in first],
                         "<= 5% of the first" if key == "added_bytes" else None)
        if key == "added_bytes":
            row["met"] = row["ratio"] <= 0.05
        rows.append(row)
    return rows


def main():
    rows = []
    with Site("--gpus", "1", "--memory", f"{2 * HOLDER_MIB + 4096}MiB") as site:
        rows += size_rows(site, 1, "one process", 1 / 4)
        rows += size_rows(site, REPLICAS, f"{REPLICAS} replicas, each", 1 / 6)
        for label, program, options, line in (("mlp_train", "samples/mlp_train", TRAINING, "step "),
                                              (f"holder of {HOLDER_MIB} MiB", "tests/programs/holder", [str(HOLDER_MIB)], "ready")):
            job = site.start(label.split()[0], built(program), *options)
            job.wait_for_output(line)
            rows += standstill_rows(job, label)
            end(job)
    rows += second_rows()
    report.write(sys.argv[1], "image", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    main()
