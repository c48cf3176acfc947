"""The same verbs by `stasis` itself and through an agent: the same exit codes, documents, and words for people."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from site_of_tests import SECONDS, STASIS, Site
from softgpu import built, die_with_parent

COUNTER = built("samples/counter")

# What is another number each time; that it is there, and a number, is compared.
# So is the rank that ended first of those that are all told to end.
MEASURED = re.compile(r"(_ms|pid|created|^failed_rank|^extents|_bytes|^bytes|master_port|log_length)$")
TIMES = re.compile(r"\b\d+(\.\d+)? (ms|s|min|h|B|KiB|MiB|GiB)\b|\b\d+ (s|min)\b")
SHELL = ["--", "/bin/sh", "-c"]


def without_measures(value, key=""):
    """The document with the site's folder and measured values replaced."""
    if isinstance(value, dict):
        return {name: without_measures(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [without_measures(entry, key) for entry in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and MEASURED.search(key):
        return "number"
    return value


class Recorder:
    """Does verbs on a site, and keeps what each said."""

    def __init__(self, site):
        self.site = site
        self.said = []

    def plain(self, text):
        text = text.replace(self.site.folder, "FOLDER").replace(self.site.node.folder.name, "NODE")
        text = TIMES.sub("TIME", text)
        text = re.sub(r"stasis-(cli|site)-\w+", "SITE", text)
        return re.sub(r" {2,}", "  ", re.sub(r"\b\d{3,}\b", "N", text))

    def json(self, verb, *arguments, **extra):
        code, document = self.site.json(verb, *arguments, **extra)
        text = repr(without_measures(document))
        self.said.append((verb, arguments, code, self.plain(text)))
        return document

    def text(self, verb, *arguments):
        code, out, err = self.site.call(verb, *arguments)
        if verb == "run" and "--ranks" in arguments:  # which of two ranks is first is chance
            out = "".join(sorted(out.splitlines(keepends=True)))
        # Phases come as events do; how many of them are seen in time is nothing that is promised.
        notes = [line for line in err.splitlines() if not re.fullmatch(r"stasis: [a-z ,-]+", line)]
        self.said.append((verb, arguments, code, self.plain(out), self.plain("\n".join(notes))))
        return code, out, err


def follow_and_signal(recorder, number):
    """A program in the foreground that ends by itself when it is told to."""
    # A shell that says which of its children were ended says it when it likes.
    script = "exec 2>/dev/null; trap 'echo told; exit 5' INT TERM; echo ready; while :; do sleep 0.05; done"
    command = recorder.site.start("run", "--name", "asked", *SHELL, script)
    ready = command.line()
    command.signal(number)
    code, out, _ = command.finish()
    recorder.said.append(("signal", number, code, ready, out))


def await_managed(site, name):
    """Until the program has met the driver, which comes some time after its start, and is known to have."""
    give_up = time.monotonic() + SECONDS
    while not site.json("ps", name)[1]["tasks"][0]["managed"]:
        if time.monotonic() > give_up:
            raise AssertionError(f"{name} never called the driver")
        time.sleep(0.02)


def tasks(recorder):
    do = recorder
    do.json("ps")
    do.json("run", "-d", "--name", "t", "--gpus", "0", "--", COUNTER)
    await_managed(do.site, "t")
    do.json("ps")
    do.json("run", "-d", "--name", "t", "--", COUNTER)
    do.text("pause", "t")
    do.json("pause", "t")
    do.text("ps", "t")
    do.json("resume", "t")
    do.json("resume", "t")
    do.json("pause", "t", "--residency", "host")
    do.json("ps", "t")
    do.json("resume", "t")
    do.json("migrate", "t", "--gpus", "1")
    do.json("migrate", "t", "--gpus", "1")
    do.json("migrate", "t", "--gpus", "7")
    do.json("pause", "t", "--attempts", "2")
    do.json("rm", "t")
    do.json("cancel", "t")
    do.json("cancel", "t")
    do.json("pause", "t")
    do.json("ps", "--all")
    do.text("rm", "t")
    for verb in ("rm", "pause", "logs", "cancel", "ps", "restore"):
        do.json(verb, "t")
        do.json(verb, "../t")


def images(recorder):
    do = recorder
    do.text("run", "-d", "--name", "t", "--", COUNTER)
    do.json("checkpoint", "t")
    do.json("restore", "t")
    do.json("checkpoint", "t", "--stop")
    do.json("ps")
    do.json("checkpoint", "t")
    do.json("restore", "t/000009")
    do.json("restore", "-d", "t")
    do.json("restore", "-d", "t")
    do.json("cancel", "t")
    do.json("rm", "t")


def programs(recorder):
    do = recorder
    do.json("run", "--", "no-such-program")
    do.json("run", "--", "/etc/passwd")
    do.json("run", "--", "./missing")
    do.json("run", "--gpus", "9", "--", COUNTER)
    do.text("run", "--name", "out", *SHELL, "echo out; echo err >&2; exit 7")
    do.json("run", "--name", "out-2", *SHELL, "echo out; exit 7")
    do.text("run", "--name", "killed", *SHELL, "kill -9 $$")
    do.json("run", "--name", "killed-2", *SHELL, "kill -9 $$")
    do.text("run", "--name", "environment", "--env", "GREETING=hello", *SHELL, "echo $GREETING; pwd")
    do.text("logs", "out")
    do.json("logs", "out")
    do.text("logs", "-f", "out")
    do.text("ps", "--all")
    follow_and_signal(recorder, signal.SIGINT)
    follow_and_signal(recorder, signal.SIGTERM) if do.json("rm", "asked") else None


def ranks(recorder):
    do = recorder
    do.json("run", "-d", "--ranks", "2", "--name", "job", *SHELL, f"exec {COUNTER}")
    for rank in ("job.0", "job.1"):
        await_managed(do.site, rank)
    do.json("ps")
    do.text("ps", "--ranks")
    do.json("ps", "job.1")
    do.json("pause", "job.1")
    do.json("pause", "job")
    do.json("pause", "job")
    do.json("resume", "job")
    do.json("rm", "job")
    do.json("cancel", "job")
    do.json("ps", "--all")
    do.json("rm", "job.0")
    do.json("rm", "job")
    do.text("run", "--ranks", "2", "--name", "both", *SHELL, "echo rank $RANK of $WORLD_SIZE")
    do.text("logs", "both")
    do.json("logs", "both")
    do.text("logs", "both.1")
    do.text("run", "--ranks", "2", "--name", "broken", *SHELL, "test $RANK = 0 && exec sleep 100; exit 3")
    do.json("run", "--ranks", "2", "--name", "broken-2", *SHELL, "test $RANK = 0 && exec sleep 100; exit 3")


class Screen:
    """`stasis` on a terminal of its own."""

    def __init__(self, site, *arguments):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.process = subprocess.Popen([STASIS, *arguments], env=site.env(TERM="xterm"), stdin=theirs, stdout=theirs,
                                        stderr=theirs, preexec_fn=die_with_parent)
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text):
        while text not in self.seen:
            self.read()

    def read(self):
        if not select.select([self.ours], [], [], SECONDS)[0]:
            raise AssertionError("nothing new on the screen: " + self.seen)
        try:
            self.seen += os.read(self.ours, 65536).decode(errors="replace")
        except OSError as error:  # as Linux tells that the other side is closed
            raise AssertionError("it has ended: " + self.seen) from error

    def type(self, keys):
        os.write(self.ours, keys.encode())

    def finish(self):
        """A terminal that nobody reads would hold it."""
        while self.process.poll() is None:
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    os.read(self.ours, 65536)
                except OSError:
                    break
        os.close(self.ours)
        return self.process.wait(SECONDS)


class SameEitherWay(unittest.TestCase):
    maxDiff = None

    def compare(self, scenario):
        said = []
        for agent in (False, True):
            with Site(gpus=2, agent=agent) as site:
                recorder = Recorder(site)
                scenario(recorder)
                said.append(recorder.said)
                if agent:
                    self.assertGreater(len(site.json("ops", "ls", "--limit", "1000")[1]["operations"]), 0)
        for alone, through in zip(*said):
            self.assertEqual(alone, through)

    def test_tasks(self):
        self.compare(tasks)

    def test_images(self):
        self.compare(images)

    def test_programs(self):
        self.compare(programs)

    def test_ranks(self):
        self.compare(ranks)


class OfTheAgent(unittest.TestCase):
    def setUp(self):
        self.site = Site(agent=True)
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def run_counter(self, name="t"):
        code, _ = self.site.json("run", "-d", "--name", name, "--", COUNTER)
        self.assertEqual(code, 0)

    def test_operations_are_listed_and_shown_with_where_their_time_went(self):
        self.run_counter()
        self.assertEqual(self.site.json("pause", "t")[0], 0)
        operations = self.site.json("ops", "ls", "t")[1]["operations"]
        self.assertEqual([entry["verb"] for entry in operations], ["pause", "run"])
        code, shown = self.site.json("ops", "show", operations[0]["id"])
        self.assertEqual(code, 0)
        self.assertEqual(shown["operation"]["result"]["ok"], True)
        self.assertTrue(shown["operation"]["spans"])
        code, text, _ = self.site.call("ops", "show", operations[0]["id"])
        self.assertIn("|", text)
        self.assertEqual(self.site.json("ops", "show", "op-999999")[0], 3)
        self.assertEqual(self.site.json("ops", "cancel", operations[0]["id"])[0] in (0, 4), True)
        completed = self.site.call("complete-operations")[1].split()
        self.assertIn(operations[0]["id"], completed)

    def test_what_only_one_of_them_can_is_said(self):
        places = os.path.join(self.site.work, "nodes.json")
        with open(places, "w", encoding="utf-8") as file:
            file.write('[{"name": "n0", "ranks": 1}]')
        local = f"unix:{self.site.folder}/run/stasisd.sock"
        code, document = self.site.json("run", "-d", "--node", local, "--nodes", places, "--", COUNTER)
        self.assertEqual((code, document["code"]), (6, "UNSUPPORTED"))
        self.assertIn("--embedded", document["remedy"])
        self.assertEqual(self.site.json("ops", "ls", "--embedded")[0], 10)
        code, document = self.site.json("ps", "--node", "unix:/nowhere/stasisd.sock")
        self.assertEqual((code, document["code"]), (10, "UNAVAILABLE"))
        self.assertEqual(self.site.json("ps", "--node", "what is that")[0], 2)
        self.assertEqual(self.site.json("ps", STASIS_NODE="unix:/nowhere/stasisd.sock")[0], 10)

    def test_a_command_that_is_killed_leaves_the_task_running(self):
        command = self.site.start("run", "--name", "t", *SHELL, "echo ready; exec sleep 1000")
        self.assertEqual(command.line(), "ready\n")
        command.signal(signal.SIGKILL)
        command.process.wait(SECONDS)
        self.assertEqual(self.site.json("ps", "t")[1]["tasks"][0]["state"], "running")

    def test_top_tells_once_without_a_terminal(self):
        self.run_counter()
        code, document = self.site.json("top")
        self.assertEqual(code, 0)
        node = document["nodes"][0]
        self.assertEqual((node["error"], node["name"], node["tasks"][0]["name"]), ("", "here", "t"))
        self.assertEqual(len(node["devices"]), 1)
        text = self.site.call("top")[1]
        for word in ("NODE", "here", "OPERATION", "run"):
            self.assertIn(word, text)

    def test_top_on_a_terminal(self):
        self.run_counter()
        screen = Screen(self.site, "top")
        screen.wait_for("running")
        screen.type("\t\tjk ")
        screen.wait_for("stopped")
        screen.type("q")
        self.assertEqual(screen.finish(), 0)

    def test_schedules(self):
        self.run_counter()
        code, document = self.site.json("schedule", "set", "t", "--every", "1h", "--keep", "2")
        self.assertEqual((code, document["schedule"]["interval_ms"]), (0, 3600000), document)
        listed = self.site.json("schedule", "ls")[1]["schedules"]
        self.assertEqual([(entry["job"], entry["keep_last"]) for entry in listed], [("t", 2)])
        self.assertIn("every 1h", self.site.call("schedule", "ls", "t")[1])
        self.assertEqual(self.site.json("schedule", "rm", "t")[0], 0)
        self.assertEqual(self.site.json("schedule", "ls")[1]["schedules"], [])
        code, document = self.site.json("schedule", "set", "t", "--cron", "not cron")
        self.assertEqual((code, document["code"]), (2, "INVALID_ARGUMENT"))


if __name__ == "__main__":
    unittest.main()
