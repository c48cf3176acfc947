#!/usr/bin/env python3
"""Ways to the driver's functions, and programs that have nothing to do with them, of any C library."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest

from cases import PROGRAMS, SiteCase
from softgpu import Node, built

CC = os.environ.get("STASIS_CC", "cc")
DRIVER = "lib/softgpu/libcuda.so.1"
NEWEST_GLIBC = (2, 34)


def output(*command, **extra):
    return subprocess.run(command, capture_output=True, text=True, check=True, **extra).stdout


class WaysIn(SiteCase):

    def setUp(self):
        super().setUp()
        self.program = self.new_file("ways")
        source = os.path.join(PROGRAMS, "ways.c")
        output(CC, "-O1", "-o", self.program, source, "-ldl")
        self.linked = self.new_file("linked")
        output(CC, "-O1", "-o", self.linked, source, "-Wl,--no-as-needed", built(DRIVER), "-ldl")

    def begin(self, way, program=None, prefix=()):
        self.go = self.new_file()
        self.count += 1
        job = self.site.start(f"job-{self.count}", *prefix, program or self.program, way, self.go)
        job.wait_for_output("ready")
        return job

    def end(self, job):
        self.touch(self.go)
        self.finish(job, "ready\nend\n")

    def test_every_way_leads_through_us(self):
        for way in ("linked", "libcuda.so.1", "libcuda.so", "addresses", "itself"):
            with self.subTest(way):
                job = self.begin(way, self.linked if way == "linked" else None)
                answer = job.verb("pause", "--residency", "host")
                self.assertEqual((answer["members"], answer["active_bytes"]), (1, 1 << 20))
                self.assertEqual(self.used(), [0, 0], "something is on the device that we do not know of")
                job.verb("resume")
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach")
                self.end(job)

    def test_who_passes_us_is_named_and_runs_on(self):
        clean = ("/usr/bin/env", "-u", "LD_PRELOAD", "LD_LIBRARY_PATH=" + os.path.dirname(built(DRIVER)))
        child = ("/bin/sh", "-c", 'env -u LD_PRELOAD "$@"; exit', "sh")
        for name, way, prefix in (("a namespace of its own", "namespace", ()), ("the driver's file", built(DRIVER), ()),
                                  ("without our environment", DRIVER.rpartition("/")[2], clean),
                                  ("a child without it", built(DRIVER), child)):
            with self.subTest(name):
                job = self.begin(way, prefix=prefix)
                before = self.used()
                for verb in ("pause", "checkpoint"):
                    _, answer = job.refused(verb)
                    self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", "unchanged"), answer)
                    self.assertIn("does not do it through stasis", answer["message"])
                    self.assertIn("(ways)", answer["message"])
                    self.assertIn("libcuda.so.1", answer["remedy"])
                self.assertEqual(self.used(), before)
                self.end(job)


class Strangers(unittest.TestCase):
    """Programs that use no CUDA, whatever they are linked with."""

    def setUp(self):
        self.library = built("lib/libstasis.so")
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-strangers-"))

    def test_needs_nothing_that_an_older_library_lacks(self):
        needed = output("readelf", "--version-info", "--wide", self.library).partition("Version needs")[2]
        versions = set(re.findall(r"Name: (\w+)", needed.replace(".", "_")))
        self.assertTrue(versions)
        for version in versions:
            self.assertRegex(version, r"^GLIBC_2(_\d+)+$")  # no private name, and no other library's
            self.assertLessEqual(tuple(map(int, version.split("_")[1:3])), NEWEST_GLIBC)

    def compile(self, compiler, *options):
        program = os.path.join(self.folder, "stranger")
        source = program + ".c"
        with open(source, "w", encoding="ascii") as file:
            file.write('#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <sys/wait.h>\n'
                       'int main(int argc, char** argv) {\n'
                       '  if (argc == 1 && fork() == 0) return execl(argv[0], argv[0], "child", (char*)0);\n'
                       '  int status = 0;\n  wait(&status);\n  printf("%s %d\\n", argc > 1 ? argv[1] : "parent", status);\n'
                       '  return 7;\n}\n')
        output(*shlex.split(compiler), *options, "-o", program, source)
        return program

    def assert_untouched(self, *command, status):
        env = {"PATH": os.environ["PATH"], "STASIS_TASK": os.path.join(self.folder, "task")}
        results = [subprocess.run(command, env=env | preload, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, check=False) for preload in ({}, {"LD_PRELOAD": self.library})]
        self.assertEqual(*((r.returncode, r.stdout, r.stderr) for r in results))
        self.assertEqual(results[0].returncode, status, results[0].stderr)

    def test_of_every_c_library(self):
        for name, compiler, options in (("shared", CC, ()), ("static", CC, ("-static",)), ("musl", "musl-gcc", ()),
                                        ("static musl", "musl-gcc", ("-static",))):
            with self.subTest(name):
                self.assert_untouched(self.compile(compiler, *options), status=7)

    def test_everyday_programs(self):
        self.assert_untouched("true", status=0)
        self.assert_untouched("bash", "-c", "echo $((6 * 7)) | tr 4 5; exit 3", status=3)
        self.assert_untouched("/usr/bin/env", "-i", "/bin/ls", "/", status=0)
        with Node("--gpus", "1") as node:
            smi = [built("bin/softgpu-smi"), "--socket", node.socket, "--json"]
            self.assert_untouched(*smi, status=0)


if __name__ == "__main__":
    unittest.main()
