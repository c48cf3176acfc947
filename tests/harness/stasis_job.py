"""Tasks under `stasis`, as a user starts and handles them, on softgpu devices of their own."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time

import hung
from softgpu import BUILD, Node, built, die_with_parent

GIVE_UP_SECONDS = 240


class VerbFailed(AssertionError):
    """A verb that was to succeed did not; `answer` is what it printed as JSON."""

    def __init__(self, command, answer, stderr):
        super().__init__(f"stasis {' '.join(command)}: {json.dumps(answer, indent=1)}\n{stderr}")
        self.answer = answer


class Site:
    """A softgpu node with state and run folders of its own, and `stasis` on it. `options` go to softgpud; with `beside`, another
    site, folders of its own on that one's node."""

    def __init__(self, *options, beside=None):
        self.node = beside.node if beside else Node(*options)
        self.owns_node = beside is None
        self.folder = None

    def __enter__(self):
        if self.owns_node:
            self.node.__enter__()
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-test-")
        self.state = os.path.join(self.folder.name, "state")
        self.run_dir = os.path.join(self.folder.name, "run")
        return self

    def __exit__(self, *_):
        try:
            for job in self.jobs():
                if job["live"]:
                    self.call("cancel", job["name"])
                for rank in job["ranks"]:
                    Job(self, rank["name"]).wait_for_ghost_to_leave()
            for task in self.tasks():
                if task.get("state") not in ("ended", "failed"):
                    self.call("cancel", task["name"])
                # It may still collect what is of no use in the store.
                Job(self, task["name"]).wait_for_ghost_to_leave()
        finally:
            if self.owns_node:
                self.node.__exit__()
            self.folder.cleanup()

    def rest(self, program=""):
        """A program of samples/ranks that is started with this in its environment rests between its steps until hurry()."""
        return {"PACE_UNTIL": os.path.join(self.folder.name, f"hurry{program}")}

    def hurry(self, program=""):
        with open(self.rest(program)["PACE_UNTIL"], "x", encoding="utf-8"):
            pass

    def env(self, **extra):
        env = self.node.env(**extra)
        del env["LD_LIBRARY_PATH"]  # `stasis run` brings its own
        env.update(STASIS_STATE_DIR=self.state, STASIS_RUN_DIR=self.run_dir)
        if os.environ.get("STASIS_CRIU") and "STASIS_CRIU" not in extra:
            env["STASIS_CRIU"] = os.environ["STASIS_CRIU"]
        return env

    def call(self, *arguments, timeout=GIVE_UP_SECONDS, **extra):
        """One verb with --json: (exit status, its answer, its stderr)."""
        verb, rest = arguments[0], [str(a) for a in arguments[1:]]
        result = hung.run_within(timeout, [built("bin/stasis"), verb, "--json", *rest], env=self.env(**extra),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=die_with_parent)
        try:
            answer = json.loads(result.stdout)
        except ValueError:
            raise AssertionError(f"stasis {verb}: no JSON on stdout: {result.stdout!r}\n{result.stderr}") from None
        return result.returncode, answer, result.stderr

    def ok(self, *arguments, **extra):
        status, answer, stderr = self.call(*arguments, **extra)
        if status != 0:
            raise VerbFailed([str(a) for a in arguments], answer, stderr)
        return answer

    def images(self, verb, *arguments):
        """`stasis images VERB`: its answer."""
        command = ["images", verb, "--json", *map(str, arguments)]
        result = hung.run_within(GIVE_UP_SECONDS, [built("bin/stasis"), *command], env=self.env(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if result.returncode != 0:
            raise VerbFailed(command, json.loads(result.stdout), result.stderr)
        return json.loads(result.stdout)

    def collect(self):
        """`stasis images gc`, after any ghost that does the same on its way out; nothing tells when that is done."""
        while True:
            try:
                return self.images("gc")
            except VerbFailed as failed:
                if "another collector" not in failed.answer["message"]:
                    raise
                time.sleep(0.02)

    def image_names(self, task):
        """The files of a task's images in the store, committed or not."""
        folder = os.path.join(self.state, "store", "images", task)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def memory_in_the_end(self):
        """Device memory in use once everybody has let go, or after a minute: a guardian ends after its ghost."""
        give_up = time.monotonic() + 60
        while True:
            used = [device["memory_used"] for device in self.node.devices()]
            if not any(used) or time.monotonic() > give_up:
                return used

    def tasks(self):
        answer = self.ok("ps", "--all")
        return answer["tasks"] if isinstance(answer, dict) else answer

    def jobs(self):
        """Jobs of several ranks, each with its ranks."""
        return self.ok("ps", "--all")["jobs"]

    def start(self, name, *program, options=(), **extra):
        """Starts a detached task."""
        self.ok("run", "--detach", "--name", name, "--device", "soft", *options, "--", *program, **extra)
        return Job(self, name)


class Job:
    def __init__(self, site, name):
        self.site = site
        self.name = name

    def path(self, name):
        return os.path.join(self.site.state, "tasks", self.name, name)

    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def output(self):
        with open(self.path("output.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def process(self):
        return self.read_json("process.json")

    def verb(self, verb, *arguments, **extra):
        return self.site.ok(verb, self.name, *arguments, **extra)

    def refused(self, verb, *arguments, **extra):
        """A verb that must fail: (exit status, its answer)."""
        status, answer, stderr = self.site.call(verb, self.name, *arguments, **extra)
        if status == 0:
            raise AssertionError(f"stasis {verb} {self.name} succeeded: {answer}\n{stderr}")
        return status, answer

    def alive(self):
        try:
            process = self.process()
            with open(f"/proc/{process['init_pid']}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            return False
        return fields[0] not in "ZX" and int(fields[19]) == process["init_start_time"]

    def wait(self, timeout=GIVE_UP_SECONDS):
        """Waits for the end of the task; its exit status, or minus the signal that ended it."""
        process = self.process()
        try:
            pidfd = os.pidfd_open(process["init_pid"])
        except ProcessLookupError:
            pidfd = None
        if pidfd is not None:
            try:
                if self.alive() and not hung.await_readable(pidfd, timeout):
                    raise AssertionError(f"{self.name} still runs after {timeout} s:\n{self.output()[-2000:]}")
            finally:
                os.close(pidfd)
        try:
            end = self.read_json("exit.json")
        except FileNotFoundError:
            return -signal.SIGKILL
        return -end["signal"] if end.get("signal") else end["exit_code"]

    def wait_for_restore(self, restore):
        """Until the task that the process `restore` restores runs on by itself."""
        while not (self.alive() and self.read_json("status.json")["state"] == "running"):
            if restore.poll() is not None:
                raise AssertionError(f"stasis restore ended with {restore.returncode}: {restore.stderr.read()}")
            time.sleep(0.01)  # nobody else is told, and the processor is for those that restore

    def wait_for_ghost_to_leave(self, timeout=GIVE_UP_SECONDS):
        """The ghost of an earlier verb may still be on its way out, and would serve the next one."""
        # A guardian may just be becoming the ghost; that one has written its own number when it no longer serves.
        for lock in ("guard.lock", "ghost.sock.lock"):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.site.run_dir, "tasks", self.name, lock), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            ghost = self.read_json("status.json")["ghost_pid"]
            pidfd = os.pidfd_open(ghost)
        except (FileNotFoundError, ProcessLookupError, KeyError):
            return
        try:
            # The number may be somebody else's by now, or nobody's.
            if "stasis-ghost" not in hung.read(f"/proc/{ghost}/cmdline"):
                return
            if not hung.await_readable(pidfd, timeout):
                raise AssertionError(f"the ghost of {self.name} is still there after {timeout} s")
        finally:
            os.close(pidfd)

    def kill(self):
        """kill -9 of the program, as the out-of-memory killer would."""
        os.kill(self.process()["pid"], signal.SIGKILL)
        self.wait()

    def wait_for_output(self, text, timeout=GIVE_UP_SECONDS):
        """Follows the log until it holds `text`."""
        follow = subprocess.Popen([built("bin/stasis"), "logs", "-f", self.name], env=self.site.env(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        seen = b""
        try:
            while text.encode() not in seen:
                if not hung.await_readable(follow.stdout, timeout):
                    raise AssertionError(f"{self.name} has not printed {text!r} after {timeout} s:\n{seen[-2000:]!r}")
                chunk = os.read(follow.stdout.fileno(), 65536)
                if not chunk:
                    raise AssertionError(f"{self.name} ended without printing {text!r}:\n{seen[-2000:]!r}")
                seen += chunk
        finally:
            follow.kill()
            follow.wait()
            follow.stdout.close()


__all__ = ["BUILD", "Job", "Site", "VerbFailed", "built"]
