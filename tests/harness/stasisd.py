"""One stasisd with folders of its own, and what it says: its log, its audit, its files."""

import json
import os
import sqlite3
import subprocess
import tempfile
import time

from agents import Agent, built
from softgpu import die_with_parent


class Stasisd:
    """`env`: what is added to the environment. `target`: of its listener besides the unix socket."""

    def __init__(self, *options, env=None):
        self.options = options
        self.env = env or {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-agent-")
        self.state, self.run = (os.path.join(self.folder.name, name) for name in ("state", "run"))
        self.socket = os.path.join(self.run, "stasisd.sock")
        self.log = open(os.path.join(self.folder.name, "log"), "a+", encoding="utf-8")
        self.start()
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
            self.folder.cleanup()

    def own_env(self):
        return {**os.environ, **self.env, "STASIS_STATE_DIR": self.state, "STASIS_RUN_DIR": self.run}

    def start(self):
        told = len(self.lines())
        self.process = subprocess.Popen([built("bin/stasisd"), "--listen", f"unix:{self.socket}", *self.options],
                                        env=self.own_env(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        preexec_fn=die_with_parent)
        ready = self.wait_for(lambda line: line["message"] == "ready", told)
        self.target = next((place for place in ready["listen"] if not place.startswith("unix:")), None)
        self.agent = Agent("unix:" + self.socket)

    def stop(self, seconds=120):
        """As its service manager does. Its exit status."""
        self.agent.close()
        self.process.terminate()
        return self.process.wait(seconds)

    def lines(self):
        with open(self.log.name, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def wait_for(self, wanted, after=0, seconds=120):
        """The first line of the log, of those after the first so many, that is wanted; nothing else tells that one was written."""
        give_up = time.monotonic() + seconds
        while True:
            for line in self.lines()[after:]:
                if wanted(line):
                    return line
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise AssertionError(f"not in the log ({self.process.poll()}):\n" + "\n".join(map(str, self.lines()[-30:])))
            time.sleep(0.02)

    def refused(self, **fields):
        """The line of the audit that has these fields."""
        return self.wait_for(lambda line: line["component"] == "audit" and line["message"] == "refused" and
                             all(line.get(name) == value for name, value in fields.items()))

    def audit(self):
        with sqlite3.connect(f"file:{self.state}/agent.db?mode=ro", uri=True) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM audit ORDER BY id")]

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return file.read().split()

    def jobs_on_disk(self):
        found = []
        for place in ("tasks", "jobs"):
            folder = os.path.join(self.state, place)
            found += os.listdir(folder) if os.path.isdir(folder) else []
        return found
