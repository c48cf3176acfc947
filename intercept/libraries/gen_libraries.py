#!/usr/bin/env python3
"""Writes the interposer's wrappers of the CUDA libraries' functions, from the public headers and the tables here.

usage: gen_libraries.py --cxx COMPILER --include DIR --out DIR TABLES_FOLDER

NAME.table of each library has rows `function class`; `#` starts a comment. Every function of the library's headers
has a row; NCCL's pncclX take the row of ncclX. Classes:
  forward       has no handle: not wrapped, the program reaches the library itself
  handle        passes the library gate; handles, if any, are translated
  hook_tracked  calls stasis::libraries::hooks::function(call, parameters), written by hand: it records state
  hook_mended   the same: it changes an answer
  refuse        as handle; success makes the task impossible to pause, by the function's name

Output: library_functions.h and .cc, NAME_wrappers.cc and NAME_hooks.h of each library, library_exports.txt (names for
the shim's map), library_rows.txt (rows `library function class`, what the documentation is made of).
"""
import argparse
import pathlib
import re
import subprocess
import sys

WRAPPED = ("handle", "hook_tracked", "hook_mended", "refuse")
CLASSES = ("forward",) + WRAPPED


class Library:
    """One library: its headers, the type of its handles, and what a function answers when it is not there."""

    def __init__(self, name, title, header, prefix, handles, absent, more=""):
        self.name, self.title, self.header, self.prefix = name, title, header, prefix
        self.handles, self.absent, self.more = handles, absent, more


# Functions of headers that a C compiler cannot read.
NCCL_DEVICE = "".join(f"""
ncclResult_t {prefix}ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* deviceComm);
ncclResult_t {prefix}ncclDevCommDestroy(ncclComm_t comm, const void* deviceComm);
""" for prefix in ("", "p"))

LIBRARIES = (
    Library("cublas", "Cublas", "cublas_api.h", "cublas", ("cublasHandle_t",),
            {"cublasStatus_t": "CUBLAS_STATUS_NOT_INITIALIZED"}),
    Library("cublaslt", "CublasLt", "cublasLt.h", "cublasLt", ("cublasLtHandle_t",),
            {"cublasStatus_t": "CUBLAS_STATUS_NOT_INITIALIZED"}),
    Library("cudnn", "Cudnn", "cudnn.h", "cudnn", ("cudnnHandle_t",),
            {"cudnnStatus_t": "CUDNN_STATUS_NOT_INITIALIZED"}),
    Library("nccl", "Nccl", "nccl.h", "p?nccl", ("ncclComm_t",),
            {"ncclResult_t": "ncclSystemError", "const char*": '"NCCL is not loaded"'}, NCCL_DEVICE),
)


def fail(message):
    sys.exit("gen_libraries.py: " + message)


class Function:
    def __init__(self, library, name, returns, parameters):
        self.library, self.name, self.returns = library, name, returns
        self.parameters = [Parameter(library, declaration) for declaration in parameters]

    def row(self):
        """The name whose row it takes."""
        return self.name[1:] if self.name.startswith("pnccl") else self.name

    def signature(self):
        return ", ".join(p.declaration for p in self.parameters)

    def type(self):
        return f"{self.returns}({', '.join(p.type for p in self.parameters)})"

    def handle(self):
        """The first handle's parameter, by which a held call is known."""
        return next((p.name for p in self.parameters if p.handle), "nullptr")


class Parameter:
    def __init__(self, library, declaration):
        self.declaration = " ".join(declaration.split())
        match = re.search(r"(\w+)\s*((?:\[\w*\])*)$", self.declaration)
        self.name = match[1]
        self.type = self.declaration[:match.start()].strip() + "*" * match[2].count("[")
        mentions = any(re.search(rf"\b{handle}\b", self.type) for handle in library.handles)
        self.handle = mentions and "*" not in self.type
        self.handle_pointer = mentions and "*" in self.type

    def argument(self):
        return f"scope.Real({self.name})" if self.handle else self.name


def preprocess(cxx, include, header):
    """The header as a C compiler sees it, without the overloads that C++ adds."""
    command = [cxx, "-E", "-P", "-I" + include, "-xc", "-include", header, "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_header(cxx, include, library):
    """Name -> Function."""
    text = preprocess(cxx, include, library.header) + library.more
    prototype = rf"([\w\s*]+?)\b({library.prefix}[A-Z]\w+)\s*\(([^;{{}}()]*)\)\s*;"
    functions = {}
    for returns, name, parameters in re.findall(prototype, text):
        returns = re.sub(r"\s*\*", "*", " ".join(w for w in returns.split() if w != "extern"))
        declared = [p.strip() for p in parameters.split(",") if p.strip() not in ("", "void")]
        functions[name] = Function(library, name, returns, declared)
    if not functions:
        fail(f"no functions in {library.header}")
    return functions


def read_table(path):
    """Name -> class."""
    rows = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        where = f"{path}:{number}: "
        if len(words) != 2 or words[1] not in CLASSES:
            fail(where + "a row is `function class`, the class one of " + ", ".join(CLASSES))
        if words[0] in rows:
            fail(where + f"a second row for {words[0]}")
        rows[words[0]] = words[1]
    return rows


def check(library, functions, rows):
    wanted = {f.row() for f in functions.values()}
    missing, unknown = sorted(wanted - rows.keys()), sorted(rows.keys() - wanted)
    if missing:
        fail(f"{library.name}.table has no row for " + ", ".join(missing))
    if unknown:
        fail(f"{library.header} has no " + ", ".join(unknown))
    for function in functions.values():
        kind = rows[function.row()]
        if kind == "forward" and any(p.handle for p in function.parameters):
            fail(f"{function.name} is forward, and has a handle that only a wrapper can translate")
        if not kind.startswith("hook") and any(p.handle_pointer for p in function.parameters):
            fail(f"{function.name} is {kind}, and points to handles, which only a hook can translate")
        if kind != "forward" and function.returns not in library.absent:
            fail(f"{function.name}: what does it answer when the library is not there?")


def body(function, kind):
    library = function.library
    lines = [f"const LibraryScope scope(LibraryFn::{function.name}, {function.handle()});",
             f"const auto real = RealFunction<{function.type()}>(LibraryFn::{function.name});",
             f"if (__builtin_expect(real == nullptr, 0)) return {library.absent[function.returns]};"]
    plain = ", ".join(p.name for p in function.parameters)
    if kind.startswith("hook"):
        arguments = ", ".join([f"LibraryCall(LibraryFn::{function.name}, __builtin_return_address(0))"] + [p.name for p in function.parameters])
        return lines + [f"if (scope.nested()) return real({plain});",
                        f"return hooks::{function.row()}({arguments});"]
    call = f"real({', '.join(p.argument() for p in function.parameters)})"
    if kind == "handle":
        return lines + [f"return {call};"]
    success = {"cublasStatus_t": "CUBLAS_STATUS_SUCCESS", "cudnnStatus_t": "CUDNN_STATUS_SUCCESS",
               "ncclResult_t": "ncclSuccess"}[function.returns]
    return lines + [f"const {function.returns} result = {call};",
                    f"if (result == {success} && !scope.nested()) Taint(\"{function.row()}\", true);",
                    "return result;"]


def wrappers(library, functions, rows):
    text = ["// Generated by gen_libraries.py.", f"#include <{library.header}>", "",
            f'#include "{library.name}_hooks.h"', '#include "intercept/libraries/wrapper_support.h"', "",
            '#pragma GCC diagnostic ignored "-Wdeprecated-declarations"', "", "using namespace stasis;",
            "using namespace stasis::libraries;", ""]
    for name in sorted(functions):
        function, kind = functions[name], rows[functions[name].row()]
        if kind in WRAPPED:
            text += [f"STASIS_LIBRARY_EXPORT {function.returns} {name}({function.signature()}) {{"]
            text += ["  " + line for line in body(function, kind)] + ["}", ""]
    return "\n".join(text)


def hooks_header(library, functions, rows):
    text = ["// Generated by gen_libraries.py: the functions that are written by hand.", "#pragma once",
            f"#include <{library.header}>", "", '#include "intercept/libraries/library_call.h"', "",
            "namespace stasis::libraries::hooks {", ""]
    for name in sorted(functions):
        function = functions[name]
        if function.row() == name and rows[name].startswith("hook"):
            declared = ", ".join(["const LibraryCall& call"] + [p.declaration for p in function.parameters])
            text.append(f"{function.returns} {name}({declared});")
    return "\n".join(text) + "\n\n}  // namespace stasis::libraries::hooks\n"


def functions_header(wrapped):
    names = "".join(f"  {f.name},\n" for f in wrapped)
    ids = "".join(f"  k{library.title},\n" for library in LIBRARIES)
    return ("// Generated by gen_libraries.py: the libraries' functions that are wrapped.\n#pragma once\n#include <cstdint>\n\n"
            "namespace stasis::libraries {\n\n"
            f"enum class LibraryId : uint8_t {{\n{ids}}};\ninline constexpr uint32_t kLibraryCount = {len(LIBRARIES)};\n\n"
            f"enum class LibraryFn : uint32_t {{\n{names}}};\ninline constexpr uint32_t kLibraryFnCount = {len(wrapped)};\n\n"
            "// \"cublasSgemm_v2\". Also of a value that is no function.\nconst char* LibraryFnName(LibraryFn function);\n"
            "LibraryId LibraryOf(LibraryFn function);\n\n}  // namespace stasis::libraries\n")


def functions_source(wrapped):
    rows = "".join(f'    {{"{f.name}", LibraryId::k{f.library.title}}},\n' for f in wrapped)
    return ('// Generated by gen_libraries.py.\n#include "library_functions.h"\n\nnamespace stasis::libraries {\nnamespace {\n\n'
            "struct Row {\n  const char* name;\n  LibraryId library;\n};\n"
            f"constexpr Row kRows[kLibraryFnCount] = {{\n{rows}}};\n\n}}  // namespace\n\n"
            "const char* LibraryFnName(LibraryFn function) {\n  const auto index = static_cast<uint32_t>(function);\n"
            '  return index < kLibraryFnCount ? kRows[index].name : "a library\'s rebuild";\n}\n\n'
            "LibraryId LibraryOf(LibraryFn function) { return kRows[static_cast<uint32_t>(function)].library; }\n\n"
            "}  // namespace stasis::libraries\n")


def write_if_changed(path, content):
    if not path.exists() or path.read_text() != content:
        path.write_text(content)


def main():
    parser = argparse.ArgumentParser()
    for option in ("cxx", "include", "out"):
        parser.add_argument("--" + option, required=True)
    parser.add_argument("tables", type=pathlib.Path)
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    wrapped, documented = [], []
    for library in LIBRARIES:
        functions = read_header(args.cxx, args.include, library)
        rows = read_table(args.tables / (library.name + ".table"))
        check(library, functions, rows)
        wrapped += [f for _, f in sorted(functions.items()) if rows[f.row()] in WRAPPED]
        documented += [f"{library.name} {name} {rows[name]}\n" for name in sorted(rows)]
        write_if_changed(out / (library.name + "_hooks.h"), hooks_header(library, functions, rows))
        write_if_changed(out / (library.name + "_wrappers.cc"), wrappers(library, functions, rows))
    write_if_changed(out / "library_functions.h", functions_header(wrapped))
    write_if_changed(out / "library_functions.cc", functions_source(wrapped))
    write_if_changed(out / "library_exports.txt", "".join(f.name + "\n" for f in wrapped))
    (out / "library_rows.txt").write_text("".join(documented))


main()
