"""Pause, checkpoint and restore against the amount of device memory, beside the driver's own checkpoint with CRIU.

Both sides handle the same program in the same run, alternately. The baseline is what a user has without this project:
cuCheckpointProcessLock/Checkpoint on the process, `criu dump`, and the way back.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import report
from softgpu import built, die_with_parent
from stasis_job import Site

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))
SIZES = [int(size) for size in os.environ.get("STASIS_BENCH_MIB", "64 512 2048 4096").split()]
GOAL_MIB = 2048
HANDLES_MIB = 512
CRIU = os.environ["STASIS_CRIU"]


def checked(command, env):
    """Milliseconds that the command took."""
    started = time.monotonic()
    result = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stdout[-500:]} {result.stderr[-2000:]}")
    return (time.monotonic() - started) * 1000


def wait_for_line(path, text, process):
    while True:
        with open(path, encoding="utf-8") as file:
            if text in file.read():
                return
        if process.poll() is not None:
            sys.exit(f"the program ended before it printed {text!r}")
        time.sleep(0.01)


def tree_bytes(folder):
    return sum(os.stat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(folder) for name in names)


class Baseline:
    """One program without the interposer, in the same kinds of namespaces as a task."""

    def __init__(self, site, mib):
        self.env = site.node.env()
        self.folder = tempfile.mkdtemp(prefix="baseline-")
        self.images = os.path.join(self.folder, "images")
        os.mkdir(self.images)
        log = os.path.join(self.folder, "out")
        with open(log, "w", encoding="utf-8") as out:
            self.parent = subprocess.Popen(["unshare", "-p", "-T", "-f", "setsid", built("tests/programs/holder"), str(mib)],
                                           env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                           preexec_fn=die_with_parent)
        wait_for_line(log, "ready", self.parent)
        with open(f"/proc/{self.parent.pid}/task/{self.parent.pid}/children", encoding="utf-8") as children:
            self.pid = int(children.read().split()[0])

    def driver(self, *steps):
        return sum(checked([built("bin/driver_checkpoint"), step, str(self.pid)], self.env) for step in steps)

    def criu(self, verb, *options):
        return checked([CRIU, verb, "-D", self.images, "-o", f"{verb}.log", "--manage-cgroups=ignore", *options], self.env)

    def measure(self):
        pause = self.driver("lock", "checkpoint")
        resume = self.driver("restore", "unlock")
        image = self.driver("lock", "checkpoint")
        dump = self.criu("dump", "-t", str(self.pid))
        image += dump
        size = tree_bytes(self.images)
        self.parent.wait()
        pidfile = os.path.join(self.folder, "pid")
        restore = self.criu("restore", "-d", "--pidfile", pidfile)
        with open(pidfile, encoding="utf-8") as file:
            self.pid = int(file.read())
        restore += self.driver("restore", "unlock")
        os.kill(self.pid, 9)
        shutil.rmtree(self.folder)
        return {"pause": pause, "resume": resume, "standstill": pause + dump + resume, "image": image, "restore": restore,
                "bytes": size}


def measure_ours(site, name, mib):
    job = site.start(name, built("tests/programs/holder"), str(mib))
    job.wait_for_output("ready")
    result = {}
    for residency in ("device", "host", "disk"):
        result[f"pause {residency}"] = job.verb("pause", "--residency", residency)["pause_ms"]
        result[f"resume {residency}"] = job.verb("resume")["resume_ms"]
    checkpoint = job.verb("checkpoint")
    result.update(standstill=checkpoint["standstill_ms"], image=checkpoint["total_ms"], bytes=checkpoint["image_bytes"])
    job.kill()
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
    with Site("--gpus", "1", "--memory", f"{max(SIZES) + 512}MiB") as site:
        for mib in SIZES:
            rows += size_rows(site, mib)
        rows += pause_against_handles(site)
    report.write(sys.argv[1], "pause", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    main()
