"""softgpu's speed: the executor alone, and a training run beside its host reference."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

import report
from softgpu import Node, built

RUNS = 3


def executor():
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([built("bin/exec_bench"), f"--benchmark_out={out.name}", "--benchmark_out_format=json",
                        f"--benchmark_repetitions={RUNS}", "--benchmark_min_time=0.2"], check=True, stdout=subprocess.DEVNULL)
        benchmarks = json.load(open(out.name, encoding="utf-8"))["benchmarks"]
    samples = {}
    for entry in benchmarks:
        if entry.get("run_type") == "iteration":
            rate = entry.get("items_per_second")
            samples.setdefault(entry["run_name"], []).append(rate / 1e9 if rate else entry["cpu_time"])
    return [report.row(name, "G items/s" if any("items_per_second" in e for e in benchmarks if e["run_name"] == name) else "ns",
                       values) for name, values in samples.items()]


def seconds(run):
    started = time.monotonic()
    result = run()
    if result.returncode != 0:
        sys.exit(f"mlp_train failed: {result.stderr}")
    return time.monotonic() - started, result.stdout


def training():
    program = built("samples/mlp_train")
    device, host, accuracy = [], [], 0.0
    with Node("--gpus", "1") as node:
        for _ in range(RUNS):
            elapsed, text = seconds(lambda: node.run(program, timeout=600))
            device.append(elapsed)
            accuracy = float(re.search(r"^test accuracy (\S+)", text, re.M)[1])
            host.append(seconds(lambda: subprocess.run([program, "--reference"], capture_output=True, text=True, check=False))[0])
    median = sorted(device)[len(device) // 2]
    met = median < 60 and accuracy >= 0.80
    return report.row("mlp_train, device beside host loops", "s", device, host, "< 60 s, accuracy >= 0.80", met)


def main():
    report.write(sys.argv[1], "softgpu", RUNS, [*executor(), training()])


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    main()
