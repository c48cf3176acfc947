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
# A GPU copies within itself tens of times as fast as to its host. On a software device both are one memory copy, so one
# measurement is made with the way to the host about ten times slower.
SLOW_GBPS = 0.25
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
        silent, telling = images_of(site, count, f"of{count}-{run}")
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


# Beside `--snapshot off`.
WAYS = {"snapshot": ("--snapshot", "auto"), "low point": ("--snapshot", "off", "--wait-low", "500ms"),
        "snapshot, low point": ("--snapshot", "auto", "--wait-low", "500ms")}


def checkpoint_into_nothing(site, job, *options):
    """A checkpoint that finds nothing in the store: what was there before is forgotten first."""
    report.warm_memory(2 * HOLDER_MIB)
    answer = checkpoint(job, *options)
    for arguments in (("rm", "--force", answer["name"]), ("gc",)):
        subprocess.run([built("bin/stasis"), "images", *arguments, "-q"], env=site.env(), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, check=True)
    return answer


def standstill_rows(site, label, program, options, line, limit=None):
    job = site.start(label.split()[0], built(program), *options)
    job.wait_for_output(line)
    ways = [("plain", ("--snapshot", "off")), *WAYS.items()]
    samples = {name: [] for name, _ in ways}
    for run in range(RUNS):
        print(f"standstill of {label}, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        for name, how in ways if run % 2 == 0 else reversed(ways):
            samples[name].append(checkpoint_into_nothing(site, job, *how))
    end(job)
    rows = []
    for name in WAYS:
        goal = "<= 1/3 of the checkpoint's" if name == "snapshot" and limit else None
        row = report.row(f"{label}: standstill, {name}", "ms", [s["standstill_ms"] for s in samples[name]],
                         [s["standstill_ms"] for s in samples["plain"]], goal)
        if goal is not None:
            row["met"] = row["ratio"] <= limit
        rows.append(row)
    rows.append(report.row(f"{label}: active at the low point", "MiB", [s["active_bytes"] / MIB for s in samples["low point"]],
                           [s["active_bytes"] / MIB for s in samples["plain"]]))
    return rows


def second_rows():
    """Two checkpoints of one process whose weights no longer change."""
    samples = {"first": [], "second": [], "hashed": []}
    for run in range(RUNS):
        print(f"frozen weights, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        with Site("--gpus", "1", "--memory", "2GiB") as site:  # a store that knows nothing yet
            job = start(site, "frozen", "samples/mlp_train", FROZEN)
            samples["first"].append(checkpoint(job))
            samples["second"].append(checkpoint(job))
            samples["hashed"].append(checkpoint(job, "--device-hash", "on"))
            end(job)

    def row(name, which, key, goal=None):
        result = report.row(f"second of frozen weights: {name}", "MiB", [s[key] / MIB for s in samples[which]],
                            [s[key] / MIB for s in samples["first"]], goal)
        if goal is not None:
            result["met"] = result["ratio"] <= 0.05
        return result

    return [row("written", "second", "added_bytes", "<= 5% of the first"), row("copied from the device", "second", "copied_bytes"),
            row("written, device hash", "hashed", "added_bytes"),
            row("copied from the device, device hash", "hashed", "copied_bytes", "<= 5% of the first")]


def main():
    rows = []
    memory = f"{2 * HOLDER_MIB + 1024}MiB"
    holder = ("tests/programs/holder", [str(HOLDER_MIB)], "ready")
    with Site("--gpus", "1", "--memory", memory) as site:
        rows += size_rows(site, 1, "one process", 1 / 4)
        rows += size_rows(site, REPLICAS, f"{REPLICAS} replicas, each", 1 / 6)
    with Site("--gpus", "1", "--memory", memory) as site:
        rows += standstill_rows(site, "mlp_train", "samples/mlp_train", TRAINING, "step ")
        rows += standstill_rows(site, f"holder of {HOLDER_MIB} MiB", *holder, 1 / 3)
    with Site("--gpus", "1", "--memory", memory, "--d2h-gbps", str(SLOW_GBPS)) as site:
        rows += standstill_rows(site, f"holder of {HOLDER_MIB} MiB, device to host {SLOW_GBPS} GB/s", *holder, 1 / 3)
    rows += second_rows()
    report.write(sys.argv[1], "image", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with report.large_device_pages():
        main()
