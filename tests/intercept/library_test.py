#!/usr/bin/env python3
"""What libstasis.so is as a file, and that its generator refuses tables that do not fit the headers."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from softgpu import built

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "scripts", "gen"))
import cuda_headers  # noqa: E402  pylint: disable=wrong-import-position

CXX = os.environ["STASIS_CXX"]
INCLUDE = os.environ["STASIS_CUDA_INCLUDE"]
TABLES = [os.path.join(SOURCE, "intercept", name + ".table") for name in ("memory", "objects", "device")]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class LibraryTest(unittest.TestCase):

    def setUp(self):
        self.library = built("lib/libstasis.so")

    def test_exports_the_functions_of_the_headers_and_the_notes_and_nothing_else(self):
        exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", self.library).splitlines()}
        declared = set(cuda_headers.prototypes(cuda_headers.preprocess(CXX, INCLUDE)))
        notes = {"stasis_note_alloc", "stasis_note_free", "stasis_note_iteration"}
        libraries = {name for name in exported if re.match(r"(cublas|cudnn|p?nccl)[A-Z]", name)}
        self.assertEqual(exported, declared | notes | libraries)
        self.assertGreater(len(declared), 600)
        # What has no handle is left to the libraries.
        self.assertLessEqual({"cublasCreate_v2", "cublasSgemm_v2", "cublasLtMatmul", "cudnnCreate", "ncclAllReduce",
                              "pncclAllReduce"}, libraries)
        self.assertFalse({"cublasGetStatusName", "cudnnCreateTensorDescriptor", "ncclGetVersion"} & libraries)

    def test_needs_the_c_library_alone_under_the_drivers_name(self):
        dynamic = output("readelf", "-d", self.library)
        self.assertEqual(re.findall(r"NEEDED.*\[(.*)\]", dynamic), ["libc.so.6"])
        self.assertEqual(re.findall(r"SONAME.*\[(.*)\]", dynamic), ["libcuda.so.1"])
        for flag in ("NOW", "NODELETE", "SYMBOLIC"):
            self.assertRegex(dynamic, rf"FLAGS.*\b{flag}\b")

    def test_runs_no_code_of_its_own_when_loaded(self):
        dynamic = output("readelf", "-d", self.library)
        # The compiler's own entry (frame_dummy), which does nothing here.
        self.assertEqual(re.findall(r"INIT_ARRAYSZ\)\s+(\d+)", dynamic), ["8"])
        self.assertNotIn("_GLOBAL__sub_I", output("nm", self.library))


class LibrariesGeneratorTest(unittest.TestCase):

    def generate(self, library, change):
        tables = os.path.join(SOURCE, "intercept", "libraries")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cublas", "cublaslt", "cudnn", "nccl"):
                with open(os.path.join(tables, name + ".table"), encoding="ascii") as table:
                    text = table.read()
                with open(os.path.join(folder, name + ".table"), "w", encoding="ascii") as out:
                    out.write(change(text) if name == library else text)
            return subprocess.run([sys.executable, "-B", os.path.join(tables, "gen_libraries.py"), "--cxx", CXX, "--include",
                                   INCLUDE, "--out", os.path.join(folder, "out"), folder],
                                  capture_output=True, text=True, check=False)

    def test_accepts_the_tables(self):
        self.assertEqual(self.generate("", str).returncode, 0)

    def test_refuses_tables_that_do_not_fit(self):
        def without(name):
            return lambda text: re.sub(rf"(?m)^{name} .*\n", "", text)

        def becomes(name, kind):
            return lambda text: re.sub(rf"(?m)^{name} .*$", f"{name} {kind}", text)

        for library, change, complaint in [
                ("cublas", without("cublasSgemm_v2"), "cublas.table has no row for cublasSgemm_v2"),
                ("nccl", without("ncclAllReduce"), "nccl.table has no row for ncclAllReduce"),
                ("cudnn", lambda text: text + "cudnnNoSuch handle\n", "cudnn.h has no cudnnNoSuch"),
                ("cudnn", lambda text: text + "cudnnCreate handle\n", "a second row for cudnnCreate"),
                ("cublaslt", becomes("cublasLtMatmul", "forward"), "has a handle that only a wrapper can translate"),
                ("cublaslt", becomes("cublasLtCreate", "handle"), "which only a hook can translate"),
                ("cublas", becomes("cublasGetStatusName", "handle"), "when the library is not there"),
                ("cublas", becomes("cublasSgemm_v2", "ignore"), "the class one of")]:
            with self.subTest(complaint):
                result = self.generate(library, change)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(complaint, result.stderr)


class GeneratorTest(unittest.TestCase):

    def generate(self, change):
        """Runs the generator on the tables after change(text) of the device table. Returns its complaint."""
        with tempfile.TemporaryDirectory() as folder:
            changed = os.path.join(folder, "device.table")
            with open(TABLES[2], encoding="ascii") as table, open(changed, "w", encoding="ascii") as out:
                out.write(change(table.read()))
            return subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "intercept", "gen_wrappers.py"), "--cxx", CXX,
                                   "--include", INCLUDE, "--out", os.path.join(folder, "out"), "--exports", os.devnull, *TABLES[:2], changed],
                                  capture_output=True, text=True, check=False)

    def test_accepts_the_tables(self):
        self.assertEqual(self.generate(lambda text: text).returncode, 0)

    def test_refuses_tables_that_do_not_fit(self):
        for change, complaint in [
                (lambda text: re.sub(r"(?m)^cuInit .*\n", "", text), "no row in any table for cuInit"),
                (lambda text: text + "cuNoSuchFunction pass\n", "the headers have no cuNoSuchFunction"),
                (lambda text: text + "cuInit pass\n", "a second row for cuInit"),
                (lambda text: text + "cuMemAlloc_v2 pass\n", "a second row for cuMemAlloc_v2"),
                (lambda text: text + "cuStreamQuery_ptsz pass\n", "the headers have no cuStreamQuery_ptsz"),
                (lambda text: text.replace("cuInit ", "cuInit maybe "), "a row is"),
                (lambda text: re.sub(r"(?m)^cuInit .*$", "cuInit ignore", text), "the class one of")]:
            with self.subTest(complaint):
                result = self.generate(change)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(complaint, result.stderr)


if __name__ == "__main__":
    unittest.main()
