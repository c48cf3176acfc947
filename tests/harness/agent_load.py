"""An agent with many tasks under load: tests/bench/agent_load.cc beside the tasks, and what the agent's process takes meanwhile."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

from softgpu import built, die_with_parent
from stasis_job import Site

GIVE_UP_SECONDS = 300


class AgentSite(Site):
    """A site with an agent on it: `stasisd`, its process; `socket`, its path. `agent_options` go to stasisd."""

    def __init__(self, *options, agent_options=()):
        super().__init__(*options)
        self.agent_options = list(agent_options)
        self.stasisd = None

    def __enter__(self):
        super().__enter__()
        self.socket = os.path.join(self.run_dir, "stasisd.sock")
        self.agent_log = os.path.join(self.folder.name, "stasisd.log")
        try:
            self.start_agent()
        except BaseException:
            super().__exit__()
            raise
        return self

    def start_agent(self):
        with open(self.agent_log, "ab") as log:
            said = log.tell()
            self.stasisd = subprocess.Popen([built("bin/stasisd"), *self.agent_options], env=self.env(), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, preexec_fn=die_with_parent)
        give_up = time.monotonic() + 120
        while '"message":"ready"' not in self.agent_text(said).replace(" ", ""):
            if self.stasisd.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"stasisd did not start: {self.agent_text()}")
            time.sleep(0.05)

    def agent_text(self, start=0):
        with open(self.agent_log, encoding="utf-8") as file:
            file.seek(start)
            return file.read()

    def stop_agent(self):
        self.stasisd.send_signal(signal.SIGTERM)
        return self.stasisd.wait(60)

    def __exit__(self, *_):
        try:
            if self.stasisd.poll() is None:
                self.stop_agent()
        finally:
            super().__exit__()


class Memory:
    """Resident memory of a process, sampled while the block runs. `samples`: (seconds, KiB)."""

    def __init__(self, pid, interval):
        self.pid = pid
        self.interval = interval
        self.samples = []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.sample)

    def resident(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def sample(self):
        start = time.monotonic()
        while not self.end.wait(self.interval):
            self.samples.append((time.monotonic() - start, self.resident()))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()

    def part(self, first, last):
        """The largest sample in a part of the time, as shares of it."""
        count = len(self.samples)
        return max(kib for _, kib in self.samples[int(first * count):max(int(last * count), int(first * count) + 1)])


@contextlib.contextmanager
def empty_server(folder):
    """The path of its socket."""
    socket = os.path.join(folder, "echo.sock")
    server = subprocess.Popen([built("bin/agent_load"), "echo", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              preexec_fn=die_with_parent)
    try:
        assert server.stdout.readline() == "ready\n"
        yield socket
    finally:
        server.stdin.close()
        server.wait(60)
        server.stdout.close()


def start_tasks(site, count):
    """So many tasks that hold a little device memory and wait; their names. Two are started at a time."""
    names = [f"load-{number}" for number in range(count)]
    left = list(reversed(names))
    failures = []

    def start():
        while left and not failures:
            try:
                site.start(left.pop(), built("tests/programs/idle"))
            except (AssertionError, IndexError) as failure:
                failures.append(failure)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return names


def run_load(site, jobs, streams, rate, seconds, changes):
    """What agent_load says, with `memory`: of stasisd, in KiB, before the load, early in it and at its end."""
    with empty_server(site.folder.name) as echo:
        command = [built("bin/agent_load"), "run", site.socket, "--echo", echo, "--streams", str(streams), "--rate", str(rate),
                   "--seconds", str(seconds), "--changes", str(changes), "--jobs", ",".join(jobs)]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        try:
            before = Memory(site.stasisd.pid, 1).resident()
            begun = load.stdout.readline()
            assert begun == "begun\n", begun
            with Memory(site.stasisd.pid, max(seconds / 100, 0.05)) as memory:
                text = load.stdout.read()
                assert load.wait(GIVE_UP_SECONDS) == 0
        finally:
            load.kill()
            load.wait()
            load.stdout.close()
    figures = json.loads(text)
    figures["memory"] = {"before": before, "early": memory.part(0.1, 0.3), "end": memory.part(0.8, 1)}
    return figures
