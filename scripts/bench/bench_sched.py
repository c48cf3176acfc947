#!/usr/bin/env python3
"""The scheduler on a trace: its policies, beside the published artifact of Astraea (its own simulator, in Python), and how
long one decision takes."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile

import report

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ["STASIS_BUILD_DIR"]
RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))
TRACES = os.environ.get("STASIS_TRACES", os.path.join(ROOT, "..", "shared", "traces"))

# The artifact's simulator (lease scheduler, selection by fairness, consolidated placement, 10 s ticks) on the same inputs,
# measured on two cores: mean completion time, F_t of the whole run and of 24 hours at the least, jobs below 0.95, CPU seconds.
ARTIFACT = {1120: (12258.1, 1.000, 1.000, 0, 257.8), 560: (12993, 0.997, 0.971, 33, 262), 384: (19998, 0.999, 0.824, 1122, 378),
            192: (20766, 0.989, 0.849, 23, 70)}
SMALL = 192  # the size that goes with the first 2,000 jobs
ITS_RULES = ["--tick", "10", "--lose-running-lease", "--costs", "free"]
REAL_RULES = ["--lease-budget", "0.01", "--least-lease", "60", "--active-bytes", "1000000000"]


def generate(folder):
    """Jobs with the marginals of the Philly trace: log-normal durations, mostly single devices, tenants of unequal activity."""
    rng = random.Random(20171014)
    weights = [2690, 2568, 2666, 2600, 2690, 2558, 2670, 2558, 1926, 1804, 2578]
    with open(os.path.join(folder, "share.csv"), "w", encoding="utf-8") as file:
        file.write("name,share\n" + "".join(f"t{i},{w}\n" for i, w in enumerate(weights)))
    for name, jobs, span in (("philly-2w.csv", 22106, 14 * 86400), ("philly-2k.csv", 2000, 2 * 86400)):
        submits = sorted(rng.uniform(0, span) for _ in range(jobs))
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("job_id,tenant,submit_s,gpus,duration_s\n")
            for i, submit in enumerate(submits):
                tenant = min(int(rng.expovariate(0.4)), len(weights) - 1)
                gpus = rng.choices([1, 2, 4, 8, 16, 32], [20929, 340, 554, 247, 32, 4])[0]
                duration = min(math.exp(rng.gauss(7.0, 2.1)), 30 * 86400)
                file.write(f"{i},t{tenant},{submit:.0f},{gpus},{duration:.0f}\n")
    return folder, "share.csv"


def traces(folder):
    if os.path.exists(os.path.join(TRACES, "philly-2w.csv")):
        print(f"traces: Philly, of {os.path.normpath(TRACES)}")
        return TRACES, "philly-share-active11.csv", True
    print("traces: generated (STASIS_TRACES names a folder with philly-2w.csv and philly-2k.csv)")
    return *generate(folder), False


def simulate(folder, weights, gpus, policies, rules):
    trace = "philly-2k.csv" if gpus == SMALL else "philly-2w.csv"
    command = [os.path.join(BUILD, "bin", "stasis-sim"), "--trace", os.path.join(folder, trace), "--tenants",
               os.path.join(folder, weights), "--gpus", str(gpus), "--policy", policies, "--json", *rules]
    return {figures["policy"]: figures for figures in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)}


def its_rules(folder, weights, real):
    """Same rules and definitions as the artifact's: no cost of pausing, ten-second ticks, a preempted lease's work is lost."""
    rows = []
    for gpus, (jct, whole, sliding, _, seconds) in ARTIFACT.items():
        print(f"its rules, {gpus} devices", file=sys.stderr, flush=True)
        runs = [simulate(folder, weights, gpus, "astraea", ITS_RULES)["astraea"] for _ in range(RUNS)]
        ours, where = runs[0], f"{gpus} devices, its rules: "
        goal = (lambda text, met: {"goal": text, "met": met}) if real else (lambda text, met: {})
        rows += [report.row(where + "mean completion time", "s", [ours["jct_mean_s"]], [jct],
                            **goal("<= 1.02 of the artifact's", ours["jct_mean_s"] <= 1.02 * jct)),
                 report.row(where + "tenant F, least", "", [ours["tenant_fairness_min"]], [whole],
                            **goal("not below the artifact's", round(ours["tenant_fairness_min"], 3) >= whole)),
                 report.row(where + "tenant F over 24 h, least", "", [ours["tenant_fairness_sliding_min"]], [sliding],
                            **goal("not below the artifact's", round(ours["tenant_fairness_sliding_min"], 3) >= sliding)),
                 report.row(where + "simulator", "s", [run["wall_s"] for run in runs], [seconds],
                            **(goal("<= 0.01 of the artifact's", max(run["wall_s"] for run in runs) <= seconds / 100)
                               if gpus == 560 else {}))]
    return rows


def real_rules(folder, weights, real):
    """Pausing costs what it was measured to cost, nothing is lost, leases are as short as 1 % of overhead lets them be."""
    jct, _, _, below, _ = ARTIFACT[384]
    ours = simulate(folder, weights, 384, "astraea", REAL_RULES)["astraea"]
    goal = (lambda text, met: {"goal": text, "met": met}) if real else (lambda text, met: {})
    return [report.row("384 devices, real costs: mean completion time", "s", [ours["jct_mean_s"]], [jct],
                       **goal("<= 19998", ours["jct_mean_s"] <= jct)),
            report.row("384 devices, real costs: tenant F over 24 h, least", "", [ours["tenant_fairness_sliding_min"]],
                       [ARTIFACT[384][2]], **goal(">= 0.95", ours["tenant_fairness_sliding_min"] >= 0.95)),
            report.row("384 devices, real costs: jobs below 0.95", "jobs", [ours["jobs_below"]], [below],
                       **goal("< 300", ours["jobs_below"] < 300)),
            report.row("384 devices, real costs: overhead", "GPU-hours", [ours["overhead_gpu_hours"]])]


def all_policies(folder, weights):
    rows = []
    for gpus in ARTIFACT:
        print(f"all policies, {gpus} devices", file=sys.stderr, flush=True)
        results = simulate(folder, weights, gpus, "all", REAL_RULES)
        for policy, figures in results.items():
            where = f"{gpus} devices, {policy}: "
            rows.append(report.row(where + "mean completion time", "s", [figures["jct_mean_s"]]))
            rows.append(report.row(where + "tenant F, least", "", [figures["tenant_fairness_min"]]))
    return rows


def decisions():
    print("decisions", file=sys.stderr, flush=True)
    output = subprocess.run([os.path.join(BUILD, "bin", "decision_bench")], check=True, capture_output=True).stdout
    times = json.loads(output)
    rows = []
    for policy, values in times.items():
        row = report.row(f"one decision, 10,000 devices, 20,000 waiting: {policy}", "ms", values, times["fifo"])
        if policy == "astraea":
            row.update(goal="< 50 ms", met=row["ours"] < 50)
        rows.append(row)
    return rows


def main():
    with tempfile.TemporaryDirectory(prefix="sched-bench-") as made:
        folder, weights, real = traces(made)
        rows = its_rules(folder, weights, real) + real_rules(folder, weights, real) + all_policies(folder, weights)
    report.write(sys.argv[1], "sched", RUNS, rows + decisions())


if __name__ == "__main__":
    main()
