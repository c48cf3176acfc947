"""scripts/gpu_check.sh on a software device, and where it can do nothing."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import hung
from softgpu import BUILD, built

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "scripts", "gpu_check.sh")
sys.path.insert(0, os.path.join(ROOT, "scripts", "gpu"))
import bundle  # noqa: E402  pylint: disable=wrong-import-position
import symbols  # noqa: E402  pylint: disable=wrong-import-position

NEEDS_NVIDIA = ["pytorch"]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="gpu-check-test-"))

    def run_check(self, *arguments, build=BUILD):
        """Exit status, report (None where none was written), output."""
        path = os.path.join(self.folder, "report.json")
        done = hung.run_within(1500, [SCRIPT, "--report", path, *arguments], env=dict(os.environ, STASIS_BUILD_DIR=build),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        report = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        return done.returncode, report, done.stdout

    def test_all_that_a_software_device_can_do(self):
        status, report, output = self.run_check("--device", "softgpu", "--minutes", "24")
        self.assertEqual(status, 0, output)
        self.assertEqual((report["schema"], report["device"], report["verdict"]), (1, "softgpu", "pass"))
        for row in report["steps"]:
            self.assertEqual(row["status"], "absent" if row["name"] in NEEDS_NVIDIA else "pass", row)
            self.assertIn(row["name"], output)
        rows = {row["name"]: row["details"] for row in report["steps"]}
        self.assertEqual(rows["symbols"]["absent"], [])
        self.assertTrue(all(fact["result"] == "holds" for fact in rows["facts"].values() if fact["needed"]), rows["facts"])
        self.assertEqual(rows["demo by driver-checkpoint"]["steps"], 40)
        self.assertTrue({"pause_device", "checkpoint", "restore", "migrate"} <= set(rows["demo by reconstruct"]))
        self.assertGreater(rows["pause and restore"]["16 MiB"]["driver"]["restore"], 0)

    def test_without_a_gpu_it_says_so(self):
        status, report, output = self.run_check()
        self.assertEqual((status, report), (3, None), output)
        self.assertIn("--device softgpu", output)

    def copy_of_build(self, without=()):
        build = os.path.join(self.folder, "build")
        shutil.copytree(BUILD, build, symlinks=True, copy_function=os.symlink,
                        ignore=lambda at, names: [n for n in names if n in ("CMakeFiles", "Testing", "Makefile", *without)
                                                  or (at == BUILD and n not in ("bin", "lib", "samples", "tests"))])
        return build

    def test_what_was_brought_back_is_let_go_of_before_it_is_killed(self):
        """And what a step has found is on disk before the next one begins: a machine may stand still."""
        build, told, seen = self.copy_of_build(), os.path.join(self.folder, "told"), os.path.join(self.folder, "seen")
        os.unlink(os.path.join(build, "bin", "stasis"))
        with open(os.path.join(build, "bin", "stasis"), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$1" >> {told}\n[ "$1" != run ] || cp {self.folder}/report.json {seen}\n'
                       f'exec {built("bin/stasis")} "$@"\n')
        os.chmod(os.path.join(build, "bin", "stasis"), 0o755)
        status, _, output = self.run_check("--device", "softgpu", "--only", "machine,pause and restore", build=build)
        self.assertEqual(status, 0, output)
        with open(told, encoding="utf-8") as file:
            verbs = [verb for verb in file.read().split() if verb not in ("logs", "ps")]
        self.assertEqual(verbs[-6:], ["checkpoint", "pause", "restore", "pause", "cancel", "rm"])
        with open(seen, encoding="utf-8") as file:
            self.assertEqual([row["name"] for row in json.load(file)["steps"]], ["machine"])

    def test_a_step_that_fails_keeps_no_other_from_being_run(self):
        """A build with a broken sample and without the program for facts."""
        build = self.copy_of_build(["driver_facts"])
        for program in ("stasis", "stasis-init", "stasis-ghost"):
            # They look beside themselves for what belongs to them.
            os.unlink(os.path.join(build, "bin", program))
            shutil.copy(built("bin/" + program), os.path.join(build, "bin", program))
        broken = os.path.join(build, "samples", "stencil")
        os.unlink(broken)
        with open(broken, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho sha256 $$\n")
        os.chmod(broken, 0o755)
        status, report, output = self.run_check("--device", "softgpu", "--only", "facts,samples,symbols", build=build)
        self.assertEqual((status, report["verdict"]), (1, "fail"), output)
        self.assertEqual([row["status"] for row in report["steps"]], ["absent", "fail", "pass"], output)
        details = report["steps"][1]["details"]
        self.assertEqual({name for name, part in details.items() if "failed" in part},
                         {"stencil by capture", "stencil by explicit graph"}, details)
        self.assertIn("stencil", report["steps"][1]["summary"])

    def replace_samples(self, build, names, script):
        for name in names:
            path = os.path.join(build, "samples", name)
            os.unlink(path)
            with open(path, "w", encoding="utf-8") as file:
                file.write(script)
            os.chmod(path, 0o755)

    def test_samples_that_all_fail_by_themselves_are_no_pass(self):
        build = self.copy_of_build()
        programs = ["vector", "stencil", "mlp_train", "gpt_train", "cnn_train", "nccl_ring", "ddp_train", "pipeline_train", "tp_train"]
        self.replace_samples(build, programs, "#!/bin/sh\necho no device >&2\nexit 1\n")
        status, report, output = self.run_check("--device", "softgpu", "--only", "samples", build=build)
        self.assertEqual((status, report["steps"][0]["status"]), (1, "fail"), output)
        self.assertIn("no device", report["steps"][0]["summary"])
        # One that lacks a library is not there to be checked.
        self.replace_samples(build, programs, "#!/bin/sh\necho 'x: error while loading shared libraries: libx.so: cannot open' >&2\nexit 127\n")
        status, report, output = self.run_check("--device", "softgpu", "--only", "samples", build=build)
        self.assertEqual((status, report["steps"][0]["status"]), (0, "pass"), output)
        self.assertIn("libx.so", report["steps"][0]["summary"])

    def test_a_device_that_answers_no_more_is_not_absent(self):
        build = self.copy_of_build()
        self.replace_samples(build, ["vector"], f"#!/bin/sh\nrm -f {build}/lib/softgpu/libcuda.so.1\nexit 1\n")
        status, report, output = self.run_check("--device", "softgpu", "--only", "devices", build=build)
        self.assertEqual((status, report["steps"][0]["status"]), (1, "fail"), output)

    def test_a_library_that_fails_by_itself_is_absent_after_a_move(self):
        build = self.copy_of_build()
        for name in os.listdir(os.path.join(build, "lib", "softgpu")):
            if name.startswith("libcublas.so"):
                os.unlink(os.path.join(build, "lib", "softgpu", name))
        status, report, output = self.run_check("--device", "softgpu", "--only", "devices", build=build)
        self.assertEqual((status, report["steps"][0]["status"]), (0, "pass"), output)
        self.assertIn("absent: a-library-after-a-move", report["steps"][0]["summary"])

    def test_usage(self):
        for arguments in (["--device", "fpga"], ["--device", "softgpu", "--only", "sleep"], ["--wrong"], ["--minutes"]):
            self.assertEqual(self.run_check(*arguments)[0], 2, arguments)


class Bundle(unittest.TestCase):
    """The archive for a machine that has none of the libraries of this one."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gpu-check-bundle-"))
        archive = os.path.join(cls.folder, "check.tar.gz")
        made = hung.run_within(600, [SCRIPT, "--bundle", archive], env=dict(os.environ, STASIS_BUILD_DIR=BUILD), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert made.returncode == 0, made.stdout
        with tarfile.open(archive) as tar:
            tar.extractall(cls.folder)
        cls.root = os.path.join(cls.folder, "stasis-gpu-check")

    def test_nothing_is_lacking(self):
        self.assertEqual(bundle.lacking(self.root), [])

    def test_it_runs_with_the_c_library_that_its_programs_need_and_no_newer_one(self):
        """The library of C++ is the machine's: this machine's own would ask for this machine's C library."""
        self.assertFalse([name for name in os.listdir(os.path.join(self.root, "libraries")) if bundle.COMPILER_LIBRARY.match(name)])
        with open(os.path.join(self.root, "bundle.json"), encoding="utf-8") as file:
            needs = json.load(file)
        self.assertEqual((needs["glibc"], needs["glibcxx"]), tuple(bundle.needed(self.root).values()))
        self.assertGreaterEqual(needs["glibcxx"], [3, 4, 20])
        self.assertLessEqual(tuple(needs["glibc"]), bundle.newest(bundle.library_in_use("libc.so.6"), "GLIBC"))

    def test_a_library_that_is_not_there_is_missed(self):
        libraries = os.path.join(self.root, "libraries")
        for name in os.listdir(libraries):
            if bundle.COMPILER_LIBRARY.match(name):
                continue
            with self.subTest(name):
                os.rename(os.path.join(libraries, name), os.path.join(self.folder, name))
                self.assertIn(name, [library for _, library in bundle.lacking(self.root)])
                os.rename(os.path.join(self.folder, name), os.path.join(libraries, name))

    def test_the_loader_takes_every_library_from_the_bundle(self):
        programs = [os.path.join("build/release", name) for name in bundle.PROGRAMS] + ["bin/criu"]
        for program in programs:
            with self.subTest(program):
                listed = subprocess.run(["ldd", os.path.join(self.root, program)], capture_output=True, text=True, check=False).stdout
                # But the driver, which is the machine's.
                self.assertEqual(set(re.findall(r"(\S+) => not found", listed)) - {"libcuda.so.1"}, set())
                for name, path in re.findall(r"(\S+) => (/\S+)", listed):
                    if not bundle.C_LIBRARY.match(name) and not bundle.COMPILER_LIBRARY.match(name) and name != "libcuda.so.1":
                        self.assertEqual(os.path.realpath(path), os.path.join(os.path.realpath(self.root), "libraries", name))

    def test_nothing_looks_outside_of_it(self):
        looked_at = 0
        for path in bundle.files_of(self.root):
            for place in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", bundle.dynamic_section(path)):
                looked_at += 1
                self.assertRegex(place, r"^\$ORIGIN(/\.\.)*(/libraries)?$", path)
        self.assertGreater(looked_at, 3)

    @unittest.skipUnless(os.geteuid() == 0, "only root can hide this tree")
    def test_the_check_runs_from_it_where_this_tree_is_not(self):
        report = os.path.join(self.folder, "report.json")
        env = {name: value for name, value in os.environ.items() if not name.startswith("STASIS_")}
        # The one may lie in the other.
        hide = ["unshare", "--mount", "sh", "-c", 'for path in "$1" "$2"; do [ ! -d "$path" ] || mount -t tmpfs none "$path" || exit; done\n'
                'shift 2; exec "$@"', "sh", ROOT, os.path.realpath(BUILD)]
        steps = ["facts", "symbols", "samples", "demo by reconstruct", "pause and restore"]
        done = hung.run_within(800, [*hide, os.path.join(self.root, "scripts", "gpu_check.sh"), "--device", "softgpu", "--report", report,
                                     "--only", ",".join(steps)], env=env, cwd=self.folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(report, encoding="utf-8") as file:
            self.assertEqual([row["status"] for row in json.load(file)["steps"]], ["pass"] * len(steps), done.stdout)


class Parts(unittest.TestCase):
    def test_symbols_are_those_that_the_loader_finds(self):
        names = symbols.exported_functions(built("lib/softgpu/libcuda.so.1"))
        self.assertGreaterEqual(names, {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress"})
        self.assertEqual(symbols.present(built("lib/softgpu/libcuda.so.1"), {"cuInit", "cuNothing"}), {"cuInit"})

    def test_what_is_bound_to_itself(self):
        self.assertTrue(symbols.bound_to_itself(built("lib/softgpu/libcuda.so.1")))
        self.assertFalse(symbols.bound_to_itself(built("tests/nvml/libnvidia-ml.so.1")))

    def test_the_data_set_is_shortened_to_whole_images(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "images.gz")
            bundle.shorten(os.path.join(bundle.SAMPLE_DATA, "train-images-idx3-ubyte.gz"), path)
            with gzip.open(path) as short, gzip.open(os.path.join(bundle.SAMPLE_DATA, "train-images-idx3-ubyte.gz")) as whole:
                data, all_data = short.read(), whole.read()
        self.assertEqual(data[4:8], bundle.IMAGES.to_bytes(4, "big"))
        self.assertEqual(len(data), 16 + bundle.IMAGES * 28 * 28)
        self.assertEqual((data[:4], data[8:]), (all_data[:4], all_data[8:len(data)]))

    def test_a_bundle_for_a_newer_c_library_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for glibc, glibcxx, lacks in (([2, 17], [3, 4, 11], None), ([99, 0], [3, 4, 11], "glibc 99.0"),
                                          ([2, 17], [3, 4, 999], "GLIBCXX 3.4.999")):
                with open(os.path.join(folder, "bundle.json"), "w", encoding="utf-8") as file:
                    json.dump({"version": "x", "machine": os.uname().machine, "glibc": glibc, "glibcxx": glibcxx}, file)
                done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "gpu", "bundle.py"), "check", folder],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1 if lacks else 0, done.stderr)
                self.assertIn(lacks or "", done.stderr)


if __name__ == "__main__":
    unittest.main()
