"""A node agent with many tasks (STASIS_BENCH_TASKS), 1,000 Watch streams and 500 calls a second for STASIS_BENCH_SECONDS: what the
calls take beside those of an empty gRPC server, which gets as many as List at the same time, and what memory the agent takes.

A call's time begins when it was due. Once a second a job is paused or resumed, of which every stream is told."""

import os
import sys

import report
from agent_load import AgentSite, run_load, start_tasks

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "1"))
TASKS = int(os.environ.get("STASIS_BENCH_TASKS", "200"))
SECONDS = int(os.environ.get("STASIS_BENCH_SECONDS", "60"))
STREAMS, RATE, CHANGES = 1000, 500, 1
MOST_MS = 50
KINDS = {"list": f"List of {TASKS} jobs", "find": "List of one job", "info": "Info", "operations": "ListOperations"}


def rows_of(samples):
    def all_of(kind, key):
        return [sample[kind][key] for sample in samples]

    rows = []
    for key, name in (("p50_ms", "median"), ("p99_ms", "p99"), ("max_ms", "longest")):
        for kind, what in KINDS.items():
            counts = kind == "list" and key == "p99_ms"
            values = all_of(kind, key)
            rows.append(report.row(f"{what}, {name}", "ms", values, all_of("echo", key), f"< {MOST_MS}" if counts else None,
                                   max(values) < MOST_MS if counts else None))
    memory = [{key: kib / 1024 for key, kib in sample["memory"].items()} for sample in samples]
    ends = [sample["end"] for sample in memory]
    flat = all(sample["end"] <= sample["early"] * 1.05 for sample in memory)
    rows.append(report.row("memory before the streams", "MiB", [sample["before"] for sample in memory]))
    rows.append(report.row("memory at the end, beside early in the load", "MiB", ends, [sample["early"] for sample in memory],
                           "ratio <= 1.05", flat))
    failed = [sum(sample["errors"].values()) + sum(sample["stream_errors"].values()) for sample in samples]
    rows.append(report.row("errors", "", failed, goal="0", met=not any(failed)))
    rows.append(report.row("messages on streams", "1/s", [sample["events"] / sample["seconds"] for sample in samples]))
    return rows


def main():
    samples = []
    with AgentSite("--memory", "4GiB") as site:
        print(f"{TASKS} tasks are started", file=sys.stderr, flush=True)
        names = start_tasks(site, TASKS)
        for run in range(RUNS):
            print(f"run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
            samples.append(run_load(site, names[:10], STREAMS, RATE, SECONDS, CHANGES))
    for sample in samples:
        if sample["errors"] or sample["stream_errors"]:
            print(sample["errors"], sample["stream_errors"], file=sys.stderr)
    report.write(sys.argv[1], "agent", RUNS, rows_of(samples))


if __name__ == "__main__":
    main()
