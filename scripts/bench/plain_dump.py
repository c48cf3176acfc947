"""What a user has without this project: the driver's own checkpoint, and `criu dump` of the process."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from softgpu import built, die_with_parent

CRIU = os.environ["STASIS_CRIU"]


def checked(command, env=None, **options):
    """Milliseconds that the command took."""
    started = time.monotonic()
    result = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stdout[-500:]} {result.stderr[-2000:]}")
    return (time.monotonic() - started) * 1000


def wait_for_line(path, text, process):
    while True:
        with open(path, encoding="utf-8") as file:
            if text in file.read():
                return
        if process.poll() is not None:
            sys.exit(f"the program ended before it printed {text!r}")
        time.sleep(0.01)


def tree_bytes(folder):
    return sum(os.stat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(folder) for name in names)


class PlainProgram:
    """A program without the interposer, in the same kinds of namespaces as a task, until it has printed `line`."""

    def __init__(self, env, command, line):
        self.env = env
        self.folder = tempfile.mkdtemp(prefix="plain-")
        self.log = os.path.join(self.folder, "out")
        with open(self.log, "w", encoding="utf-8") as out:
            self.parent = subprocess.Popen(["unshare", "-p", "-T", "-f", "setsid", *command], env=env, stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        self.wait_for(line)
        with open(f"/proc/{self.parent.pid}/task/{self.parent.pid}/children", encoding="utf-8") as children:
            self.pid = int(children.read().split()[0])

    def wait_for(self, line):
        wait_for_line(self.log, line, self.parent)

    def driver(self, *steps):
        return sum(checked([built("bin/driver_checkpoint"), step, str(self.pid)], self.env) for step in steps)

    def criu(self, verb, images, *options):
        return checked([CRIU, verb, "-D", images, "-o", f"{verb}.log", "--manage-cgroups=ignore", *options], self.env)

    def dump(self, images, *options):
        """The process's images in a new folder. It ends, unless --leave-running is among the options."""
        os.mkdir(images)
        return self.criu("dump", images, "-t", str(self.pid), *options)

    def end(self):
        if self.parent.poll() is None:
            os.kill(self.pid, 9)
            self.parent.wait()
        shutil.rmtree(self.folder)
