"""The names that the stand-ins export, their versions and what they need, against the committed lists and NVIDIA's libraries."""
import os
import re
import subprocess
import unittest

LIBRARIES = {
    "libcublas.so.13": (os.environ["CUBLAS_LIBRARY"], os.environ["CUBLAS_EXPORTS"], {"libcublasLt.so.13"}),
    "libcublasLt.so.13": (os.environ["CUBLASLT_LIBRARY"], os.environ["CUBLASLT_EXPORTS"], set()),
}
INCLUDE = os.environ["CUDA_INCLUDE"]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_symbols(library):
    return [line.split()[-2:] for line in output_of("nm", "-D", "--defined-only", library).splitlines()]


def functions(library):
    return sorted(name for kind, name in dynamic_symbols(library) if kind != "A")


class ExportsTest(unittest.TestCase):
    def test_the_names_are_those_of_the_list_with_their_version(self):
        for node, (library, exports, _) in LIBRARIES.items():
            with open(exports, encoding="utf-8") as file:
                listed = sorted(f"{name}@@{node}" for name in file.read().split())
            self.assertGreater(len(listed), 40)
            self.assertEqual(functions(library), listed)
            self.assertEqual({kind for kind, _ in dynamic_symbols(library) if kind != "A"}, {"T"})

    def test_the_list_is_what_nvidia_exports_of_the_headers(self):
        """Where NVIDIA's libraries are installed."""
        compared = 0
        for folder in ("lib64", "lib"):
            for node, (_, exports, _) in LIBRARIES.items():
                real = os.path.join(INCLUDE, "..", folder, node)
                if not os.path.exists(real):
                    continue
                names = {name.split("@")[0] for name in functions(real)}
                with open(exports, encoding="utf-8") as file:
                    listed = set(file.read().split())
                self.assertEqual(listed - names, set())
                compared += 1
        print(f"compared with {compared} libraries of NVIDIA's")

    def test_name_and_dependencies(self):
        for node, (library, _, others) in LIBRARIES.items():
            out = output_of("readelf", "-d", library)
            self.assertIn(f"Library soname: [{node}]", out)
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
            allowed = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"} | others
            sanitizers = {name for name in needed if re.match(r"lib(asan|ubsan|tsan)\.so", name)}
            self.assertLessEqual(needed - sanitizers, allowed)
            self.assertLessEqual(others, needed)


if __name__ == "__main__":
    unittest.main()
