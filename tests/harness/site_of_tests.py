"""Folders and a node of software devices in which a test uses `stasis`, alone or through an agent."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

import hung
from softgpu import Node, built, die_with_parent

STASIS = built("bin/stasis")
SECONDS = 120
# Every site has an agent: what is tested of the command holds through one, too.
THROUGH_AGENT = os.environ.get("STASIS_TEST_AGENT") == "1"


class Command:
    """A `stasis` that runs, with its output read as it comes."""

    def __init__(self, site, *arguments, **environment):
        self.process = subprocess.Popen(site.as_user([STASIS, *arguments]), env=site.env(**environment), cwd=site.work, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent)

    def line(self):
        if not select.select([self.process.stdout], [], [], SECONDS)[0]:
            raise AssertionError("no line of output")
        return self.process.stdout.readline().decode()

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self):
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out.decode(), err.decode()


class Site:
    """Folders and a softgpu node for one test. Another `user` gets a daemon that starts by itself and ends unused; with
    `agent` a stasisd carries the verbs out."""

    def __init__(self, user=None, gpus=1, agent=THROUGH_AGENT):
        self.node = Node("--memory", "256MiB", "--gpus", str(gpus))
        self.user = user
        self.wants_agent = agent
        self.agent = None

    def __enter__(self):
        self.node.__enter__()
        self.folder = tempfile.mkdtemp(prefix="stasis-cli-")
        self.state = os.path.join(self.folder, "state")
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.work)
        if self.user is not None:
            os.chown(self.folder, self.user, self.user)
            os.chown(self.work, self.user, self.user)
        if self.wants_agent:
            self.start_agent()
        return self

    def start_agent(self):
        """Until it answers."""
        command = self.as_user([built("bin/stasisd"), "--node-name", "here"])
        self.agent_log = open(os.path.join(self.folder, "stasisd.log"), "a+b")
        self.agent = subprocess.Popen(command, env=self.env(), stdin=subprocess.DEVNULL, stdout=self.agent_log,
                                      stderr=self.agent_log, preexec_fn=die_with_parent)
        give_up = time.monotonic() + SECONDS
        while self.call("ops", "ls")[0] != 0:
            if self.agent.poll() is not None or time.monotonic() > give_up:
                raise AssertionError("stasisd does not answer: " + self.agent_words())
            time.sleep(0.05)

    def agent_words(self):
        self.agent_log.seek(0)
        return self.agent_log.read().decode()

    def stop_agent(self):
        self.agent.terminate()
        self.agent.wait(SECONDS)
        self.agent_log.close()
        self.agent = None

    def __exit__(self, *_):
        for task in self.json("ps")[1]["tasks"]:
            end_task(task)
        if self.agent:
            self.stop_agent()
        self.await_ghosts()
        self.node.__exit__()
        shutil.rmtree(self.folder)

    def await_ghosts(self):
        """They still write down what has become of their tasks, in folders that are about to go."""
        give_up = time.monotonic() + SECONDS
        while left := [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self.is_ghost(hung.read(f"/proc/{pid}/cmdline"))]:
            if time.monotonic() > give_up:
                raise AssertionError(f"ghosts do not leave: {left}")
            time.sleep(0.02)  # nothing tells when a process of nobody's has ended

    def is_ghost(self, command):
        return "stasis-ghost" in command.split(" ")[0] and self.folder in command

    def env(self, **extra):
        env = self.node.env()
        del env["LD_LIBRARY_PATH"]
        env.update(STASIS_STATE_DIR=self.state, STASIS_RUN_DIR=os.path.join(self.folder, "run"), HOME=self.work)
        if self.user is not None:
            env.update(SOFTGPU_SOCKET=os.path.join(self.folder, "node", "softgpud.sock"), SOFTGPU_AUTOSTART="1",
                       SOFTGPU_IDLE_EXIT="5")
        env.update(extra)
        return env

    def as_user(self, command):
        if self.user is None:
            return command
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", *command]

    def start(self, *arguments, **extra):
        return Command(self, *arguments, **extra)

    def call(self, *arguments, **extra):
        return self.start(*arguments, **extra).finish()

    def json(self, verb, *arguments, **extra):
        """(exit code, document)"""
        # Of a verb of several, it is the second word that has the option.
        words = (verb, arguments[0]) if verb in ("ops", "schedule", "images") else (verb,)
        code, out, _ = self.call(*words, "--json", *arguments[len(words) - 1:], **extra)
        return code, json.loads(out)

    def task(self, name, file):
        with open(os.path.join(self.state, "tasks", name, file), encoding="utf-8") as text:
            return json.load(text) if file.endswith(".json") else text.read()

    def listed(self, name):
        entries = [entry for entry in self.json("ps", "--all")[1]["tasks"] if entry["name"] == name]
        return entries[0] if entries else None


def end_task(task):
    """SIGKILL for a task of this test, and the wait for its end."""
    try:
        init = os.pidfd_open(task["init_pid"])
    except ProcessLookupError:
        return
    for pid in (task["pid"], task["init_pid"]):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    select.select([init], [], [], SECONDS)
    os.close(init)
