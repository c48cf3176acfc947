#!/usr/bin/env python3
"""Writes all of libcuda's surface that is not written by hand.

usage: gen_driver.py --cxx COMPILER --include DIR --exports LIST --texts TABLE --out DIR SOURCE...

Reads the public headers (through the preprocessor, with every version of every function visible) and the hand-written
sources. Writes:
  stubs.cc         functions that no source defines: they answer CUDA_ERROR_NOT_SUPPORTED
  per_thread.cc    the _ptsz and _ptds variants of functions that some source defines
  proc_address.cc  the table behind cuGetProcAddress
  error_texts.cc   names and texts of the error codes
  libcuda.map      the version script
A source defines a function when a line begins with "CUresult CUDAAPI name(".
"""
import argparse
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts" / "gen"))
import cuda_headers  # noqa: E402

def signature(name, protos):
    return f"CUresult CUDAAPI {name}({', '.join(p for p, _ in protos[name]) or 'void'})"


def write_stubs(names, protos):
    lines = ['#include "softgpu/driver/errors.h"', "#include <cudaProfiler.h>", "",
             '#pragma GCC diagnostic ignored "-Wunused-parameter"', "", 'extern "C" {', ""]
    for name in names:
        lines += [f"{signature(name, protos)} {{", "  static bool said = false;",
                  f'  return softgpu::NotSupported("{name}", &said);', "}"]
    return "\n".join(lines + ["", "}", ""])


def write_per_thread(names, protos):
    lines = ['#include "softgpu/driver/per_thread.h"', "", 'extern "C" {', ""]
    for name in names:
        args = ", ".join(a for _, a in protos[name])
        lines += [f"{signature(name, protos)} {{", "  softgpu::PerThreadDefault scope;",
                  f"  return {re.sub('_pt[ds][sz]$', '', name)}({args});", "}"]
    return "\n".join(lines + ["", "}", ""])


def versions(exports, text):
    """(base, suffix) -> [(CUDA version, symbol)]: the typedefs tell the versions, in the order of the symbols."""
    introduced = cuda_headers.introduced(text)
    symbols = collections.defaultdict(list)
    for name in exports:
        base, version, suffix = cuda_headers.split(name)
        symbols[base, suffix].append((version, name))
    table = {}
    for key, names in symbols.items():
        known = introduced.get(key, [])
        if len(names) != len(known):
            sys.exit(f"{key}: {len(known)} typedefs for {len(names)} symbols")
        table[key] = list(zip(known, [n for _, n in sorted(names)]))
    return table


def write_proc_address(table):
    lines = ['#include "softgpu/driver/proc_address.h"', "", "#include <cudaProfiler.h>", "", "namespace softgpu {", "",
             "const ProcAddress kProcAddresses[] = {"]
    for (base, suffix), rows in sorted(table.items()):
        for version, symbol in rows:
            per_thread = "true" if suffix else "false"
            lines.append(f'    {{"{base}", {version}, {per_thread}, reinterpret_cast<void*>(&::{symbol})}},')
    return "\n".join(lines + ["};", "const size_t kProcAddressCount = sizeof kProcAddresses / sizeof *kProcAddresses;",
                              "", "}  // namespace softgpu", ""])


def write_errors(text, texts_path):
    texts = dict(line.split(" ", 1) for line in texts_path.read_text().splitlines() if line)
    body = re.search(r"typedef enum cudaError_enum\s*\{(.*?)\}", text, re.S)[1]
    lines = ['#include "softgpu/driver/error_table.h"', "", "namespace softgpu {", "", "const ErrorText kErrorTexts[] = {"]
    for name, code in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", body):
        if code not in texts:
            sys.exit(f"no text for {name} ({code})")
        lines.append(f'    {{{name}, "{name}", "{texts[code]}"}},')
    return "\n".join(lines + ["};", "const size_t kErrorTextCount = sizeof kErrorTexts / sizeof *kErrorTexts;", "",
                              "}  // namespace softgpu", ""])


def defined_by_hand(sources):
    found = set()
    for source in sources:
        for name in re.findall(r"^CUresult CUDAAPI (cu\w+)\(", pathlib.Path(source).read_text(), flags=re.M):
            if name in found:
                sys.exit(f"{source}: {name} is defined twice")
            found.add(name)
    return found


def main():
    parser = argparse.ArgumentParser()
    for option in ("cxx", "include", "exports", "texts", "out"):
        parser.add_argument("--" + option, required=True)
    parser.add_argument("sources", nargs="*")
    args = parser.parse_args()
    text = cuda_headers.preprocess(args.cxx, args.include)
    protos = cuda_headers.prototypes(text)
    exports = pathlib.Path(args.exports).read_text().split()
    hand = defined_by_hand(args.sources)
    unknown = (set(exports) - set(protos)) | (hand - set(exports))
    if unknown:
        sys.exit("in the export list and not in the headers, or defined and not exported: " + " ".join(sorted(unknown)))
    per_thread = [n for n in exports if n not in hand and re.sub("_pt[ds][sz]$", "", n) in hand]
    stubs = [n for n in exports if n not in hand and n not in per_thread]
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "stubs.cc").write_text(write_stubs(stubs, protos))
    (out / "per_thread.cc").write_text(write_per_thread(per_thread, protos))
    (out / "proc_address.cc").write_text(write_proc_address(versions(exports, text)))
    (out / "error_texts.cc").write_text(write_errors(text, pathlib.Path(args.texts)))
    (out / "libcuda.map").write_text("{\n  global:\n" + "".join(f"    {n};\n" for n in exports) + "  local: *;\n};\n")
    (out / "not_supported.list").write_text("".join(f"{n}\n" for n in stubs))


main()
