"""The form in which every benchmark reports: a table for people, JSON for programs."""

import contextlib
import ctypes
import json
import mmap
import os
import platform
import signal
import statistics
import sys


# Which shared memory, and so the software device's memory, the kernel gives pages of 2 MiB to.
SHARED_PAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


def shared_pages():
    try:
        with open(SHARED_PAGES, encoding="utf-8") as file:
            return file.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "unknown"


@contextlib.contextmanager
def large_device_pages():
    """Pages of 2 MiB for device memory, as a GPU has them, where root may say so. The kernel takes ten times as long to give
    out new memory in its small pages as to copy it, which no device's memory does; `machine` in the results says what it was."""
    before = shared_pages()
    if before != "never" or os.geteuid() != 0:
        yield
        return
    # A benchmark that is told to end puts it back, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with open(SHARED_PAGES, "w", encoding="utf-8") as file:
        file.write("advise")
    try:
        yield
    finally:
        with open(SHARED_PAGES, "w", encoding="utf-8") as file:
            file.write(before)


def warm_memory(mib):
    """Touches that much free memory, so that what is measured next finds it there. The host of a virtual machine takes free
    memory back after a moment (virtio balloon, free page reporting), and giving it out again takes it many times as long as a
    copy; on memory of its own a machine has no such cost."""
    size = mib * 2**20
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        view = (ctypes.c_char * size).from_buffer(memory)
        ctypes.memset(view, 1, size)
        del view  # the mapping cannot be closed under it


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "shared_pages": shared_pages(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)}


def row(name, unit, values, baseline=None, goal=None, met=None):
    """`values` and `baseline` are the samples of one run each, taken alternately when both are given."""
    ours = statistics.median(values)
    base = statistics.median(baseline) if baseline else None
    return {"name": name, "unit": unit, "ours": ours, "baseline": base, "ratio": ours / base if base else None,
            "value": ours, "spread": [min(values), max(values)],
            "baseline_spread": [min(baseline), max(baseline)] if baseline else None, "goal": goal, "met": met}


def write(path, name, runs, results):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"bench": name, "machine": machine(), "runs": runs, "results": results}, file, indent=2)
        file.write("\n")
    width = max(len(r["name"]) for r in results)
    print(f"{'':{width}} {'median':>12} {'spread':>22} {'baseline':>12} {'ratio':>7}  unit, goal")
    for r in results:
        spread = f"{r['spread'][0]:.4g} .. {r['spread'][1]:.4g}"
        base = f"{r['baseline']:.4g}" if r["baseline"] is not None else "-"
        ratio = f"{r['ratio']:.3g}" if r["ratio"] is not None else "-"
        goal = "" if r["goal"] is None else f", {r['goal']}: {'met' if r['met'] else 'MISSED'}"
        print(f"{r['name']:{width}} {r['ours']:12.4g} {spread:>22} {base:>12} {ratio:>7}  {r['unit']}{goal}")
    print(f"written to {path}")
