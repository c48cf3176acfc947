"""A node of softgpu devices for a test: one softgpud on a socket of its own, ended with the test."""

import ctypes
import json
import os
import signal
import subprocess
import tempfile

import hung

BUILD = os.environ.get("STASIS_BUILD_DIR", "")


def built(path):
    """Path of something the build made; the test fails clearly when it is missing."""
    full = os.path.join(BUILD, path)
    if not BUILD or not os.path.exists(full):
        raise FileNotFoundError(f"{full or path}: set STASIS_BUILD_DIR to a finished build")
    return full


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """For children: a test that is killed at its time limit leaves no process behind."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Node:
    """Starts softgpud on entry and ends it on exit. `options` are its command line options."""

    def __init__(self, *options):
        self.options = options
        self.folder = None
        self.daemon = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="softgpu-test-")
        self.socket = os.path.join(self.folder.name, "d", "softgpud.sock")
        self.log = open(os.path.join(self.folder.name, "softgpud.log"), "w+")
        self.start_daemon()
        return self

    def start_daemon(self):
        read_end, write_end = os.pipe()
        self.daemon = subprocess.Popen(
            self.daemon_command("--ready-fd", str(write_end), *self.options),
            pass_fds=[write_end], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=die_with_parent)
        os.close(write_end)
        started = hung.await_readable(read_end, 120) and os.read(read_end, 1) != b""
        os.close(read_end)
        if not started:
            self.daemon.kill()
            self.daemon.wait()
            self.log.seek(0)
            raise RuntimeError("softgpud did not start: " + self.log.read())

    def daemon_command(self, *arguments):
        return [built("bin/softgpud"), "--socket", self.socket, *arguments]

    def stop_daemon(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            hung.tell_of_test()
            self.daemon.kill()
            self.daemon.wait()
            raise

    def restart(self, *options):
        """Another machine at the same address: every device is new and empty."""
        self.stop_daemon()
        self.options = options
        self.start_daemon()

    def __exit__(self, *_):
        try:
            self.stop_daemon()
        finally:
            self.log.close()
            self.folder.cleanup()

    def env(self, **extra):
        """The environment of a program that is to find this node's devices, and softgpu's libraries."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTGPU_", "CUDA_"))}
        env["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib", "softgpu")
        env["SOFTGPU_SOCKET"] = self.socket
        env["SOFTGPU_AUTOSTART"] = "0"
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def start(self, *command, stdin=subprocess.PIPE, **extra):
        """A program on this node with piped standard streams."""
        return subprocess.Popen(list(command), env=self.env(**extra), stdin=stdin, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def run(self, *command, timeout=120, **extra):
        return hung.run_within(timeout, list(command), env=self.env(**extra), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def smi(self, *arguments):
        return hung.run_within(120, [built("bin/softgpu-smi"), "--socket", self.socket, *arguments], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)

    def devices(self):
        """softgpu-smi's own view: one dictionary a device, with the pids that have a context or memory there."""
        result = self.smi("--json")
        if result.returncode != 0:
            raise RuntimeError("softgpu-smi: " + result.stderr)
        report = json.loads(result.stdout)
        for device in report["devices"]:
            device["pids"] = [process["pid"] for process in report["processes"] for use in process["devices"]
                              if use["index"] == device["index"] and (use["contexts"] or use["memory"])]
        return report["devices"]
