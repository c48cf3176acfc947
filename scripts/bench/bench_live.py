"""The same jobs on a live cluster (three nodes of four software devices, three tenants, stasis-schedd) and in the simulator, which is
told how long each takes alone and what the verbs have cost here: when the last one ends.

STASIS_BENCH_RUNS: how many queues are drawn, by other seeds."""

import os
import sys

import live_test
import report

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))


def makespans(seed):
    live_test.SEED = seed
    live_test.Foretold.setUpClass()
    case = live_test.Foretold("test_the_simulator_takes_the_same_jobs")
    try:
        return case.makespans()
    finally:
        case.doCleanups()
        live_test.Foretold.doClassCleanups()


def main():
    live_test.JOBS = int(os.environ.get("STASIS_BENCH_JOBS", "40"))
    live, foretold = [], []
    for run in range(RUNS):
        took, told = makespans(run + 1)
        print(f"queue {run + 1}: live {took:.1f} s, simulated {told:.1f} s", file=sys.stderr, flush=True)
        live.append(took)
        foretold.append(told)
    ratios = [told / took for told, took in zip(foretold, live)]
    report.write(sys.argv[1], "live", RUNS, [
        report.row("makespan, live", "s", live), report.row("makespan, simulated", "s", foretold, live),
        report.row("simulated to live", "", ratios, goal="0.85 .. 1.15", met=all(0.85 <= ratio <= 1.15 for ratio in ratios))])


main()
