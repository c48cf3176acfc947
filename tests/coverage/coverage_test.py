#!/usr/bin/env python3
"""docs/coverage.md is what the tables of the code say, and the tables know every function and every kind of object."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "scripts" / "gen"))
import coverage  # noqa: E402  pylint: disable=wrong-import-position

CXX = os.environ["STASIS_CXX"]
INCLUDE = pathlib.Path(os.environ["STASIS_CUDA_INCLUDE"])
LIBRARIES = SOURCE / "intercept" / "libraries"
UPDATE = "scripts/gen/coverage.py"


class CoveragePageTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.coverage = coverage.Coverage(CXX, str(INCLUDE))

    def test_the_page_is_what_the_tables_say(self):
        page = (SOURCE / "docs" / "coverage.md").read_text()
        self.assertEqual(page, self.coverage.page(), f"run {UPDATE} and commit docs/coverage.md")

    def test_the_page_of_the_build_is_the_same(self):
        built = pathlib.Path(os.environ["STASIS_BUILD_DIR"]) / "docs" / "coverage.md"
        self.assertEqual(built.read_text(), self.coverage.page(), "the build has not written the page anew")

    def test_names_every_function_once(self):
        page = self.coverage.page()
        rows = re.findall(r"^\| `(\w+)` \| ", page, re.M)
        self.assertEqual(len(rows), len(set(rows)))
        every = {name for table in self.coverage.tables_of_functions().values() for name in table}
        self.assertEqual(set(rows), every)

    def test_each_recorded_kind_has_its_row(self):
        """The enumeration is made of the rows, and nothing else has that type."""
        header = (SOURCE / "replay" / "object_table.h").read_text()
        enumeration = re.search(r"enum class ObjectKind[^{]*\{([^}]*)\}", header)[1]
        self.assertNotRegex(re.sub(r"#.*", "", enumeration), r"\w")
        self.assertIn('#include "base/object_kinds.inc"', enumeration)


class UnknownThingsTest(unittest.TestCase):
    """The toolkit of tomorrow: headers with something in them that the tables do not know."""

    def headers(self, addition, header="cuda.h"):
        """A folder with the toolkit's headers, one of them having one declaration more."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-headers-")))
        for entry in INCLUDE.iterdir():
            if entry.name != header:
                (folder / entry.name).symlink_to(entry)
        text = (INCLUDE / header).read_text()
        end = re.search(r"#if(def|\s+defined)\s*\(?\s*__cplusplus\s*\)?\s*\n\s*\}", text).start()
        (folder / header).write_text(text[:end] + addition + "\n" + text[end:])
        return str(folder)

    def generate(self, include, extra_rows=""):
        """The generator of the wrappers: its complaint, or nothing."""
        with tempfile.TemporaryDirectory(prefix="stasis-out-") as out:
            extra = pathlib.Path(out) / "extra.table"
            extra.write_text(extra_rows)
            result = subprocess.run([sys.executable, "-B", str(SOURCE / "intercept" / "gen_wrappers.py"), "--cxx", CXX,
                                     "--include", include, "--out", out, "--exports", os.devnull,
                                     *map(str, coverage.DRIVER_TABLES), str(extra)],
                                    capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode != 0, bool(result.stderr))
        return result.stderr

    def test_a_function_that_no_table_knows_breaks_the_build_by_name(self):
        include = self.headers("CUresult CUDAAPI cuStreamOfTomorrow(CUstream hStream);")
        self.assertIn("no row in any table for cuStreamOfTomorrow", self.generate(include))
        with self.assertRaises(SystemExit) as raised:
            coverage.Coverage(CXX, include)
        self.assertIn("no row in any table for cuStreamOfTomorrow", str(raised.exception))
        self.assertEqual(self.generate(include, "cuStreamOfTomorrow pass\n"), "")

    def test_a_new_version_of_a_function_is_a_new_function(self):
        include = self.headers("CUresult CUDAAPI cuMemAlloc_v9(CUdeviceptr *dptr, size_t bytesize);")
        self.assertIn("no row in any table for cuMemAlloc_v9", self.generate(include))

    def generate_libraries(self, include):
        with tempfile.TemporaryDirectory(prefix="stasis-out-") as out:
            return subprocess.run([sys.executable, "-B", str(LIBRARIES / "gen_libraries.py"), "--cxx", CXX, "--include", include,
                                   "--out", out, str(LIBRARIES)], capture_output=True, text=True, check=False)

    def test_a_librarys_function_that_no_table_knows_breaks_the_build_by_name(self):
        for header, declaration in [
                ("cublas_api.h", "CUBLASAPI cublasStatus_t CUBLASWINAPI cublasOfTomorrow(cublasHandle_t handle);"),
                ("cublasLt.h", "cublasStatus_t CUBLASWINAPI cublasLtOfTomorrow(cublasLtHandle_t handle);"),
                ("nccl.h", "ncclResult_t ncclOfTomorrow(ncclComm_t comm);")]:
            with self.subTest(header):
                result = self.generate_libraries(self.headers(declaration, header))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(re.search(r"\w+OfTomorrow", declaration)[0], result.stderr)
        self.assertEqual(self.generate_libraries(str(INCLUDE)).returncode, 0)

    def test_the_same_headers_are_accepted(self):
        self.assertEqual(self.generate(self.headers("")), "")

    def test_a_call_that_makes_an_object_belongs_to_a_kind(self):
        functions, _ = coverage.driver_functions(CXX, self.headers("CUresult CUDAAPI cuEventFromTomorrow(CUevent *phEvent);"))
        rows = coverage.gen_wrappers.read_tables(coverage.DRIVER_TABLES) | {"cuEventFromTomorrow": "pass"}
        for table in coverage.library_tables().values():
            rows |= table
        with self.assertRaises(coverage.CoverageError) as raised:
            coverage.check_makers(coverage.read_kinds(), functions, rows)
        self.assertIn("of no kind", str(raised.exception))
        self.assertIn("cuEventFromTomorrow", str(raised.exception))


class KindsTest(unittest.TestCase):
    """A kind cannot claim what the tables of functions do not say."""

    def status(self, restored, **rows):
        kind = coverage.Kind("OBJECT", "kThing", "thing", list(rows), restored, "")
        return coverage.status_of(kind, rows, {"cuThingTainted": "reconstruct"})

    def test_status(self):
        for restored, rows, expected in [
                ("handle", {"cuThingCreate": "hook_tracked"}, "restored"),
                ("handle", {"cuThingCreate": "hook_tracked", "cuThingCreate_v0": "taint"}, "restored"),
                ("", {"cuThingCreate": "taint"}, "refused"),
                ("", {"cuThingCreate": "taint", "cuThingGetPart": "pass"}, "refused"),
                ("", {"cuThingCreate": "taint_reconstruct"}, "refused under reconstruct"),
                ("", {"cuThingTainted": "hook_mended"}, "refused under reconstruct")]:
            with self.subTest(restored=restored, **rows):
                self.assertEqual(self.status(restored, **rows)[0], expected)

    def test_contradictions(self):
        for restored, rows in [("handle", {"cuThingCreate": "taint"}), ("", {"cuThingCreate": "hook_tracked"})]:
            with self.subTest(restored=restored, **rows), self.assertRaises(coverage.CoverageError):
                self.status(restored, **rows)

    def test_one_call_makes_one_kind(self):
        kinds = [coverage.Kind("OBJECT", "k" + name, name, ["cuThingCreate"], "handle", "") for name in "ab"]
        with self.assertRaises(coverage.CoverageError):
            coverage.check_makers(kinds, {}, {"cuThingCreate": "pass"})

    def test_a_hook_that_refuses_some_uses_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "hooks_thing.cc"
            source.write_text("CUresult Make(const Call& call, int kind) {\n  if (kind == 2) {\n    TaintOnce(call.fn, false);\n"
                              "  }\n  return CUDA_SUCCESS;\n}\n\n"
                              "CUresult cuThing(const Call& call, int kind) { return Make(call, kind); }\n"
                              "CUresult cuOther(const Call& call) {\n  return CUDA_SUCCESS;\n}\n"
                              "CUresult cuWorse(const Call& call) {\n  Taint(\"cuWorse of a kind\", true);\n}\n")
            self.assertEqual(coverage.conditional_refusals([source]), {"cuThing": "reconstruct", "cuWorse": "both"})

    def test_a_message_is_found_as_it_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "thing.cc"
            source.write_text('return Errorf(StatusCode::kUnsupported, "%s is at 0x%" PRIx64 " "\n    "and %llu",\n  name, at);\n'
                              'return Status(StatusCode::kUnsupported, NameOf(*thing) + ": it is " + what + " of old");\n'
                              'return Status(StatusCode::kUnsupported, thing.refused);\n'
                              'return Refuse(*this, "has another owner", "cuThing");\n')
            self.assertEqual(coverage.refusal_messages([source]),
                             {"... is at ... and ...", "...: it is ... of old", "has another owner"})


if __name__ == "__main__":
    unittest.main()
