"""Runs the steps of the check and reports; started by scripts/gpu_check.sh."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
import traceback

from place import ROOT, Absent, Failed, Place
import steps

SCHEMA = 1
NO_GPU = 3


def version():
    stamp = os.path.join(ROOT, "bundle.json")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            return json.load(file)["version"]
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def lacks_something(row):
    return row["status"] == "absent" or any(isinstance(part, dict) and "absent" in part for part in row["details"].values())


def look_again(row, place):
    """What is not possible on this machine was so before the step as well: a device that answers no more is another thing."""
    try:
        place.look_again()
    except (Absent, Failed) as reason:
        row.update(status="fail", summary=f"the driver answers no more: {reason}; before that: {row['summary']}")


def run_step(name, step, place, work):
    print(f"== {name}", file=sys.stderr, flush=True)
    started = time.monotonic()
    row = {"name": name, "status": "pass", "summary": "", "details": {}}
    try:
        row["summary"], row["details"] = step(place, work)
    except (Absent, steps.run_cycle.UndisturbedFailed) as reason:
        row.update(status="absent", summary=str(reason), details=getattr(reason, "details", {}))
    except (Failed, steps.run_cycle.CycleFailed) as reason:
        row.update(status="fail", summary=str(reason), details=getattr(reason, "details", {"logs": getattr(reason, "logs", {})}))
    except Exception as error:  # pylint: disable=broad-except
        # A fault of the check itself must not keep the other steps from being run.
        row.update(status="fail", summary=f"{type(error).__name__}: {error}", details={"trace": traceback.format_exc()})
    if row["status"] != "fail" and lacks_something(row):
        look_again(row, place)
    row["seconds"] = round(time.monotonic() - started, 1)
    print(f"   {row['status']}: {row['summary'][:300]}", file=sys.stderr, flush=True)
    return row


def table(report):
    rows = report["steps"]
    width = max(len(row["name"]) for row in rows)
    lines = [f"{row['status']:<7} {row['name']:<{width}} {row['seconds']:7.1f} s  {row['summary'].splitlines()[0][:150]}" for row in rows]
    return "\n".join(lines + [f"gpu_check: {report['verdict'].upper()} on {report['device']}, {report['seconds']:.0f} s"])


def write(report, path, started):
    """After every step, so that one that takes the machine along leaves what those before it have found."""
    report["seconds"] = round(time.monotonic() - started, 1)
    report["verdict"] = "fail" if any(row["status"] == "fail" for row in report["steps"]) else "pass"
    beside = path + ".part"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def main():
    parser = argparse.ArgumentParser(prog="gpu_check.sh")
    parser.add_argument("--device", choices=["nvidia", "softgpu"], default="nvidia")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--criu", default="")
    parser.add_argument("--minutes", type=float, default=13)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--report", default="gpu_check.json")
    given = parser.parse_args()
    wanted = [name.strip() for name in given.only.split(",") if name.strip()] or list(steps.STEPS)
    for name in wanted:
        if name not in steps.STEPS:
            parser.error(f"no step '{name}', one of: {', '.join(steps.STEPS)}")
    started, work = time.monotonic(), steps.Work(given.minutes, given.full)
    report = {"schema": SCHEMA, "version": version(), "device": given.device, "host": platform.node(),
              "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "steps": []}
    try:
        with Place(given.device, given.build, given.criu) as place:
            if not place.soft:
                nvidia = next(f for f in place.doctor()["findings"] if f["name"] == "NVIDIA driver")
                if not nvidia["ok"] or not place.driver:
                    print(f"gpu_check: no NVIDIA GPU with a driver here ({nvidia['detail']}); --device softgpu runs all that a software "
                          "device can do", file=sys.stderr)
                    return NO_GPU
            place.look()
            for name in wanted:
                report["steps"].append(run_step(name, steps.STEPS[name], place, work))
                write(report, given.report, started)
    except (Absent, Failed) as reason:
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 1
    print(table(report))
    print(f"report: {os.path.abspath(given.report)}")
    return 0 if report["verdict"] == "pass" else 1


if __name__ == "__main__":
    sys.exit(main())
