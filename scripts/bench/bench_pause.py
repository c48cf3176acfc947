"""Pause, checkpoint and restore against the amount of device memory, beside the driver's own checkpoint with CRIU.

Both sides handle the same program in the same run, alternately. The baseline is what a user has without this project:
cuCheckpointProcessLock/Checkpoint on the process, `criu dump`, and the way back.
"""

import os
import sys

import report
from plain_dump import PlainProgram, tree_bytes
from softgpu import built
from stasis_job import Site

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))
SIZES = [int(size) for size in os.environ.get("STASIS_BENCH_MIB", "64 512 2048 4096").split()]
GOAL_MIB = 2048
HANDLES_MIB = 512


def warm(mib):
    report.warm_memory(mib + mib // 4 + 256)


class Baseline(PlainProgram):
    def __init__(self, site, mib):
        self.mib = mib
        super().__init__(site.node.env(), [built("tests/programs/holder"), str(mib)], "ready")

    def measure(self):
        warm(self.mib)
        pause = self.driver("lock", "checkpoint")
        warm(self.mib)
        resume = self.driver("restore", "unlock")
        warm(self.mib)
        image = self.driver("lock", "checkpoint")
        images = os.path.join(self.folder, "images")
        dump = self.dump(images)
        image += dump
        size = tree_bytes(images)
        self.parent.wait()
        pidfile = os.path.join(self.folder, "pid")
        warm(2 * self.mib)
        restore = self.criu("restore", images, "-d", "--pidfile", pidfile)
        with open(pidfile, encoding="utf-8") as file:
            self.pid = int(file.read())
        restore += self.driver("restore", "unlock")
        os.kill(self.pid, 9)
        self.end()
        return {"pause": pause, "resume": resume, "standstill": pause + dump + resume, "image": image, "restore": restore,
                "bytes": size}


def measure_ours(site, name, mib):
    job = site.start(name, built("tests/programs/holder"), str(mib))
    job.wait_for_output("ready")
    result = {}
    for residency in ("device", "host", "disk"):
        warm(mib)
        result[f"pause {residency}"] = job.verb("pause", "--residency", residency)["pause_ms"]
        warm(mib)
        result[f"resume {residency}"] = job.verb("resume")["resume_ms"]
    warm(mib)
    checkpoint = job.verb("checkpoint")
    result.update(standstill=checkpoint["standstill_ms"], image=checkpoint["total_ms"], bytes=checkpoint["added_bytes"])
    job.kill()
    warm(2 * mib)
    result["restore"] = job.verb("restore", "--detach")["total_ms"]
    job.verb("cancel")
    job.wait()
    site.ok("rm", name)
    return result


def pause_device(site, mib, handles):
    """Milliseconds of pauses with residency device, one a run."""
    values = []
    for run in range(RUNS):
        job = site.start(f"handles-{mib}-{handles}-{run}", built("tests/programs/holder"), str(mib), str(mib // handles))
        job.wait_for_output("ready")
        values.append(job.verb("pause")["pause_ms"])
        job.verb("resume")
        job.verb("cancel")
        job.wait()
    return values


def pause_against_handles(site):
    """The same bytes in few and in many allocations, and few and many bytes in as many allocations."""
    rows = [report.row(f"pause device, {HANDLES_MIB} MiB in {handles}", "ms", pause_device(site, HANDLES_MIB, handles))
            for handles in (8, 64, 256)]
    large = min(max(SIZES), GOAL_MIB)
    row = report.row(f"pause device, {large} MiB in 8 beside {min(SIZES)} MiB in 8", "ms", pause_device(site, large, 8),
                     pause_device(site, min(SIZES), 8), "does not grow with bytes (ratio < 2)")
    row["met"] = row["ratio"] < 2
    return [*rows, row]


def size_rows(site, mib):
    ours, base = [], []
    for run in range(RUNS):
        print(f"{mib} MiB, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        for side in (0, 1) if run % 2 == 0 else (1, 0):
            if side == 0:
                ours.append(measure_ours(site, f"hold-{mib}-{run}", mib))
            else:
                base.append(Baseline(site, mib).measure())

    def row(name, key, base_key, unit="ms", goal=None, limit=None):
        result = report.row(f"{mib} MiB: {name}", unit, [o[key] for o in ours], [b[base_key] for b in base], goal)
        if goal is not None:
            result["met"] = result["ratio"] <= limit
        return result

    rows = []
    for residency in ("device", "host", "disk"):
        rows.append(row(f"pause, {residency}", f"pause {residency}", "pause"))
        rows.append(row(f"resume, {residency}", f"resume {residency}", "resume"))
    at_goal = mib == GOAL_MIB
    rows.append(row("checkpoint, standstill", "standstill", "standstill", goal="10x shorter" if at_goal else None, limit=0.1))
    rows.append(row("checkpoint, image committed", "image", "image"))
    rows.append(row("restore", "restore", "restore", goal="4x faster" if at_goal else None, limit=0.25))
    rows.append(row("image size", "bytes", "bytes", "bytes"))
    return rows


def main():
    rows = []
    # Room for a snapshot beside the program.
    with Site("--gpus", "1", "--memory", f"{2 * max(SIZES) + 512}MiB") as site:
        for mib in SIZES:
            rows += size_rows(site, mib)
        rows += pause_against_handles(site)
    report.write(sys.argv[1], "pause", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with report.large_device_pages():
        main()
