#!/usr/bin/env python3
"""The generator of the wrappers takes no table by which a handle would get to the driver untranslated."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent / "intercept"
TABLES = ("memory.table", "objects.table", "device.table")


class TablesTest(unittest.TestCase):

    def generate(self, **classes):
        """Runs the generator with other classes for some rows; returns its exit status and what it says."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name in TABLES:
                text = (SOURCE / name).read_text()
                for function, wanted in classes.items():
                    text = re.sub(rf"(?m)^({function} +)\S+", rf"\g<1>{wanted}", text)
                paths.append(pathlib.Path(folder) / name)
                paths[-1].write_text(text)
            exports = pathlib.Path(folder) / "exports.txt"
            exports.write_text("")
            done = subprocess.run([sys.executable, "-B", SOURCE / "gen_wrappers.py", "--cxx", os.environ["STASIS_CXX"], "--include",
                                   os.environ["STASIS_CUDA_INCLUDE"], "--out", pathlib.Path(folder) / "out", "--exports", exports,
                                   *paths],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stderr

    def test_the_tables_as_they_are(self):
        self.assertEqual(self.generate(), (0, ""))

    def test_handles_that_only_a_hook_can_translate(self):
        for function in ("cuMemcpy3DBatchAsync_v2", "cuGraphGetNodes", "cuTexObjectGetResourceDesc", "cuGraphKernelNodeSetAttribute"):
            for kind in ("pass", "taint_reconstruct"):
                with self.subTest(function=function, kind=kind):
                    status, said = self.generate(**{function: kind})
                    self.assertNotEqual(status, 0)
                    self.assertIn(f"handles that only a hook can translate: {function}\n", said)

    def test_a_reason_that_nothing_needs(self):
        status, said = self.generate(cuStreamSetAttribute="hook_tracked")
        self.assertNotEqual(status, 0)
        self.assertIn("SEEN_THROUGH has rows that need no reason: cuStreamSetAttribute\n", said)


if __name__ == "__main__":
    unittest.main()
