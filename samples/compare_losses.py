#!/usr/bin/env python3
"""Compares the losses and the accuracy of two logs of mlp_train or gpt_train.

The first steps must agree closely. Later a rounding error may have put some unit on the other side of zero, and from
there on the runs go slightly different ways; so the tolerance is wider, and the test accuracy is compared too.
Prints the worst difference of both parts and exits 0 when all are within the tolerance, 1 when one is not, 2 when the logs
cannot be compared.
"""
import argparse
import math
import re
import sys

STEP = re.compile(r"^step (\d+) loss (\S+)$")
ACCURACY = re.compile(r"^test accuracy (\S+) ")


class BadLog(Exception):
    pass


def read_log(path):
    losses = {}
    accuracy = None
    with open(path, encoding="utf-8") as log:
        for line in log:
            if match := STEP.match(line):
                losses[int(match[1])] = float(match[2])
            elif match := ACCURACY.match(line):
                accuracy = float(match[1])
    if not losses:
        raise BadLog(f"{path}: no line 'step N loss X'")
    return losses, accuracy


def excess(row):
    """Orders (step, difference, allowed) rows; a difference that is not a number is worst."""
    _, difference, allowed = row
    return difference / allowed if difference == difference else math.inf


def worst_row(steps, losses, reference, relative, absolute):
    return max(
        ((step, abs(losses[step] - reference[step]), absolute + relative * abs(reference[step])) for step in steps),
        key=excess,
    )


def report(label, difference, allowed):
    good = difference <= allowed
    print(f"{label}: difference {difference:.3g}, allowed {allowed:.3g}: {'ok' if good else 'TOO LARGE'}")
    return good


def compare(arguments):
    losses, accuracy = read_log(arguments.log)
    reference, reference_accuracy = read_log(arguments.reference)
    if losses.keys() != reference.keys():
        raise BadLog(f"the logs have different steps ({len(losses)} and {len(reference)})")
    if (accuracy is None) != (reference_accuracy is None):
        raise BadLog("only one log has a test accuracy")
    good = True
    early = [step for step in losses if step <= arguments.early_steps]
    late = [step for step in losses if step > arguments.early_steps]
    for name, steps, relative, absolute in (
        ("early", early, arguments.early, arguments.early),
        ("late", late, arguments.relative, arguments.absolute),
    ):
        if steps:
            step, difference, allowed = worst_row(steps, losses, reference, relative, absolute)
            good &= report(f"{len(steps)} {name} losses, worst at step {step}", difference, allowed)
    if accuracy is not None:
        good &= report("test accuracy", abs(accuracy - reference_accuracy), arguments.accuracy)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("reference")
    parser.add_argument("--early-steps", type=int, default=50, help="how many steps must agree closely [50]")
    parser.add_argument("--early", type=float, default=1e-4, help="for them, relative plus absolute [1e-4]")
    parser.add_argument("--relative", type=float, default=0.05, help="for the later ones [0.05]")
    parser.add_argument("--absolute", type=float, default=0.04, help="for the later ones [0.04]")
    parser.add_argument("--accuracy", type=float, default=0.01, help="of the test accuracy [0.01]")
    try:
        return 0 if compare(parser.parse_args()) else 1
    except (OSError, BadLog, ValueError) as error:
        print(f"compare_losses.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
