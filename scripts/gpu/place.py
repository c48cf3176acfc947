"""Where the check runs: the tree or bundle, the device and its libraries, and how programs are started on it."""

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DRIVER_FOLDERS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/lib", "/lib64", "/lib",
                  "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"]
LIBRARIES = ["libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libnccl.so.2"]
RUNTIME_VERSION = 13000  # of CUDA, by which the samples are built


class Failed(Exception):
    """A step has failed; the sentence that says why."""


class Absent(Exception):
    """Something that the step needs is not on this machine; the sentence that says what."""


class FailedAlone(Absent):
    """What the step compares with does not run without stasis either; the sentence that says how it failed."""


def run(command, limit, env=None, check=True):
    """The finished process; Failed when it does not end in time, or, with `check`, not well."""
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{os.path.basename(command[0])} has not ended after {limit:g} s") from None
    except OSError as error:
        raise Absent(f"{command[0]}: {error.strerror}") from None
    if check and done.returncode != 0:
        said = (done.stderr + done.stdout).strip()[-600:]
        lacking = re.search(r"error while loading shared libraries: (\S+?):", said)
        if lacking:
            raise Absent(f"{lacking[1]} is not on this machine")
        raise Failed(f"{os.path.basename(command[0])} ended with {done.returncode}: {said}")
    return done


def first_file(folders, name):
    return next((path for path in (os.path.join(folder, name) for folder in folders) if os.path.isfile(path)), None)


class Place:
    """Folders and environments. `kind`: nvidia or softgpu."""

    def __init__(self, kind, build, criu):
        self.kind, self.build, self.criu = kind, build, criu
        self.soft = kind == "softgpu"
        self.gpus = 2 if self.soft else 1  # until look()
        self.daemon = None
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-gpu-check-")
        self.work = self.folder.name
        self.driver = self.built("lib/softgpu/libcuda.so.1") if self.soft else self._find_driver()
        self.libraries = [self.built("lib/softgpu")] if self.soft else self._find_libraries()
        self.loader_knows_driver = not self.soft and self._loads_driver()
        self.seen = None

    def __enter__(self):
        if self.soft:
            self._start_daemon()
        return self

    def __exit__(self, *_):
        try:
            self._end_tasks()
        finally:
            if self.daemon:
                self.daemon.terminate()
                self.daemon.wait(20)
            self.folder.cleanup()

    def built(self, path):
        full = os.path.join(self.build, path)
        if not os.path.exists(full):
            raise Absent(f"{full} is not built")
        return full

    def _find_driver(self):
        folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") + DRIVER_FOLDERS
        return first_file([folder for folder in folders if folder.startswith("/")], "libcuda.so.1")

    def _find_libraries(self):
        """Folders of the toolkit and of Python's packages that hold a library which the samples are linked with; the bundle's own
        runtime is the last."""
        found = []
        folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        folders += [os.path.join(root, lib) for root in [os.environ.get("CUDA_HOME", "/usr/local/cuda"), *glob.glob("/usr/local/cuda-13*")]
                    for lib in ("lib64", "lib")]
        for site in {path for path in sys.path if path.endswith("-packages")} | set(self._python_sites()):
            folders += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
        folders += ["/usr/lib/x86_64-linux-gnu", os.path.join(ROOT, "runtime")]
        for name in LIBRARIES:
            path = first_file([folder for folder in folders if folder], name)
            # Those of the system are found without being told.
            if path and os.path.dirname(path) != "/usr/lib/x86_64-linux-gnu" and os.path.dirname(path) not in found:
                found.append(os.path.dirname(path))
        return found

    @staticmethod
    def _loads_driver():
        """Whether the loader finds the driver by itself."""
        env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        return subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False).returncode == 0

    def look(self):
        """What the driver says of itself and of its devices."""
        if self.seen is None:
            self.seen = self.look_again()
            self.gpus = len(self.seen["devices"])
        return self.seen

    def look_again(self):
        """The same, asked now: Failed where the driver answers no more."""
        return json.loads(run([sys.executable, os.path.join(ROOT, "scripts", "gpu", "look.py"), self.driver], 120, self.env()).stdout)

    def need_runtime(self):
        """Absent where the samples cannot run as the driver is too old for the runtime that they were built with."""
        version = self.look()["version"]
        if version < RUNTIME_VERSION:
            raise Absent(f"the samples are built by CUDA {RUNTIME_VERSION // 1000}.0, which needs a driver of release 580 or newer; this one is "
                         f"of CUDA {version // 1000}.{version % 1000 // 10}")

    @property
    def can_move(self):
        """Whether a task can go from device 0 to device 1: both are of one chip, and the driver moves its own checkpoints."""
        devices = self.look()["devices"]
        return len(devices) > 1 and devices[0]["name"] == devices[1]["name"] and (self.soft or self.look()["version"] >= 13000)

    @staticmethod
    def _python_sites():
        python = shutil.which(os.environ.get("GPU_CHECK_PYTHON", "python3"))
        if not python:
            return []
        done = subprocess.run([python, "-c", "import sys; print('\\n'.join(sys.path))"], capture_output=True, text=True, check=False)
        return [line for line in done.stdout.split() if line.endswith("-packages")]

    def _start_daemon(self):
        read_end, write_end = os.pipe()
        self.socket = os.path.join(self.work, "node", "softgpud.sock")
        with open(os.path.join(self.work, "softgpud.log"), "wb") as log:
            self.daemon = subprocess.Popen([self.built("bin/softgpud"), "--socket", self.socket, "--gpus", str(self.gpus), "--memory",
                                            "1GiB", "--ready-fd", str(write_end)], pass_fds=[write_end], stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        os.close(write_end)
        with open(read_end, "rb") as ready:
            if not ready.read(1):
                raise Failed("softgpud did not start")

    def env(self, libraries=True):
        """Of a program without stasis. `libraries`: with those that the samples are linked with; PyTorch brings its own."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTGPU_", "STASIS_"))}
        folders = self.libraries if libraries else []
        if not self.soft:
            # The driver's folder last, where the loader does not know it: there may be other versions of what PyTorch brings in it.
            folders = [*folders, env.get("LD_LIBRARY_PATH", ""), "" if self.loader_knows_driver else os.path.dirname(self.driver or "")]
        env["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
        if not env["LD_LIBRARY_PATH"]:
            del env["LD_LIBRARY_PATH"]
        if self.soft:
            env.update(SOFTGPU_SOCKET=self.socket, SOFTGPU_AUTOSTART="0")
        return env

    def stasis_env(self, libraries=True):
        """Of `stasis`, and through it of its tasks."""
        env = self.env(libraries)
        if self.soft:
            env.pop("LD_LIBRARY_PATH", None)  # `stasis run` brings its own
        env.update(STASIS_STATE_DIR=os.path.join(self.work, "state"), STASIS_RUN_DIR=os.path.join(self.work, "run"))
        if self.criu:
            env["STASIS_CRIU"] = self.criu
        return env

    def shim_env(self, name):
        """Of a program with the interposer alone, as `stasis run` sets it up."""
        folder = os.path.join(self.work, "shim-" + name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return dict(self.env(), LD_PRELOAD=self.built("lib/libstasis.so"), STASIS_DRIVER=self.driver, STASIS_TASK=folder)

    @property
    def stasis(self):
        return self.built("bin/stasis")

    @property
    def run_options(self):
        return ["--device", "soft" if self.soft else "nvidia"]

    def doctor(self):
        """The answer of `stasis doctor`, whatever it says."""
        done = run([self.stasis, "doctor", "--json"], 120, self.stasis_env(), check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Failed(f"stasis doctor: {(done.stdout + done.stderr)[-600:]}") from None

    def _end_tasks(self):
        """What a failed step has left."""
        tasks = os.path.join(self.work, "state", "tasks")
        for name in os.listdir(tasks) if os.path.isdir(tasks) else []:
            # The driver may have brought it back: see run_cycle.Task.let_go().
            for command in (["pause", name], ["cancel", "--quiet", "--grace", "1ms", name]):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run([self.stasis, *command], env=self.stasis_env(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                                   check=False)
