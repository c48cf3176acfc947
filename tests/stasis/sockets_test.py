"""TCP within a task: connections go into an image with their processes, whatever they are in the middle of; what leads out of
the task is refused, by name."""

import os
import re
import socket
import subprocess
import unittest

from softgpu import LIBC
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
CLONE_NEWNET = 0x40000000


def setUpModule():
    """A network of these tests' own: CRIU's tables and the ports in use are then nobody else's."""
    if os.geteuid() == 0:
        if LIBC.unshare(CLONE_NEWNET) != 0:
            raise OSError("no network namespace")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def lock_tables():
    """Names of CRIU's tables in this network's nftables, as the kernel lists them."""
    # NFT_MSG_GETTABLE of any family, as a dump.
    request = (20).to_bytes(4, "little") + (0xA01).to_bytes(2, "little") + (0x301).to_bytes(2, "little") + bytes(12)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        netlink.send(request)
        answer = b""
        while b"\x03\x00" not in (answer[4:6], answer[-16:][:2]):
            part = netlink.recv(65536)
            answer += part
            if int.from_bytes(part[4:6], "little") in (2, 3):
                break
    return re.findall(rb"CRIU-[-0-9a-z]+", answer)


class Sockets(unittest.TestCase):
    strategy = "reconstruct"
    rounds = 100000 if FULL else 8000

    def setUp(self):
        self.site = self.enterContext(Site("--gpus", "2", "--memory", "256MiB"))
        self.command = os.path.join(self.site.folder.name, "go")

    def start(self, mode, *arguments):
        return self.site.start(mode, built("tests/programs/sockets"), mode, *map(str, arguments),
                               options=["--strategy", self.strategy])

    def go(self):
        with open(self.command, "x", encoding="utf-8"):
            pass

    def undisturbed(self, mode, *arguments):
        result = self.site.node.run(built("tests/programs/sockets"), mode, *map(str, arguments), timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def finish(self, job, mode, *arguments):
        self.go()
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), self.undisturbed(mode, *arguments, self.command))

    def stream(self, address):
        job = self.start("stream", address, self.rounds, self.command)
        job.wait_for_output("round")
        for _ in range(5 if FULL else 1):
            job.verb("checkpoint")
            job.verb("checkpoint", "--snapshot", "off")
            job.kill()
            job.verb("restore", "--detach", "--gpus", "1,0")
            job.verb("checkpoint", "--stop")
            job.wait()
            job.verb("restore", "--detach", "--gpus", "0,1")
        self.finish(job, "stream", address, self.rounds)
        self.assertEqual(lock_tables(), [])

    def test_data_in_flight(self):
        self.stream("127.0.0.1")

    def test_data_in_flight_by_ipv6(self):
        self.stream("::1")

    def held(self, mode):
        """A program that waits with its sockets in some state: dumped, left to run, killed, restored; then it goes on."""
        job = self.start(mode, "127.0.0.1", self.command)
        job.wait_for_output("ready")
        job.verb("checkpoint")
        job.verb("checkpoint")
        job.kill()
        job.verb("restore", "--detach")
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach")
        self.finish(job, mode, "127.0.0.1")

    def test_an_idle_connection(self):
        self.held("idle")

    def test_a_socket_that_only_listens(self):
        self.held("listen")

    def test_an_end_whose_other_end_is_gone(self):
        self.held("closed")

    def test_a_connection_that_is_half_closed(self):
        self.held("half")

    def test_a_checkpoint_alone_disturbs_nothing(self):
        job = self.start("idle", "127.0.0.1", self.command)
        job.wait_for_output("ready")
        for _ in range(3):
            job.verb("checkpoint")
        self.finish(job, "idle", "127.0.0.1")

    def test_what_fails_after_the_dump_lets_the_connections_go_on(self):
        job = self.start("stream", "127.0.0.1", self.rounds, self.command)
        job.wait_for_output("round")
        for verb in (["checkpoint"], ["checkpoint", "--stop"]):
            job.wait_for_ghost_to_leave()
            _, answer = job.refused(*verb, STASIS_GHOST_FAULT="commit-inside:fail")
            self.assertEqual(answer["left"], "rolled-back", answer)
        self.assertEqual(lock_tables(), [])
        self.finish(job, "stream", "127.0.0.1", self.rounds)

    def test_a_ghost_that_dies_in_the_dump_lets_the_connections_go_on(self):
        job = self.start("stream", "127.0.0.1", self.rounds, self.command)
        job.wait_for_output("round")
        for verb in (["checkpoint"], ["checkpoint", "--stop"]):
            job.wait_for_ghost_to_leave()
            job.refused(*verb, STASIS_GHOST_FAULT="dump-inside:kill")
        job.wait_for_ghost_to_leave()
        self.assertEqual(lock_tables(), [])
        self.finish(job, "stream", "127.0.0.1", self.rounds)

    def test_a_connection_that_leads_out_is_refused_with_the_other_end(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            job = self.start("outside", "127.0.0.1", port, self.command)
            with server.accept()[0]:
                job.wait_for_output("ready")
                _, answer = job.refused("checkpoint")
                self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", "unchanged"), answer)
                self.assertIn(f"a TCP connection to 127.0.0.1:{port} (process {os.getpid()}", answer["message"])
                self.assertIn("inside the task", answer["remedy"])
                # What is not dumped may stay connected.
                job.verb("pause")
                job.verb("resume")
                self.go()
        self.assertEqual(job.wait(), 0, job.output())

    def test_a_connection_to_another_task_names_it(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        other = self.start("none", "127.0.0.1", port, self.command)
        other.wait_for_output("ready")
        job = self.start("outside", "127.0.0.1", port, self.command)
        job.wait_for_output("ready")
        _, answer = job.refused("checkpoint")
        self.assertIn("of task none)", answer["message"])
        self.assertIn("as one task", answer["remedy"])
        # And a connection that is not accepted goes into no image.
        _, answer = other.refused("checkpoint")
        self.assertEqual(answer["left"], "rolled-back", answer)
        self.assertIn(f"1 connections to 127.0.0.1:{port} have not been accepted yet", answer["message"])
        self.go()
        for one in (job, other):
            self.assertEqual(one.wait(), 0, one.output())

    def test_a_port_that_is_taken_is_found_before_anything_is_touched(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        job = self.start("none", "127.0.0.1", port, self.command)
        job.wait_for_output("ready")
        job.verb("checkpoint", "--stop")
        job.wait()
        with socket.create_server(("127.0.0.1", port)):
            _, answer = job.refused("restore", "--detach")
            self.assertEqual(answer["code"], "ALREADY_EXISTS", answer)
            self.assertIn(f"TCP port 127.0.0.1:{port} is taken by process {os.getpid()}", answer["message"])
        job.verb("restore", "--detach")
        self.go()
        self.assertEqual(job.wait(), 0, job.output())


class SocketsByDriverCheckpoint(Sockets):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
