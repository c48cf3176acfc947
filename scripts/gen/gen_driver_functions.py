#!/usr/bin/env python3
"""Writes driver_functions.inc: one STASIS_DRIVER_FUNCTION(name) for each driver function of the toolkit's headers.

usage: gen_driver_functions.py --cxx COMPILER --include DIR --out FILE
"""
import argparse
import pathlib

import cuda_headers


def main():
    parser = argparse.ArgumentParser()
    for option in ("cxx", "include", "out"):
        parser.add_argument("--" + option, required=True)
    args = parser.parse_args()
    names = sorted(cuda_headers.prototypes(cuda_headers.preprocess(args.cxx, args.include)))
    pathlib.Path(args.out).write_text("".join(f"STASIS_DRIVER_FUNCTION({name})\n" for name in names))


main()
