#!/usr/bin/env python3
"""libnccl.so.2 exports the names that nccl.h declares, unversioned as NVIDIA's, and no others."""

import os
import re
import subprocess
import unittest

LIBRARY = os.environ["NCCL_LIBRARY"]
HEADER = os.path.join(os.environ["CUDA_INCLUDE"], "nccl.h")
REAL = os.path.join(os.environ["CUDA_INCLUDE"], "..", "lib64", "libnccl.so.2")


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def declared():
    with open(HEADER, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return set(re.findall(r"\b(p?nccl[A-Z]\w*)\s*\(", text))


class Exports(unittest.TestCase):
    def test_all_that_the_header_declares(self):
        self.assertEqual(exported(LIBRARY), declared())

    @unittest.skipUnless(os.path.exists(REAL), "the toolkit has no NCCL library")
    def test_none_that_nvidias_has_not(self):
        self.assertLessEqual(exported(LIBRARY), exported(REAL))
        self.assertLessEqual(exported(REAL) & declared(), exported(LIBRARY))

    def test_soname(self):
        text = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertIn("Library soname: [libnccl.so.2]", text)


if __name__ == "__main__":
    unittest.main()
