"""What is exported, and programs that were linked with whatever library bears cuDNN's name."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

LIBRARY = os.environ["CUDNN_LIBRARY"]
EXPORTS = pathlib.Path(os.environ["CUDNN_EXPORTS"])
INCLUDE = os.environ["CUDA_INCLUDE"]
PROGRAM = os.environ["CUDNN_ANSWERS"]  # empty in builds with sanitizers
NVIDIA = os.environ["CUDNN_NVIDIA"]  # empty where the toolkit has no cuDNN
RECORDED = pathlib.Path(__file__).resolve().parent / "programs" / "answers.txt"
NODE = "libcudnn.so.9"
# Exported by NVIDIA's library, declared nowhere.
PRIVATE = {"cudnnGetBackdoor", "cudnnGetRNNDropoutLocationsInternal", "cudnnSetBackdoor", "cudnnSetBackdoorEx"}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(library):
    """Exported names with their versions."""
    symbols = [line.split()[-2:] for line in output_of("nm", "-D", "--defined-only", library).splitlines()]
    return sorted(name for kind, name in symbols if kind == "T")


def answers(library):
    with tempfile.TemporaryDirectory() as folder:
        # No driver, so that no test depends on a device or a daemon.
        pathlib.Path(folder, "libcuda.so.1").write_bytes(b"")
        env = dict(os.environ, LD_LIBRARY_PATH=f"{folder}:{os.path.dirname(library)}")
        return subprocess.run([PROGRAM], env=env, capture_output=True, text=True, timeout=60, check=True).stdout


class LibraryTest(unittest.TestCase):
    def test_the_names_are_those_of_the_list_with_their_version(self):
        listed = EXPORTS.read_text().split()
        self.assertEqual(len(listed), 220)
        self.assertEqual(functions(LIBRARY), sorted(f"{name}@@{NODE}" for name in listed))

    def test_every_declared_function_is_in_the_list(self):
        listed = set(EXPORTS.read_text().split())
        declared = set()
        for header in pathlib.Path(INCLUDE).glob("cudnn*_v9.h"):
            text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
            declared |= set(re.findall(r"CUDNNWINAPI\s+(cudnn\w+)\s*\(", text))
        self.assertEqual(declared, listed)

    def test_name_and_dependencies(self):
        out = output_of("readelf", "-d", LIBRARY)
        self.assertIn(f"Library soname: [{NODE}]", out)
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
        sanitizers = {name for name in needed if re.match(r"lib(asan|ubsan|tsan)\.so", name)}
        self.assertLessEqual(needed - sanitizers, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})


if PROGRAM:  # a sanitized library does not load into a program without the sanitizer

    class AnswersTest(unittest.TestCase):
        def test_answers_are_those_recorded_of_nvidias_library(self):
            self.assertEqual(answers(LIBRARY), RECORDED.read_text())


if NVIDIA:

    class NvidiaTest(unittest.TestCase):
        def test_it_exports_the_same(self):
            listed = {f"{name}@@{NODE}" for name in EXPORTS.read_text().split()}
            exported = set(functions(NVIDIA))
            self.assertEqual(exported - listed, {f"{name}@@{NODE}" for name in PRIVATE})
            self.assertEqual(listed - exported, set())


if NVIDIA and PROGRAM:

    class NvidiaAnswersTest(unittest.TestCase):
        def test_it_still_answers_as_recorded(self):
            self.assertEqual(answers(NVIDIA), RECORDED.read_text())


if __name__ == "__main__":
    unittest.main()
