"""One task whose tree holds all ranks, each a process of its own: paused, moved, dumped, killed and restored in the middle of
its work, it ends as if nothing had been; a rank that dies meanwhile is missed by name."""

import os
import signal
import time
import unittest

import hung
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
RANKS = 3
# A launcher: all ranks, or none.
SCRIPT = """
program=$1; ranks=$2; shift 2
pids=
for rank in $(seq 0 $((ranks - 1))); do
  "$program" --ranks "$ranks" --rank "$rank" "$@" &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid" || exit 1; done
"""


class Tree(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = self.enterContext(Site("--gpus", str(RANKS), "--memory", "256MiB"))
        self.count = 0

    def start(self, rounds):
        self.count += 1
        options = ["--rounds", str(rounds), "--elements", "1024", "--pace-ms", "2"]
        job = self.site.start(f"tree-{self.count}", "/bin/sh", "-c", SCRIPT, "launcher", built("samples/nccl_ring"), str(RANKS),
                              "--id-file", os.path.join(self.site.folder.name, f"id-{self.count}"), *options,
                              options=["--strategy", self.strategy], **self.site.rest())
        job.wait_for_output("round 2 ")
        return job

    def finish(self, job, rounds):
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output()[-2000:])
        # Each prints what one process with all ranks does.
        alone = self.site.node.run(built("samples/nccl_ring"), "--ranks", str(RANKS), "--rounds", str(rounds), "--elements",
                                   "1024", timeout=300)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(sorted(job.output().splitlines()), sorted(alone.stdout.splitlines() * RANKS))

    def ranks_of(self, job):
        launcher = job.process()["pid"]
        with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]

    def test_there_and_back(self):
        rounds = 60000 if FULL else 8000
        job = self.start(rounds)
        for _ in range(10 if FULL else 1):
            self.assertEqual(job.verb("pause", "--residency", "host")["members"], RANKS)
            job.verb("resume")
            job.verb("checkpoint")
            self.assertTrue(job.alive(), "the program was too quick")
            job.kill()
            job.verb("restore", "--detach", "--gpus", "1,2,0")
            job.verb("migrate", "--gpus", "2,0,1")
            job.verb("checkpoint", "--stop")
            job.wait()
            job.verb("restore", "--detach", "--gpus", "0,1,2")
        self.finish(job, rounds)
        self.assertEqual(self.site.memory_in_the_end(), [0] * RANKS)

    def assert_runs_on(self, job):
        before, give_up = job.output().count("round"), time.monotonic() + 60
        while job.output().count("round") == before:
            self.assertLess(time.monotonic(), give_up, "the ranks have not run on together")
            time.sleep(0.01)

    def faulty(self, job, verb, fault):
        job.wait_for_ghost_to_leave()
        arguments = ["--residency", "host"] if verb == "pause" else []
        return self.site.call(verb, job.name, *arguments, STASIS_GHOST_FAULT=fault)[:2]

    def test_every_step_that_all_take_together_is_undone_for_all(self):
        job = self.start(200000)
        for point in ("quiesce-after", "give-up-before", "give-up-after", "hand-over-after", "release-after", "attach-after",
                      "rejoin-before", "rejoin-inside", "rejoin-after"):
            for action in ("fail", "kill") if FULL or point.startswith(("give", "rejoin")) else ("kill",):
                verb = "checkpoint" if point.startswith(("attach", "rejoin")) else "pause"
                with self.subTest(point=point, action=action):
                    status, answer = self.faulty(job, verb, f"{point}:{action}")
                    self.assertNotEqual(status, 0, answer)
                    self.assertNotEqual(answer.get("left"), "lost", answer)
                    job.wait_for_ghost_to_leave()
                    self.assert_runs_on(job)
                    job.verb("pause")
                    job.verb("resume")
        self.site.ok("cancel", job.name)

    def test_a_rank_that_is_killed_while_paused_is_missed_by_name(self):
        job = self.start(200000)
        ranks = self.ranks_of(job)
        self.assertEqual(len(ranks), RANKS)
        job.verb("pause", "--no-freeze")
        with open(os.pidfd_open(ranks[1]), "rb") as rank:
            signal.pidfd_send_signal(rank.fileno(), signal.SIGKILL)
            self.assertTrue(hung.await_readable(rank, 60))
        _, answer = job.refused("resume")
        self.assertEqual((answer["code"], answer["left"]), ("PEER_DIED", "paused"), answer)
        # It has a name for as long as its parent has not waited for it.
        self.assertRegex(answer["message"], rf"process {ranks[1]} \((ended|nccl_ring)\)")
        self.site.ok("cancel", job.name)


class TreeByDriverCheckpoint(Tree):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
