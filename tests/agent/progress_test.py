"""How fast jobs get on, as their processes have counted it, and that nobody is disturbed who is not asked."""

import glob
import re
import socket
import time
import unittest

from agents import built, pb
from moving_job import Sample
from softgpu import Node
from stasisd import Stasisd

RANKS = 2
SECONDS = 120
WINDOW_MS = 600_000  # longer than a test takes


class Progress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--gpus", str(RANKS), "--memory", "512MiB")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)
        env = cls.node.env()
        env.pop("LD_LIBRARY_PATH", None)
        cls.stasisd = Stasisd(env=env)
        cls.stasisd.__enter__()
        cls.addClassCleanup(cls.stasisd.__exit__)
        cls.agent = cls.stasisd.agent

    def run_job(self, name, command, **fields):
        env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "SOFTGPU_SOCKET": self.node.socket, "SOFTGPU_AUTOSTART": "0",
               "PACE_UNTIL": "/nonexistent"}
        self.agent.run(name, command, env, **fields)
        self.addCleanup(self.end, name)

    def end(self, name):
        if self.agent.job(name).live:
            self.agent.call("cancel", job=name, grace_ms=1)
        self.agent.call("remove", job=name, images=True)

    def ask(self, *jobs):
        """{name: JobProgress}, as soon as all ranks tell theirs: an agent does not wait for long for a process that is slow."""
        give_up = time.monotonic() + SECONDS
        while True:
            answer = self.agent.stub.Progress(pb.ProgressRequest(jobs=jobs, window_ms=WINDOW_MS), timeout=SECONDS)
            silent = [rank.error for job in answer.jobs for rank in job.ranks if rank.error]
            if not silent:
                return {job.job: job for job in answer.jobs}
            self.assertLess(time.monotonic(), give_up, silent)
            time.sleep(0.02)

    def start_counter(self):
        """The sample that launches one kernel for each `inc`. What asks it."""
        self.run_job("counter", [built("samples/counter")])
        self.agent.wait_for_output("counter", "listening")
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.agent.output("counter"))[1])

        def count(times):
            with socket.create_connection(("127.0.0.1", port), 60) as connection:
                lines = connection.makefile("rw")
                for _ in range(times):
                    lines.write("inc\n")
                    lines.flush()
                    lines.readline()
        return count

    def test_launches_are_counted_for_life(self):
        count = self.start_counter()
        first = self.ask()["counter"]
        self.assertEqual((first.unit, first.over_ms, first.rate), ("launches", 0, 0))
        counted, second = 0, first
        while second.over_ms == 0:
            count(50)
            counted += 50
            second = self.ask("counter")["counter"]
            rank = second.ranks[0]
            self.assertEqual(rank.launches - first.ranks[0].launches, counted)
        self.assertAlmostEqual(second.rate * second.over_ms / 1000, counted, delta=counted / second.over_ms + 0.01)
        self.agent.call("pause", job="counter")
        self.assertEqual(self.ask(), {})
        self.agent.call("resume", job="counter")
        count(3)
        self.assertEqual(self.ask()["counter"].ranks[0].launches, rank.launches + 3)
        self.agent.call("checkpoint", job="counter", stop=True)
        self.assertEqual(self.ask("counter"), {})
        self.agent.call("restore", job="counter")
        count(4)
        third = self.ask()["counter"]
        self.assertEqual(third.ranks[0].launches, rank.launches + 7)
        self.assertGreater(third.over_ms, second.over_ms)

    def test_each_rank_tells_its_own(self):
        sample = Sample("ddp_train", "--steps", "100000", "--log-every", "1", "--pace-ms", "20", ranks=RANKS)
        self.run_job("ddp", sample.command(), ranks=RANKS)
        self.agent.wait_for_output("ddp", "step 1 ")
        first = self.ask()["ddp"]
        then = int(re.findall(r"step (\d+) ", self.agent.output("ddp"))[-1])
        self.agent.wait_for_output("ddp", f"step {then + 20} ")
        second = self.ask()["ddp"]
        self.assertEqual([rank.rank for rank in second.ranks], list(range(RANKS)))
        for before, after in zip(first.ranks, second.ranks):
            self.assertGreaterEqual(after.launches - before.launches, 19)
            self.assertGreater(after.rate, 0)
        self.assertAlmostEqual(second.rate, sum(rank.rate for rank in second.ranks) / RANKS)

    def test_who_is_not_asked_sleeps(self):
        count = self.start_counter()
        pid = self.agent.job("counter").ranks[0].pid

        def switches():
            for path in glob.glob(f"/proc/{pid}/task/*/status"):
                with open(path, encoding="ascii") as file:
                    status = file.read()
                if "Name:\tstasis-control\n" in status:
                    return sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", status)))
            raise AssertionError("there is no control thread")

        self.ask()
        for _ in range(10):  # it may be on its way back to sleep
            before = switches()
            count(200)
            if switches() == before:
                break
        self.assertEqual(switches(), before)
        self.ask()
        self.assertGreater(switches(), before)


if __name__ == "__main__":
    unittest.main()
