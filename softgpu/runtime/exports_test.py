"""The exported names and their version, against the committed list and the headers."""
import os
import re
import subprocess
import unittest

LIBRARY = os.environ["CUDART_LIBRARY"]
EXPORTS = os.environ["CUDART_EXPORTS"]
DRIVER_EXPORTS = os.environ["DRIVER_EXPORTS"]
INCLUDE = os.environ["CUDA_INCLUDE"]
NODE = "libcudart.so.13"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_symbols():
    return [line.split()[-2:] for line in output_of("nm", "-D", "--defined-only", LIBRARY).splitlines()]


class ExportsTest(unittest.TestCase):
    def test_the_names_are_those_of_the_list_with_their_version(self):
        with open(EXPORTS) as file:
            listed = sorted(f"{name}@@{NODE}" for name in file.read().split())
        self.assertEqual(len(listed), 422)
        functions = sorted(name for kind, name in dynamic_symbols() if kind != "A")
        self.assertEqual(functions, listed)
        self.assertEqual({kind for kind, name in dynamic_symbols() if kind != "A"}, {"T"})

    def test_every_function_of_the_header_is_exported(self):
        with open(os.path.join(INCLUDE, "cuda_runtime_api.h")) as file:
            header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared = set(re.findall(r"CUDARTAPI\s+(cuda\w+)\s*\(", header))
        self.assertGreater(len(declared), 250)
        exported = {name.split("@")[0] for _, name in dynamic_symbols()}
        self.assertEqual(declared - exported, set())

    def test_every_driver_function_used_is_public(self):
        with open(LIBRARY, "rb") as file:
            used = {name.decode() for name in re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", file.read())}
        with open(DRIVER_EXPORTS) as file:
            public = set(file.read().split())
        self.assertGreater(len(used), 250)
        self.assertEqual(used - public, set())

    def test_name_and_dependencies(self):
        out = output_of("readelf", "-d", LIBRARY)
        self.assertIn(f"Library soname: [{NODE}]", out)
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
        allowed = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
        sanitizers = {name for name in needed if re.match(r"lib(asan|ubsan|tsan)\.so", name)}
        self.assertLessEqual(needed - sanitizers, allowed)


if __name__ == "__main__":
    unittest.main()
