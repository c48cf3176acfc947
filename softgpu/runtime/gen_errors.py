#!/usr/bin/env python3
"""Writes the table of runtime errors: names from driver_types.h, texts from error_texts.table.

Arguments: INCLUDE_DIR TEXTS OUT.cc
"""
import pathlib
import re
import sys


def main():
    include, texts_path, out = map(pathlib.Path, sys.argv[1:])
    header = re.sub(r"/\*.*?\*/", "", (include / "driver_types.h").read_text(), flags=re.S)
    body = re.search(r"enum\s+__device_builtin__\s+cudaError\s*\{(.*?)\};", header, re.S).group(1)
    names = {int(code): name for name, code in re.findall(r"(\w+)\s*=\s*(\d+)", body)}
    texts = dict(line.split(" ", 1) for line in texts_path.read_text().splitlines())
    missing = [name for code, name in names.items() if str(code) not in texts]
    if missing:
        sys.exit(f"{texts_path}: no text for {missing}")
    rows = "".join(f'    {{{c}, "{names[c]}", "{texts[str(c)]}"}},\n' for c in sorted(names))
    out.write_text("// Generated from driver_types.h and error_texts.table.\n"
                   '#include "softgpu/runtime/errors.h"\n\n'
                   "namespace softgpu::runtime {\n\n"
                   f"const ErrorText kErrorTexts[] = {{\n{rows}}};\n"
                   f"const int kErrorTextCount = {len(names)};\n\n"
                   "}  // namespace softgpu::runtime\n")


if __name__ == "__main__":
    main()
