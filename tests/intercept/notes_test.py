#!/usr/bin/env python3
"""include/stasis/memory.h reaches the library that is preloaded, however the program was built, and does nothing else."""

import os
import subprocess
import tempfile
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CXX = os.environ["STASIS_CXX"]

USER = """
#include <stasis/memory.h>
int Use(void) {
  char block;
  stasis_memory_alloc(&block, 7);
  stasis_memory_alloc(&block, 8);
  stasis_memory_free(&block);
  stasis_iteration();
  return 0;
}
"""
MAIN = "int Use(void); int main(void) { return Use(); }"
# In the place of libstasis.so.
LIBRARY = """
#include <stddef.h>
#include <stdio.h>
void stasis_note_alloc(const void* address, size_t bytes) { printf("%d alloc %zu\\n", address != NULL, bytes); }
void stasis_note_free(const void* address) { printf("%d free\\n", address != NULL); }
void stasis_note_iteration(void) { printf("iteration\\n"); }
"""
NOTES = "1 alloc 7\n1 alloc 8\n1 free\niteration\n"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-O2", "-I" + os.path.join(SOURCE, "include")]


class NotesTest(unittest.TestCase):

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-notes-"))
        self.library = self.build(LIBRARY, "library.so", "c", "-shared", "-fPIC")

    def build(self, text, name, language, *flags):
        path = os.path.join(self.folder, name)
        subprocess.run([CXX, "-x", language, "-", *WARNINGS, *flags, "-o", path], input=text, text=True, check=True)
        return path

    def check(self, program):
        self.assertEqual(self.output(program), "")
        self.assertEqual(self.output(program, LD_PRELOAD=self.library), NOTES)

    @staticmethod
    def output(program, **extra):
        return subprocess.run([program], env=os.environ | extra, capture_output=True, text=True, check=True).stdout

    def test_of_an_executable_with_pie_and_without(self):
        for language in ("c", "c++"):
            for kind in (["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]):
                with self.subTest(language=language, kind=kind):
                    self.check(self.build(USER + MAIN, "program", language, *kind))

    def test_of_a_shared_library(self):
        self.build(USER, "libuser.so", "c", "-shared", "-fPIC")
        for kind in (["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]):
            with self.subTest(kind=kind):
                # The source comes first: the linker may drop a library that nobody has asked for yet.
                self.check(self.build(MAIN, "program", "c", *kind, "-Wl,--no-as-needed", "-L" + self.folder, "-luser",
                                      "-Wl,-rpath," + self.folder))

    def test_of_a_static_executable_do_nothing(self):
        self.assertEqual(self.output(self.build(USER + MAIN, "program", "c", "-static", "-Wno-error")), "")


if __name__ == "__main__":
    unittest.main()
