"""Who is let in to an agent and who is not: other users, clients without a certificate, with an expired one, one of another CA
or for another role; messages that are too large or no messages at all. What is refused is on record, and nothing comes of it."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from agents import Agent, Certificates, built, grpc, op, pb
from softgpu import die_with_parent
from stasisd import Stasisd

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
FUZZ_SECONDS = 60 if FULL else 3
NOBODY = 65534
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9).replace(b"\0\0\0\0", b"\0\0\0\4", 1)

# Tries to connect as another user, and prints what comes of it. In a process of its own: the uid cannot be taken back.
CONNECT = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
kind, _, place = sys.argv[1].partition(":")
try:
    if kind == "unix":
        client = socket.socket(socket.AF_UNIX); client.connect(place)
    else:
        client = socket.create_connection((kind, int(place)))
    client.settimeout(100)
    client.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    print("answered" if client.recv(1) else "closed")
except PermissionError:
    print("not permitted")
except (BrokenPipeError, ConnectionResetError):
    print("closed")
"""


def connect_as(uid, place):
    return subprocess.run([sys.executable, "-c", CONNECT, place, str(uid)], capture_output=True, text=True, timeout=120,
                          check=True, preexec_fn=die_with_parent).stdout.strip()


def run_request():
    """In order, and of no use: the program is not there."""
    return pb.RunRequest(name="x", argv=["/nowhere/program"], folder="/nowhere", environment=["A=B"])


class Users(unittest.TestCase):

    def test_another_user_cannot_open_the_socket(self):
        with Stasisd() as stasisd:
            self.assertEqual(stasisd.agent.info().api, 1)
            self.assertEqual(os.stat(stasisd.socket).st_mode & 0o777, 0o600)
            self.assertEqual(connect_as(NOBODY, "unix:" + stasisd.socket), "not permitted")

    def test_another_user_who_can_open_it_is_turned_away(self):
        with Stasisd() as stasisd:
            os.chmod(stasisd.folder.name, 0o755)
            os.chmod(stasisd.run, 0o755)
            os.chmod(stasisd.socket, 0o666)
            self.assertEqual(connect_as(os.getuid(), "unix:" + stasisd.socket), "answered")
            self.assertEqual(connect_as(NOBODY, "unix:" + stasisd.socket), "closed")
            line = stasisd.refused(verb="connect", code="PERMISSION_DENIED")
            self.assertIn(f"uid {NOBODY}", line["why"])

    def test_loopback_in_the_clear_is_for_the_same_user(self):
        with Stasisd("--listen", "127.0.0.1:0") as stasisd:
            agent = Agent(stasisd.target)
            self.addCleanup(agent.close)
            self.assertEqual(agent.info().api, 1)
            self.assertEqual(connect_as(os.getuid(), stasisd.target), "answered")
            self.assertEqual(connect_as(NOBODY, stasisd.target), "closed")
            self.assertIn(f"uid {NOBODY}", stasisd.refused(verb="connect")["why"])


class Listening(unittest.TestCase):

    def start(self, *options):
        """Of a stasisd that does not start: its last line."""
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "STASIS_STATE_DIR": folder + "/state", "STASIS_RUN_DIR": folder + "/run"}
            ended = subprocess.run([built("bin/stasisd"), *options], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True, timeout=60, check=False, preexec_fn=die_with_parent)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        return json.loads(ended.stderr.splitlines()[-1])

    def test_nothing_is_in_the_clear_where_others_can_reach_it(self):
        line = self.start("--listen", "0.0.0.0:0")
        self.assertEqual(line["code"], "PERMISSION_DENIED")
        self.assertIn("TLS", line["why"])

    def test_a_key_that_others_can_read_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            certificates = Certificates(folder)
            certificate, key = certificates.make("node", "stasis-agent")
            os.chmod(key, 0o644)
            line = self.start("--listen", "127.0.0.1:0", "--tls-ca", certificates.path("ca.pem"), "--tls-cert", certificate,
                              "--tls-key", key)
        self.assertIn("can be read by others", line["why"])

    def test_the_key_of_another_certificate_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            certificates = Certificates(folder)
            certificate, _ = certificates.make("node", "stasis-agent")
            _, key = certificates.make("other", "stasis-agent")
            line = self.start("--listen", "127.0.0.1:0", "--tls-ca", certificates.path("ca.pem"), "--tls-cert", certificate,
                              "--tls-key", key)
        self.assertIn("is not the key of", line["why"])

    def test_a_second_agent_of_the_state_folder_does_not_start(self):
        with Stasisd() as stasisd:
            env = {**os.environ, "STASIS_STATE_DIR": stasisd.state, "STASIS_RUN_DIR": stasisd.run + "2"}
            ended = subprocess.run([built("bin/stasisd")], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   timeout=60, check=False, preexec_fn=die_with_parent)
            self.assertEqual(ended.returncode, 1)
            self.assertEqual(json.loads(ended.stderr.splitlines()[-1])["code"], "FAILED_PRECONDITION")
            self.assertEqual(stasisd.agent.info().api, 1)


class Roles(unittest.TestCase):
    """One agent for all: what a test does leaves nothing behind."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="stasis-certificates-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.certificates = Certificates(cls.folder.name)
        certificate, key = cls.certificates.make("node", "stasis-agent")
        cls.stasisd = Stasisd("--listen", "127.0.0.1:0", "--tls-ca", cls.certificates.path("ca.pem"), "--tls-cert", certificate,
                              "--tls-key", key)
        cls.stasisd.__enter__()
        cls.addClassCleanup(cls.stasisd.__exit__)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def client(self, name=None, role="stasis-operator", days=2, certificates=None):
        """A client with a certificate, or without one."""
        ca = self.read(self.certificates.path("ca.pem"))
        if name is None:
            credentials = grpc.ssl_channel_credentials(ca)
        else:
            certificate, key = (certificates or self.certificates).make(name, role, days=days)
            credentials = grpc.ssl_channel_credentials(ca, self.read(key), self.read(certificate))
        agent = Agent(self.stasisd.target, credentials)
        self.addCleanup(agent.close)
        return agent

    def code_of(self, call):
        with self.assertRaises(grpc.RpcError) as failed:
            call()
        return failed.exception.code()

    def handshakes(self):
        return sum("andshake" in line["message"] for line in self.stasisd.lines() if line["component"] == "grpc")

    def expect_no_handshake(self, agent):
        before = self.handshakes()
        self.assertEqual(self.code_of(agent.info), grpc.StatusCode.UNAVAILABLE)
        self.stasisd.wait_for(lambda _: self.handshakes() > before)

    def test_an_operator_may_do_everything_but_what_is_for_agents(self):
        agent = self.client("operator")
        agent.jobs()
        agent.begin("remove", job="nothing-of-that-name")
        hello = agent.channel.unary_unary("/stasis.v1.Peer/Hello")
        self.assertEqual(self.code_of(lambda: hello(b"\x08\x01", timeout=120)), grpc.StatusCode.PERMISSION_DENIED)
        self.stasisd.refused(actor="cn operator", verb="peer-hello", code="PERMISSION_DENIED")
        taken = self.stasisd.wait_for(lambda line: line["component"] == "audit" and line["message"] == "taken" and
                                      line["actor"] == "cn operator")
        self.assertEqual((taken["verb"], taken["role"]), ("remove", "operator"))

    def test_a_reader_changes_nothing(self):
        agent = self.client("reader", "stasis-reader")
        agent.jobs()
        for verb, fields in (("pause", {"job": "x"}), ("cancel", {"job": "x"}), ("remove", {"job": "x"}),
                             ("signal", {"job": "x", "signal": 9}), ("setSchedule", {"schedule": pb.Schedule(job="x")})):
            with self.subTest(verb):
                self.assertEqual(self.code_of(lambda v=verb, f=fields: agent.begin(v, **f)), grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(self.code_of(lambda: agent.stub.Run(run_request(), timeout=120)), grpc.StatusCode.PERMISSION_DENIED)
        self.stasisd.refused(actor="cn reader", role="reader", verb="run", code="PERMISSION_DENIED")

    def test_an_agent_is_no_operator(self):
        agent = self.client("other-node", "stasis-agent")
        agent.info()
        self.assertEqual(self.code_of(agent.jobs), grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(self.code_of(lambda: next(iter(agent.stub.Watch(pb.WatchRequest(), timeout=120)))),
                         grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(self.code_of(lambda: agent.begin("cancel", job="x")), grpc.StatusCode.PERMISSION_DENIED)
        self.stasisd.refused(actor="cn other-node", verb="watch")

    def test_an_unknown_role_is_none(self):
        agent = self.client("somebody", "stasis-owner")
        self.assertEqual(self.code_of(agent.info), grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn("no role", self.stasisd.refused(verb="info", actor="")["why"])

    def test_two_roles_are_none(self):
        agent = self.client("greedy", "stasis-reader/OU=stasis-operator")
        self.assertEqual(self.code_of(agent.info), grpc.StatusCode.PERMISSION_DENIED)

    def test_without_a_certificate_there_is_no_handshake(self):
        self.expect_no_handshake(self.client())

    def test_with_an_expired_one_there_is_none(self):
        self.expect_no_handshake(self.client("late", days=-1))

    def test_with_one_of_another_ca_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            self.expect_no_handshake(self.client("stranger", certificates=Certificates(folder)))

    def test_a_scheduler_that_reigns_no_more_changes_nothing(self):
        agent = self.client("scheduler", "stasis-scheduler")
        agent.begin("remove", job="nothing-1", change=pb.Change(fence=7))
        self.assertEqual(self.code_of(lambda: agent.begin("remove", job="nothing-2", change=pb.Change(fence=6))),
                         grpc.StatusCode.FAILED_PRECONDITION)
        agent.begin("remove", job="nothing-3", change=pb.Change(fence=8))

    def test_what_was_refused_is_on_disk(self):
        agent = self.client("curious", "stasis-reader")
        self.code_of(lambda: agent.begin("cancel", job="secret"))
        give_up = time.monotonic() + 120
        while not any(row["actor"] == "cn curious" and row["job"] == "secret" for row in self.stasisd.audit()):
            self.assertLess(time.monotonic(), give_up, self.stasisd.audit())
            time.sleep(0.05)  # written soon after, by a thread of its own


class Messages(unittest.TestCase):

    METHODS = {"Info": pb.InfoRequest(), "List": pb.ListRequest(name="x"), "Images": pb.ImagesRequest(job="x"),
               "Pause": pb.PauseRequest(job="x", residency="host"), "Resume": pb.ResumeRequest(job="x", gpus=[0, 1]),
               "Checkpoint": pb.CheckpointRequest(job="x", stop=True), "Restore": pb.RestoreRequest(job="x", image="000001"),
               "Migrate": pb.MigrateRequest(job="x", gpus=[1]), "Cancel": pb.CancelRequest(job="x", grace_ms=10),
               "Remove": pb.RemoveRequest(job="x"), "Signal": pb.SignalRequest(job="x", signal=15), "Run": run_request(),
               "GetOperation": op.GetOperationRequest(id="op-000001"),
               "ListOperations": op.ListOperationsRequest(job="x"),
               "CancelOperation": op.CancelOperationRequest(id="op-000001"),
               "SetSchedule": pb.SetScheduleRequest(schedule=pb.Schedule(job="x", interval_ms=5, overhead_budget=0.5)),
               "ListSchedules": pb.ListSchedulesRequest(job="x")}

    def call(self, agent, method, message):
        """The code of the answer to these bytes."""
        try:
            agent.channel.unary_unary("/stasis.v1.Agent/" + method)(message, timeout=120)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()

    def test_too_large_a_message_is_refused(self):
        with Stasisd() as stasisd:
            code = self.call(stasisd.agent, "Run", pb.RunRequest(argv=["x" * (17 << 20)]).SerializeToString())
            self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)
            stasisd.refused(verb="run", code="RESOURCE_EXHAUSTED", actor=f"uid {os.getuid()}")
            # What gRPC does not even read is on no record.
            self.assertEqual(self.call(stasisd.agent, "Run", bytes(65 << 20)), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(stasisd.agent.info().api, 1)

    def test_what_is_no_message_is_refused(self):
        with Stasisd() as stasisd:
            self.assertEqual(self.call(stasisd.agent, "Pause", b"\xff\xff\xff"), grpc.StatusCode.INVALID_ARGUMENT)
            stasisd.refused(verb="Pause", code="INVALID_ARGUMENT")

    def test_a_name_that_leads_elsewhere_is_refused(self):
        with Stasisd() as stasisd:
            for name in ("../../etc", "/etc/passwd", ".", "a/b"):
                with self.assertRaises(grpc.RpcError) as failed:
                    stasisd.agent.begin("remove", job=name)
                self.assertEqual(failed.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            stasisd.refused(verb="remove", code="INVALID_ARGUMENT")

    def mutate(self, chance, message):
        data = bytearray(message)
        for _ in range(chance.randrange(1, 6)):
            kind = chance.randrange(4)
            at = chance.randrange(len(data) + 1)
            if kind == 0 and data:
                data[at % len(data)] = chance.randrange(256)
            elif kind == 1:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            elif kind == 2:
                del data[at:at + chance.randrange(1, 9)]
            else:
                data[at:at] = data[:chance.randrange(len(data) + 1)]
        return bytes(data[:1 << 16])

    def test_whatever_comes_nothing_is_started_and_nothing_leaks(self):
        seed = int(os.environ.get("STASIS_TEST_SEED", "1"))
        chance = random.Random(seed)
        with Stasisd() as stasisd:
            methods = sorted(self.METHODS)
            for method in methods:
                self.call(stasisd.agent, method, b"\xff")  # what is made once is there
            before = stasisd.open_files()
            sent = 0
            end = time.monotonic() + FUZZ_SECONDS
            while time.monotonic() < end or sent <= 50:
                method = chance.choice(methods)
                self.call(stasisd.agent, method, self.mutate(chance, self.METHODS[method].SerializeToString()))
                sent += 1
                if sent % 20 == 0:
                    self.send_garbage(stasisd, chance)
            self.assertIsNone(stasisd.process.poll(), f"seed {seed}")
            self.assertEqual(stasisd.agent.info().api, 1)
            self.assertEqual(stasisd.jobs_on_disk(), [], f"seed {seed}")
            give_up = time.monotonic() + 120
            while (stasisd.children() or stasisd.open_files() > before + 2) and time.monotonic() < give_up:
                time.sleep(0.05)  # connections that were given up are closed soon
            self.assertEqual(stasisd.children(), [], f"seed {seed}")
            self.assertLessEqual(stasisd.open_files(), before + 2, f"seed {seed}")

    def send_garbage(self, stasisd, chance):
        """Bytes that are no HTTP/2, or only begin as such."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(stasisd.socket)
            client.settimeout(120)
            try:
                client.sendall((PREFACE if chance.random() < 0.5 else b"") + chance.randbytes(chance.randrange(1, 4096)))
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass


if __name__ == "__main__":
    unittest.main()
