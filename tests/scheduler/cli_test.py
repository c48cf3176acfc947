"""The verbs of the scheduler against a stasis-schedd with an agent, as a user types them."""

import contextlib
import json
import os
import subprocess
import unittest

import hung
from agents import AgentNodes
from schedd import Schedd
from softgpu import built, die_with_parent

VECTOR = [built("samples/vector"), "--elements", str(1 << 12)]
LONG = [*VECTOR, "--rounds", "1000", "--pace-ms", "1000"]  # until it is hurried, or cancelled


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(s=["--gpus", "1"], a=["--gpus", "2", "--memory", "256MiB"])
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)
        cls.schedd = Schedd(cls.nodes, "s", "--lease", "1h", "--checkpoint-interval", "0")
        cls.schedd.__enter__()
        cls.addClassCleanup(cls.schedd.__exit__, None, None, None)
        cls.nodes["a"].start_agent("--join", f"{cls.nodes['s'].address}:{Schedd.PORT}")
        cls.schedd.wait(lambda: cls.schedd.node("a"))
        code, document, _ = cls.stasis("tenants", "set", "red", "2")
        assert (code, document["tenant"]["weight"]) == (0, 2), document

    @classmethod
    def start(cls, verb, *arguments, through=(), **variables):
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": cls.nodes["a"].socket, "SOFTGPU_AUTOSTART": "0",
               "STASIS_SCHEDULER": "unix:" + cls.schedd.socket, "STASIS_TENANT": "red", **variables}
        return subprocess.Popen([*through, built("bin/stasis"), verb, *arguments], env=env, cwd="/", text=True,
                                preexec_fn=die_with_parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    @classmethod
    @contextlib.contextmanager
    def running(cls, verb, *arguments, **options):
        """It is waited for, unless what is done meanwhile fails: then nothing might end it."""
        with cls.start(verb, *arguments, **options) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    @classmethod
    def stasis(cls, verb, *arguments, **options):
        """(exit status, document, standard error)."""
        with cls.running(verb, "--json", *arguments, **options) as process:
            out, errors = process.communicate(timeout=120)
        return process.returncode, json.loads(out), errors

    @classmethod
    def words(cls, verb, *arguments, **options):
        """The same for people: (exit status, standard output, standard error)."""
        with cls.running(verb, *arguments, **options) as process:
            out, errors = process.communicate(timeout=120)
        return process.returncode, out, errors

    def as_role(self, role, verb, *arguments):
        """verb(*arguments) over the network, by who has a certificate of that role."""
        certificate, key = self.nodes.certificates.make(role, f"stasis-{role}")
        return verb(*arguments, through=self.nodes["a"].through, STASIS_SCHEDULER=self.schedd.address,
                    STASIS_TLS_CA=self.nodes.certificates.path("ca.pem"), STASIS_TLS_CERT=certificate, STASIS_TLS_KEY=key)

    def submit(self, name, *options, program=tuple(LONG)):
        code, document, errors = self.stasis("submit", "--name", name, *options, "--", *program)
        self.assertEqual(code, 0, errors)
        self.assertEqual(document["job"]["name"], name)

    def test_waiting_ends_as_the_program_does(self):
        code, text, errors = self.words("submit", "--name", "well", "--wait", "--", *VECTOR, "--rounds", "2")
        self.assertEqual(code, 0, errors)
        self.assertIn("started on a", errors)
        self.assertEqual(text, "")
        code, document, errors = self.stasis("submit", "--wait", "--", "/bin/sh", "-c", "exit 3")
        self.assertEqual(code, 3, errors)
        self.assertEqual(document["job"]["state"], "failed")
        name = document["job"]["name"]
        self.assertEqual(self.stasis("queue", name)[1]["jobs"][0]["exit_code"], 3)
        self.assertEqual(self.stasis("queue", "nobody")[0], 3)
        code, text, errors = self.as_role("operator", self.words, "logs", "well")
        self.assertEqual(code, 0, errors)
        self.assertIn("round 2", text)

    def test_a_job_is_listed_followed_and_cancelled(self):
        self.submit("long", "--gpus", "2", "--priority", "-3")
        self.schedd.wait_for_state("long", "RUNNING")
        code, document, _ = self.stasis("queue")
        self.assertEqual(code, 0)
        job = [job for job in document["jobs"] if job["name"] == "long"][0]
        self.assertEqual((job["tenant"], job["state"], job["gpus"], job["priority"], job["node"], job["devices"]),
                         ("red", "running", 2, -3, "a", [0, 1]))
        self.assertIn("long", self.words("queue")[1])
        node = self.stasis("nodes")[1]["nodes"][0]
        self.assertEqual((node["name"], node["jobs"], node["free"]), ("a", ["long", "long"], 0))
        code, document, _ = self.stasis("defrag", "--gpus", "1", "--dry-run")
        self.assertEqual((code, document["possible"]), (4, False))
        options = ["--wait", "--name", "waits", "--priority", "-5"]
        with self.running("submit", *options, "--", *LONG) as waiting:
            self.schedd.wait(lambda: "waits" in self.schedd.queue())
            self.assertEqual(self.stasis("cancel", "waits")[0], 0)
            self.assertEqual(waiting.wait(120), 9)
        code, text, _ = self.words("cancel", "long")
        self.assertEqual(code, 0)
        self.schedd.wait_for_state("long", "CANCELLED")
        self.assertEqual(self.stasis("cancel", "long")[0], 4)
        kinds = [event["kind"] for event in self.stasis("events", "--last", "1000")[1]["events"] if event["job"] == "long"]
        self.assertEqual(kinds, ["submitted", "started", "cancelled"])

    def test_what_cannot_be_is_told(self):
        code, document, _ = self.stasis("submit", "--tenant", "nobody", "--", "/bin/true")
        self.assertEqual(code, 3)
        self.assertIn("nobody", document["message"])
        self.assertIn("stasis tenants set nobody 1", document["remedy"])
        code, document, _ = self.stasis("submit", "--gpus", "3", "--", "/bin/true")
        self.assertNotEqual(code, 0, document)
        self.assertEqual(self.stasis("drain", "nowhere")[0], 3)
        code, document, _ = self.stasis("submit", "--", "no-such-program")
        self.assertEqual(code, 127)

    def test_a_node_is_drained_and_maintained(self):
        code, document, _ = self.stasis("drain", "a", "--reason", "a fan")
        self.assertEqual((code, document["node"]["draining"], document["node"]["reason"]), (0, True, "a fan"))
        self.assertEqual(self.stasis("undrain", "a")[1]["node"]["draining"], False)
        code, document, _ = self.stasis("drain", "a", "--deadline", "1h")
        self.assertEqual(code, 0, document)
        self.assertGreater(document["node"]["deadline_ms"], 0)
        self.assertIn("gone at", self.words("nodes")[1])
        self.assertEqual(self.stasis("undrain", "a")[1]["node"]["deadline_ms"], 0)
        window = self.stasis("maintenance", "a", "--start", "2100-01-01T00:00Z", "--for", "2h")[1]["node"]
        self.assertEqual(window["maintenance_end_ms"] - window["maintenance_start_ms"], 7200000)
        self.assertEqual(self.stasis("maintenance", "a", "--clear")[1]["node"]["maintenance_end_ms"], 0)

    def read_until(self, pipe, text):
        """What comes up to there, without a byte more being taken from whoever reads on."""
        said = ""
        while text not in said:
            self.assertTrue(hung.await_readable(pipe, 120), said)
            more = os.read(pipe.fileno(), 65536).decode()
            self.assertTrue(more, said)
            said += more
        return said

    def test_a_scheduler_that_is_started_anew_is_waited_for(self):
        hurry = os.path.join(self.nodes.folder, "hurry-stays")
        program = ["/usr/bin/env", f"PACE_UNTIL={hurry}", *LONG]
        with self.running("submit", "--wait", "--name", "stays", "--", *program) as waiting, \
             self.running("events", "--follow", "--json") as following:
            # Then it is watched.
            said = self.read_until(waiting.stderr, "started on a")
            self.schedd.wait_for_state("stays", "RUNNING")
            self.schedd.kill()
            self.schedd.start()
            # The agent joins again by itself.
            self.schedd.wait(lambda: self.schedd.node("a").reachable)
            with open(hurry, "w", encoding="utf-8"):
                pass
            _, errors = waiting.communicate(timeout=120)
            self.assertEqual(waiting.returncode, 0, said + errors)
            self.assertIn("waiting for the next one", said + errors)
            told = []
            while not told or (told[-1]["job"], told[-1]["kind"]) != ("stays", "done"):
                told.append(json.loads(following.stdout.readline()))
            following.terminate()
            self.assertEqual(following.wait(120), 0)
        numbers = [event["number"] for event in told]
        self.assertEqual(numbers, sorted(set(numbers)), "each event is told once")

    def test_roles(self):
        self.submit("theirs")

        def code(role, *arguments):
            return self.as_role(role, self.stasis, *arguments)[0]

        changes = [("submit", "--", "/bin/true"), ("cancel", "theirs"), ("tenants", "set", "red", "3"), ("drain", "a"),
                   ("undrain", "a"), ("maintenance", "a", "--clear"), ("defrag", "--gpus", "1")]
        for verb in ("queue", "tenants", "nodes", "events"):
            self.assertEqual(code("reader", verb), 0, verb)
            self.assertEqual(code("agent", verb), 7, verb)
        for change in changes:
            self.assertEqual(code("reader", *change), 7, change)
            self.assertEqual(code("agent", *change), 7, change)
        self.assertEqual(code("operator", "cancel", "theirs"), 0)
        refused = [line for line in self.schedd.lines() if line["component"] == "audit" and line["message"] == "refused" and
                   line.get("actor") == "cn reader"]
        self.assertEqual({line["verb"] for line in refused},
                         {"submit", "cancel", "set-tenant", "drain", "undrain", "set-maintenance", "defragment"})

    def test_completion_knows_names(self):
        self.submit("offered")
        self.assertIn("offered\n", self.words("complete-queue")[1])
        self.assertEqual(self.words("complete-nodes")[1], "a\n")
        self.stasis("cancel", "offered")


if __name__ == "__main__":
    unittest.main()
