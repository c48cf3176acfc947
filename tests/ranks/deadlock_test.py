"""One side of a message waits on the device, the other is held at the gate: made on purpose. Both ways to pause a job come out
of it; one that only closes the gates and waits does not."""

import json
import os
import select
import struct
import subprocess
import tempfile
import time
import unittest

from rank_launcher import start_ranks
from softgpu import Node
from stasis_ranks import RankSite, built
from task_client import DRAIN, OK, wait_for_task

# By then a pause that nothing holds up has long been through.
LONG_S = 3.0


class Halves:
    """The FIFOs by which nccl_halves is told to go on."""

    def __init__(self, case):
        self.folder = case.enterContext(tempfile.TemporaryDirectory(prefix="stasis-halves-"))
        for name in ("send", "end.0", "end.1"):
            os.mkfifo(os.path.join(self.folder, name))
        self.command = [built("tests/programs/nccl_halves"), self.folder]

    def tell(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as fifo:
            fifo.write("x")

    def end(self):
        self.tell("end.0")
        self.tell("end.1")


RESULT = sorted(["holds", "sends", "sent", "sum 84", "waits", "received 42", "sum 84"])


class Deadlock(unittest.TestCase):
    def setUp(self):
        self.site = self.enterContext(RankSite("--gpus", "2", "--memory", "256MiB"))
        self.halves = Halves(self)
        self.job = self.site.start_ranks("halves", 2, *self.halves.command)
        self.job.ranks[0].wait_for_output("holds")
        self.job.ranks[1].wait_for_output("waits")

    def pause_while_half_is_done(self, *options):
        """A pause that cannot end before the message is sent, which happens when it has begun in both ranks."""
        logs = [self.job.ghost_log(rank) for rank in range(2)]
        pause = self.job.start_verb("pause", *options)
        self.addCleanup(pause.kill)
        for log in logs:
            self.assertTrue(log.wait_for("step quiesce ", 60))
            log.close()
        with self.assertRaises(subprocess.TimeoutExpired, msg="the pause has not waited for the message"):
            pause.wait(1)
        self.halves.tell("send")
        out, error = pause.communicate(timeout=120)
        return pause.returncode, json.loads(out), error

    def check_end(self):
        self.halves.end()
        self.assertEqual(self.job.wait(), 0, self.job.lines())
        self.assertEqual(self.job.lines(), RESULT)

    def test_the_cut_lets_the_message_through(self):
        status, answer, error = self.pause_while_half_is_done("--attempts", "1", "--deadline", "60s")
        self.assertEqual(status, 0, (answer, error))
        self.job.verb("resume")
        self.check_end()

    def test_the_timeout_gives_up_and_the_next_attempt_comes_through(self):
        status, answer, error = self.pause_while_half_is_done("--pause-protocol", "timeout", "--attempts", "1", "--deadline", "5s")
        self.assertNotEqual(status, 0, "closing the gates was enough")
        self.assertEqual((answer["code"], answer["left"]), ("TIMEOUT", "rolled-back"), (answer, error))
        self.job.ranks[0].wait_for_output("sum 84")
        self.job.ranks[1].wait_for_output("sum 84")
        self.job.verb("pause", "--pause-protocol", "timeout")
        self.job.verb("resume")
        self.check_end()

    def test_the_timeout_tries_again_by_itself(self):
        status, answer, error = self.pause_while_half_is_done("--pause-protocol", "timeout", "--deadline", "5s")
        self.assertEqual(status, 0, (answer, error))
        self.job.verb("resume")
        self.check_end()

    def test_neither_comes_out_when_nothing_is_sent(self):
        for protocol in ("cut", "timeout"):
            status, answer = self.job.call("pause", "--pause-protocol", protocol, "--attempts", "1", "--deadline", "1s")
            self.assertNotEqual(status, 0)
            self.assertEqual((answer["code"], answer["left"]), ("TIMEOUT", "rolled-back"), answer)
            self.assertTrue(self.job.alive())
        self.halves.tell("send")
        self.check_end()


class NaivePause:
    """Closes every gate and waits for the devices, for ever: it looks for no cut and does not give up by itself."""

    def __init__(self, processes):
        self.processes = processes
        for process in processes:
            process.shut()
        for process in processes:
            process.send(DRAIN, struct.pack("=I", 3600 * 1000))

    def drained(self, seconds):
        """Those that stand still by then."""
        end = time.monotonic() + seconds
        waiting, still = list(self.processes), []
        while waiting:
            ready = select.select([process.socket for process in waiting], [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                break
            still += [process for process in waiting if process.socket in ready]
            waiting = [process for process in waiting if process.socket not in ready]
        return still


class DeadlockOfANaivePause(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node("--gpus", "2", "--memory", "256MiB"))
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        self.halves = Halves(self)
        # One run folder for both, as of a task with two processes.
        env = self.node.env(LD_PRELOAD=built("lib/libstasis.so"), STASIS_TASK=self.folder,
                            STASIS_DRIVER=built("lib/softgpu/libcuda.so.1"))
        self.ranks = start_ranks(2, self.halves.command, env, stdout=subprocess.PIPE, text=True)
        for rank in self.ranks:
            self.addCleanup(rank.stdout.close)
            self.addCleanup(rank.wait)
            self.addCleanup(rank.kill)
        self.read_until(0, "holds")
        self.read_until(1, "waits")

    def read_until(self, rank, word):
        line = self.ranks[rank].stdout.readline()
        while line and not line.startswith(word):
            line = self.ranks[rank].stdout.readline()
        self.assertTrue(line, f"rank {rank} has ended before {word!r}")

    def connect(self):
        return [self.enterContext(wait_for_task(self.folder, rank.pid)) for rank in self.ranks]

    def check_end(self):
        self.halves.end()
        self.assertEqual([rank.wait(60) for rank in self.ranks], [0, 0])

    def test_it_stands_for_ever_when_half_of_a_message_is_done(self):
        processes = self.connect()
        pause = NaivePause(processes)
        self.halves.tell("send")
        self.read_until(0, "sends")
        self.assertNotIn(processes[1], pause.drained(LONG_S), "the receiver is through")
        # Nobody has said anything since: the sender is in front of its gate.
        self.assertEqual(select.select([rank.stdout for rank in self.ranks], [], [], 0)[0], [])
        for process in processes:
            process.close()
        self.read_until(0, "sum 84")
        self.read_until(1, "sum 84")
        self.check_end()

    def test_it_is_enough_when_nothing_is_half_done(self):
        self.halves.tell("send")
        self.read_until(0, "sum 84")
        self.read_until(1, "sum 84")
        processes = self.connect()
        self.assertEqual(len(NaivePause(processes).drained(60)), 2)
        for process in processes:
            self.assertEqual(process.receive()[0], OK)
            process.close()
        self.check_end()


if __name__ == "__main__":
    unittest.main()
