"""Writes docs/performance.md from what the benchmarks of one run left in build/bench.

usage: performance.py FOLDER_OF_RESULTS COMMIT > docs/performance.md

Every figure in the document comes out of those files; what is said here is only what was compared, and why not more.
"""

import fnmatch
import json
import os
import sys
from dataclasses import dataclass


@dataclass
class Headline:
    title: str
    published: str      # what others publish, or what is aimed at, with the source
    method: str
    rows: list          # (benchmark, patterns of names of rows)
    limits: str         # what was not comparable, and why


DRIVER = ("The baseline is the driver's own checkpoint (`cuCheckpointProcessLock`, `Checkpoint`, `Restore`, `Unlock`) with "
          "`criu dump` and `criu restore`, as cuda-checkpoint with CRIU does it, in the same run on the same program, alternately.")

HEADLINES = [
    Headline("Overhead in normal running",
             "The aim: none that can be measured for one device. Singularity: -3.3 to 0 % on one GPU, -5.0 to 2.9 % on "
             "16 and more (arXiv 2202.07848). PhoenixOS and older systems forward calls to another process.",
             "Whole programs with and without `libstasis.so`, alternately; one call, in time and in instructions (callgrind, which "
             "counts the same whatever else the machine does); what it would cost to forward a call.",
             [("overhead", ["mlp_train", "stencil", "added to each call", "launch of an empty kernel", "instructions added to each call",
                            "cuCtxGetDevice, forwarded*"]),
              ("libs", ["*_train*"])],
             "On the software device kernels run on the CPU, so a launch takes longer than on a GPU and hides less of a call's cost "
             "when many small ones follow each other; the nanoseconds of a call hold for any driver."),
    Headline("Pause",
             "FlowGPU (Euro-Par 2026) is said to pause 6.2 to 15 times shorter than PhoenixOS and up to 10.4 times shorter than Singularity.",
             DRIVER + " *device* leaves the memory where it is and stops the program; *host* and *disk* give the device back. "
             "*checkpoint, standstill* is how long the program does not run for an image.",
             [("pause", ["*MiB: pause, *", "*MiB: checkpoint, standstill", "pause device*"]),
              ("image", ["*standstill, snapshot"])],
             "PhoenixOS's open code handles CUDA 11.3 on NVIDIA's driver, Singularity is not public: neither runs here. The software "
             "device copies at the speed of memory, not of PCIe, so host and disk residency are bound by other things than on a GPU."),
    Headline("Restore",
             "FlowGPU is said to restore 12 to 18 times faster than PhoenixOS and up to 4.1 times faster than Singularity.",
             DRIVER + " From the first command to a program that runs.",
             [("pause", ["*MiB: restore", "*MiB: resume, *", "*MiB: image size", "*MiB: checkpoint, image committed"])],
             "Creating a context costs seconds on NVIDIA's driver (3.1 s, PhoenixOS) and microseconds on the software device. Both "
             "sides pay that, so ratios on hardware will be nearer to one where contexts are most of the time."),
    Headline("Migration",
             "FlowGPU is said to migrate up to 2.1 times faster than Singularity, and 1.7 to 4.5 times faster than a framework's own "
             "checkpoints.",
             "Two nodes in network namespaces joined by a link of that bandwidth, no shared disk for our side. *standstill* beside a "
             "checkpoint on a disk that both share at the same bandwidth; *total* beside the program's own save and restart.",
             [("migrate", ["*as it chooses: standstill", "*no pre-copy: standstill", "*as it chooses: total", "*no pre-copy: total"])],
             "The samples save only their weights (3 to 50 % of what they hold) and start in half a second; a job that imports a "
             "framework, compiles and reads its data for a minute before its first step is what the published figure is about, and "
             "none of the samples is that."),
    Headline("Jobs of several ranks",
             "Singularity: device state of one replica whatever the number of workers.",
             "ddp_train with replicated weights as one job, beside as many tasks that know nothing of each other.",
             [("multirank", ["*: image, and bytes written", "*: copied off the devices, device hash", "*: standstill", "*: restore",
                             "*: read for device memory"])],
             "Ranks share two cores here, so times grow with ranks as they would not on a node with a core for each."),
    Headline("Size of images; the low point of an iteration",
             "FlowGPU: only memory in use is saved. Gandiva: suspend and resume an order of magnitude cheaper at the low point of an "
             "iteration's memory.",
             "The naive image is all device memory and what `criu dump` writes, without dedup or compression.",
             [("image", ["*: all together", "*: active memory alone", "*: dedup alone", "*: compression alone", "*standstill, low point",
                         "*active at the low point", "second of frozen weights: *"])],
             "How far the low point lies below the mean is a property of the model: the samples' activations are small beside their "
             "weights, Gandiva's were 77 times larger in one model."),
    Headline("The store",
             "zstd and borg on the same bytes.",
             "Writes to stable storage, reads after the pages were dropped.",
             [("store", ["two dumps*", "*write / slower of hash, disk"])],
             "The disk is a virtual machine's; what its host caches nobody here can drop."),
    Headline("Scheduling",
             "Astraea: tenant fairness up to 9.42 times and job fairness up to 10.3 times better at no cost in mean completion time.",
             "The same trace, definitions and cluster sizes as its public artifact's simulator, first under its rules, then with "
             "pauses charged. The artifact's figures were taken once on two such cores, not in this run.",
             [("sched", ["*its rules*", "*real costs*", "384 devices, *: tenant F, least", "384 devices, *: mean completion time",
                         "one decision*"]),
              ("live", ["*"])],
             "The published factors are against policies on a cluster that is not public. *ours* beside other policies of this "
             "simulator is the nearest thing."),
    Headline("The node agent", "An empty gRPC server, in the same run.",
             "200 tasks, 1,000 streams, 500 calls a second for a minute.", [("agent", ["*"])], "Client and server share two cores."),
]


# What is published, and the rows whose ratios stand beside it.
SUMMARY = [
    ("overhead of whole programs", "none (one device)", "overhead", ["mlp_train", "stencil"]),
    ("pause, the device's memory where it is", "6.2 to 15x shorter (PhoenixOS), up to 10.4x (Singularity)", "pause", ["*MiB: pause, device"]),
    ("standstill of a checkpoint", "the same", "pause", ["*MiB: checkpoint, standstill"]),
    ("restore", "12 to 18x faster (PhoenixOS), up to 4.1x (Singularity)", "pause", ["*MiB: restore"]),
    ("migration: standstill", "up to 2.1x faster (Singularity)", "migrate", ["*as it chooses: standstill"]),
    ("migration: total, beside the program's own checkpoint", "1.7 to 4.5x faster", "migrate", ["*no pre-copy: total"]),
    ("image of replicas", "one replica's size, whatever the number of ranks", "multirank", ["* ranks: image, and bytes written"]),
    ("memory at the low point of an iteration", "an order of magnitude less (Gandiva)", "image", ["*active at the low point"]),
    ("jobs treated unfairly (F_j < 0.95), pauses charged", "up to 10.3x fairer jobs (Astraea)", "sched", ["*real costs: jobs below 0.95"]),
]
FAIRNESS = ("{} devices, {}: tenant F, least", 384)


def load(folder):
    results = {}
    for headline in HEADLINES:
        for bench, _ in headline.rows:
            path = os.path.join(folder, f"{bench}.json")
            if not os.path.exists(path):
                sys.exit(f"{path} is missing: run scripts/bench.sh all")
            with open(path, encoding="utf-8") as file:
                results[bench] = json.load(file)
    return results


def number(value):
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def factor(row):
    """How many times ours is the smaller one, or the larger."""
    if not row["baseline"] or not row["ours"]:
        return "-"
    ratio = row["baseline"] / row["ours"]
    return f"{ratio:.2f}x less" if ratio >= 1 else f"{1 / ratio:.2f}x more"


def goal(row):
    return "" if row["goal"] is None else f"{row['goal']}: {'met' if row['met'] else '**missed**'}"


def matching(results, bench, patterns):
    chosen = [row for row in results[bench]["results"] if any(fnmatch.fnmatchcase(row["name"], p) for p in patterns)]
    if not chosen:
        sys.exit(f"no row of {bench} is called like {patterns}")
    return chosen


def table(headline, results):
    lines = ["| what | ours | spread | baseline | ours is | goal |", "|---|---|---|---|---|---|"]
    for bench, patterns in headline.rows:
        for row in matching(results, bench, patterns):
            unit = f" {row['unit']}" if row["unit"] else ""
            lines.append(f"| {row['name']} | {number(row['ours'])}{unit} | {number(row['spread'][0])} .. {number(row['spread'][1])} | "
                         f"{number(row['baseline'])} | {factor(row)} | {goal(row)} |")
    return lines


def fairness(results):
    """The least tenant's fairness of astraea beside that of the other policies, by the same simulator at the same costs."""
    name, gpus = FAIRNESS
    least = {row["name"]: row["ours"] for row in results["sched"]["results"]}
    ours = least[name.format(gpus, "astraea")]
    others = {policy: value for policy, value in
              ((key.split(", ")[1].split(":")[0], value) for key, value in least.items() if fnmatch.fnmatchcase(key, name.format(gpus, "*")))
              if policy not in ("astraea", "its rules", "real costs")}
    worst, best = min(others, key=others.get), max(others, key=others.get)
    return f"{ours:.3f} against {others[worst]:.3f} ({worst}) to {others[best]:.3f} ({best})"


def summary(results):
    lines = ["| | published | ours beside the baseline of the same run |", "|---|---|---|"]
    for what, published, bench, patterns in SUMMARY:
        ratios = [f"{row['name'].split(':')[0]}: {factor(row)}" for row in matching(results, bench, patterns)]
        lines.append(f"| {what} | {published} | {'; '.join(ratios)} |")
    return [*lines, f"| least tenant's F_t, {FAIRNESS[1]} devices | up to 9.42x fairer tenants (Astraea) | {fairness(results)} |", ""]


def section(headline, results):
    benches = ", ".join(f"`scripts/bench.sh {bench}` ({results[bench]['runs']} run(s) a side)" for bench, _ in headline.rows)
    return [f"## {headline.title}", "", f"Published: {headline.published}", "", f"Measured: {headline.method} {benches}.", "",
            *table(headline, results), "", f"Not comparable: {headline.limits}", ""]


def main():
    folder, commit = sys.argv[1:]
    results = load(folder)
    machines = {json.dumps({key: value for key, value in r["machine"].items() if key != "shared_pages"}, sort_keys=True)
                for r in results.values()}
    if len(machines) != 1:
        sys.exit(f"the results in {folder} are of several machines: run scripts/bench.sh all")
    machine = next(iter(results.values()))["machine"]
    rows = [row for r in results.values() for row in r["results"] if row["goal"] is not None]
    missed = [row["name"] for row in rows if not row["met"]]
    lines = ["# Performance", "",
             "Made by `scripts/bench.sh all` on one machine in one run; no figure is typed in. Medians; *ours is* compares the medians. "
             "Each side of a comparison runs in turn with the other. What each benchmark does: `scripts/bench.sh --help`.", "",
             f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, the software "
             f"device ([softgpu.md](softgpu.md)); a virtual machine that shares its host. Commit {commit}. Not yet run on hardware.", "",
             f"{len(rows) - len(missed)} of {len(rows)} goals met" + (f"; missed: {'; '.join(missed)}." if missed else "."), "",
             *summary(results)]
    for headline in HEADLINES:
        lines += section(headline, results)
    print("\n".join(lines).rstrip())


main()
