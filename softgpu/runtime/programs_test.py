"""Programs built by nvcc, on the runtime and the recording driver."""
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAMS = pathlib.Path(os.environ["CUDART_PROGRAMS"])
LIBRARIES = os.environ["CUDART_LIBRARY_DIR"]
FAKE = os.environ["FAKE_DRIVER_DIR"]


def run(name, *args, driver=True, **extra):
    """Output lines and the driver calls of one run."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        # First, because softgpu's own driver lies beside the runtime.
        path = f"{FAKE}:{LIBRARIES}" if driver else f"{folder}:{LIBRARIES}"
        pathlib.Path(folder, "libcuda.so.1").write_bytes(b"")  # ends the search where there is to be no driver
        env = dict(os.environ, LD_LIBRARY_PATH=path, FAKE_CUDA_LOG=str(log), **extra)
        done = subprocess.run([PROGRAMS / name, *args], env=env, capture_output=True, text=True, timeout=60)
        calls = log.read_text().split() if log.exists() else []
        return done, done.stdout.splitlines(), calls


class ProgramsTest(unittest.TestCase):
    def test_lazy_opening_and_order(self):
        done, lines, calls = run("order")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(lines, ["log before first use: none", "malloc: cudaSuccess", "launch: cudaSuccess",
                                 "launch: cudaSuccess", "symbol: cudaSuccess", "at exit: cudaSuccess"])
        self.assertLess(calls.index("cuInit"), calls.index("cuDevicePrimaryCtxRetain"))
        self.assertLess(calls.index("cuMemAlloc_v2"), calls.index("cuLibraryLoadData"))
        for name in ("cuInit", "cuLibraryLoadData", "cuLibraryGetKernel"):
            self.assertEqual(calls.count(name), 1, name)
        self.assertEqual(calls.count("cuLaunchKernel"), 2)
        # The driver may be gone when the program unregisters its code.
        self.assertNotIn("cuLibraryUnload", calls)

    def test_a_reset_keeps_the_compilers_kernel_handles(self):
        done, lines, calls = run("order", "reset")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(lines.count("launch: cudaSuccess"), 3)
        self.assertEqual(calls.count("cuLibraryLoadData"), 1)
        self.assertEqual(calls.count("cuDevicePrimaryCtxRetain"), 2)

    def test_without_a_driver(self):
        done, lines, _ = run("linked", driver=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(lines, ["launch: cudaErrorInsufficientDriver"])

    def test_an_old_driver_is_insufficient(self):
        done, lines, calls = run("linked", FAKE_CUDA_VERSION="12080")
        self.assertEqual(lines, ["launch: cudaErrorInsufficientDriver"])
        self.assertNotIn("cuInit", calls)

    def test_per_thread_default_stream(self):
        done, lines, calls = run("order_per_thread")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(calls.count("cuLaunchKernel_ptsz"), 2)
        self.assertNotIn("cuLaunchKernel", calls)
        self.assertIn("cuMemcpyHtoD_v2_ptds", calls)

    def test_relocatable_device_code_is_linked(self):
        done, lines, calls = run("linked")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(lines, ["launch: cudaSuccess"])
        self.assertEqual(calls.count("cuLinkAddData_v2"), 2)
        self.assertLess(calls.index("cuLinkComplete"), calls.index("cuLibraryLoadData"))


if __name__ == "__main__":
    unittest.main()
