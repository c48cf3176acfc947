#!/usr/bin/env python3
"""Writes what is exported but not written by hand: forwards, stubs and the version script; lists the forwards.

usage: gen_exports.py --include DIR --exports LIST --forwards TABLE --out DIR [--per-thread-source FILE]... FILE...

DIR holds the CUDA headers. FILEs are the hand-written sources; those named by --per-thread-source are compiled twice,
the second time for the per-thread default stream. The list of forwards is for the tests.
"""
import argparse
import pathlib
import re
import sys

VERSION_NODE = "libcudart.so.13"
ORDINALS = {"device", "srcDevice", "dstDevice", "peerDevice"}


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def per_thread_names(header):
    """Base name -> name under the per-thread default stream, from the renaming macros of the header."""
    names = {"__cudaLaunchKernel": "__cudaLaunchKernel_ptsz"}
    for base, kind in re.findall(r"#define\s+(\w+)\s+__CUDART_API_(PTDS|PTSZ)\(\1\)", header):
        names[base] = f"{base}_{kind.lower()}"
    return names


def prototypes(header):
    """Name -> [(type, parameter name)] of the functions returning cudaError_t."""
    found = {}
    for name, params in re.findall(r"cudaError_t\s+CUDARTAPI\s+(\w+)\s*\(([^;{]*)\)\s*;", header):
        params = re.sub(r"__dv\([^)]*\)|=\s*\w+", "", params)
        parts = [" ".join(p.split()) for p in params.split(",")]
        split = [re.fullmatch(r"(.*?[\s*])(\w+)", p) for p in parts if p != "void"]
        found[name] = [(m.group(1).strip(), m.group(2)) for m in split]
    return found


def read_forwards(path):
    rows = []
    for line in path.read_text().splitlines():
        fields = line.split("#")[0].split()
        if fields:
            rows.append((fields[0], fields[1], fields[2], fields[3].split(",") if len(fields) > 3 else None))
    return rows


def forward(row, protos):
    name, driver, need, order = row
    params = protos[name]
    types = {p: t for t, p in params}
    args = [f"Ordinal{{{p}}}" if types[p] == "int" and p in ORDINALS else p for p in order or types]
    wrapper = {"d": "WithDriver", "c": "WithContext"}[need]
    call = ", ".join([f"CU({driver})"] + args)
    signature = ", ".join(f"{t} {p}" for t, p in params) or "void"
    body = f"  return {wrapper}([&] {{ return Convert({call}); }});\n"
    return f"RT_API cudaError_t {name}({signature}) {{\n{body}}}\n"


def forward_list(rows):
    """The rows for the tests to expand; a driver function that appeared before is marked as such."""
    seen = set()
    lines = []
    for name, driver, need, _ in rows:
        lines.append(f"FORWARD{'_AGAIN' if driver in seen else ''}({name}, {driver}, {need})\n")
        seen.add(driver)
    return "".join(lines)


def defined_by_hand(path):
    return set(re.findall(r"^RT_API [^;{=]*?\b((?:__)?cuda\w+)\(", path.read_text(), flags=re.M))


FORWARD_HEAD = """// Generated from forwards.table.
#include "softgpu/runtime/forward.h"

using namespace softgpu::runtime;

"""

STUB_HEAD = """// Generated: exported names that nothing implements.
#include "softgpu/runtime/unsupported.h"

"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("--exports", type=pathlib.Path, required=True)
    parser.add_argument("--forwards", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--per-thread-source", type=pathlib.Path, action="append", default=[])
    parser.add_argument("sources", type=pathlib.Path, nargs="*")
    args = parser.parse_args()

    header = strip_comments((args.include / "cuda_runtime_api.h").read_text())
    renamed = per_thread_names(header)
    protos = prototypes(header)
    exports = args.exports.read_text().split()
    rows = read_forwards(args.forwards)

    by_hand = set()
    for source in args.sources + args.per_thread_source:
        by_hand |= defined_by_hand(source)
    twice = set()
    for source in args.per_thread_source:
        twice |= defined_by_hand(source)
    forwarded = {row[0] for row in rows}
    if len(forwarded) != len(rows) or forwarded & by_hand:
        sys.exit(f"defined twice: {sorted(forwarded & by_hand) or 'a row of the table'}")
    not_renamed = twice - set(renamed)
    if not_renamed:
        sys.exit(f"no per-thread name for {sorted(not_renamed)}: move them to another source file")
    once_only = (by_hand - twice) & set(renamed)
    if once_only:
        sys.exit(f"per-thread variant missing for {sorted(once_only)}")

    defined = by_hand | forwarded | {renamed[n] for n in twice | (forwarded & set(renamed))}
    unknown = defined - set(exports)
    if unknown:
        sys.exit(f"not exported by the real library: {sorted(unknown)}")

    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "forwards.cc").write_text(FORWARD_HEAD + "\n".join(forward(r, protos) for r in rows))
    (args.out / "forwards_per_thread.cc").write_text(
        FORWARD_HEAD + "\n".join(forward(r, protos) for r in rows if r[0] in renamed))
    (args.out / "forwards.inc").write_text(forward_list(rows))
    (args.out / "forwards_per_thread.inc").write_text(forward_list([r for r in rows if r[0] in renamed]))
    stubs = [f"RT_UNSUPPORTED({name})\n" for name in exports if name not in defined]
    (args.out / "stubs.cc").write_text(STUB_HEAD + "".join(stubs))
    names = "".join(f"    {name};\n" for name in exports)
    (args.out / "libcudart.map").write_text(f"{VERSION_NODE} {{\n  global:\n{names}  local:\n    *;\n}};\n")


if __name__ == "__main__":
    main()
