#!/usr/bin/env python3
"""Writes what a stand-in library exports and nobody wrote by hand.

usage: gen_library.py --cxx COMPILER --include DIR --header NAME... --exports LIST --library SONAME [--node NODE]
                      --status TYPE=VALUE [--forwards TABLE --forward-include HEADER] --out DIR SOURCE...

LIST holds the exported names, each declared in one of the headers. Writes
  stubs_N.cc          one for each header, from 0 (headers may exclude each other): its functions that neither a source
                      nor the table defines. They say their name once on the log and answer VALUE where they return
                      TYPE, else nothing or zero
  forwards.cc         functions of the table (only with --forwards)
  library.map         the version script; all names get the version NODE
  not_supported.list  the names of all stubs
A source defines a function when a line begins with its return type and name. A row of the table,
"SDCZ axpy_v2 Axpy", makes cublasSaxpy_v2 call Axpy<float>(its parameters), and so on, and the _64 variants where they
are exported; "- cublasGemmEx GemmEx" names one function and what it calls.
"""
import argparse
import pathlib
import re
import subprocess
import sys

LETTERS = {"S": "float", "D": "double", "C": "cuComplex", "Z": "cuDoubleComplex"}


def preprocess(cxx, include, header):
    command = [cxx, "-E", "-P", "-I" + include, "-include", header, "-xc++", "/dev/null"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", re.sub(r"\[\[.*?\]\]", " ", text))


def prototypes(text, names):
    """Name -> (return type, [(declaration, parameter name)]) of the functions that are in `names`."""
    found = {}
    pattern = r"(?:^|[;{}])\s*(?:extern\s+)?([A-Za-z_][\w\s*]*?[\s*])(\w+)\s*\(([^(){};]*)\)\s*(?=;)"
    for result, name, params in re.findall(pattern, text, flags=re.M):
        if name not in names or result.split()[0] == "return":
            continue
        parts = [" ".join(p.split()) for p in params.split(",")]
        split = [(p, re.search(r"(\w+)\s*(\[\w*\])?$", p)[1]) for p in parts if p and p != "void"]
        found[name] = (" ".join(result.split()), split)
    return found


def defined_by_hand(sources, names):
    found = set()
    for source in sources:
        for name in re.findall(r"^(?:extern \"C\" )?[A-Za-z_][\w *]*[ *](\w+)\(", pathlib.Path(source).read_text(),
                               flags=re.M):
            if name in names and name in found:
                sys.exit(f"{source}: {name} is defined twice")
            if name in names:
                found.add(name)
    return found


def read_forwards(path, names):
    """Name -> what it calls."""
    rows = {}
    for line in pathlib.Path(path).read_text().splitlines():
        fields = line.split("#")[0].split()
        if not fields:
            continue
        letters, name, target = fields
        pairs = [(name, target)] if letters == "-" else \
            [(f"cublas{x}{name}", f"{target}<{LETTERS[x]}>") for x in letters]
        for exported, call in pairs:
            if exported not in names or exported in rows:
                sys.exit(f"{path}: {exported} is not exported, or is there twice")
            rows[exported] = call
            if exported + "_64" in names:
                rows[exported + "_64"] = call
    return rows


def signature(name, protos):
    result, params = protos[name]
    return f"{result} {name}({', '.join(p for p, _ in params) or 'void'})"


def write_stubs(names, protos, header, library, status):
    status_type, status_value = status.split("=")
    lines = [f"#include <{header}>"]
    lines += ['#include "softgpu/native/not_supported.h"', "", '#pragma GCC diagnostic ignored "-Wunused-parameter"',
              "#ifdef __clang__", '#pragma GCC diagnostic ignored "-Wreturn-type-c-linkage"', "#endif", ""]
    lines += [f"#undef {n}" for n in names] + ["", 'extern "C" {', ""]
    for name in names:
        result = protos[name][0]
        answer = f"return {status_value};" if result == status_type else "return;" if result == "void" else "return {};"
        lines += [f"{signature(name, protos)};", f"{signature(name, protos)} {{",
                  "  static std::atomic<bool> said{false};",
                  f'  softgpu::native::SayNotSupported("{library}", "{name}", &said);', f"  {answer}", "}"]
    return "\n".join(lines + ["", "}", ""])


def write_forwards(forwards, protos, include):
    lines = [f'#include "{include}"', "", 'extern "C" {', ""]
    for name, call in sorted(forwards.items()):
        arguments = ", ".join(a for _, a in protos[name][1])
        lines += [f"{signature(name, protos)} {{", f"  return softgpu::{call}({arguments});", "}"]
    return "\n".join(lines + ["", "}", ""])


def main():
    parser = argparse.ArgumentParser()
    for option in ("cxx", "include", "exports", "library", "status", "out"):
        parser.add_argument("--" + option, required=True)
    parser.add_argument("--header", action="append", required=True)
    for option in ("node", "forwards", "forward-include"):
        parser.add_argument("--" + option)
    parser.add_argument("sources", nargs="*")
    args = parser.parse_args()
    names = pathlib.Path(args.exports).read_text().split()
    protos, headers = {}, {}
    for header in args.header:
        for name, proto in prototypes(preprocess(args.cxx, args.include, header), set(names)).items():
            protos.setdefault(name, proto)
            headers.setdefault(name, header)
    if set(names) - set(protos):
        sys.exit("in the export list and not in the headers: " + " ".join(sorted(set(names) - set(protos))))
    hand = defined_by_hand(args.sources, set(names))
    forwards = read_forwards(args.forwards, set(names)) if args.forwards else {}
    if hand & set(forwards):
        sys.exit("in the table and defined by hand: " + " ".join(sorted(hand & set(forwards))))
    stubs = [n for n in names if n not in hand and n not in forwards]
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for i, header in enumerate(args.header):
        mine = [n for n in stubs if headers[n] == header]
        (out / f"stubs_{i}.cc").write_text(write_stubs(mine, protos, header, args.library, args.status))
    if args.forwards:
        (out / "forwards.cc").write_text(write_forwards(forwards, protos, args.forward_include))
    (out / "library.map").write_text((args.node or "") + " {\n  global:\n" + "".join(f"    {n};\n" for n in names) +
                                     "  local: *;\n};\n")
    (out / "not_supported.list").write_text("".join(f"{n}\n" for n in stubs))


if __name__ == "__main__":
    main()
