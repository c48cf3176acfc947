"""Pauses at random times of jobs whose ranks are slowed, delayed and stopped: none hangs, each commits or is given up within its
deadline, and the results are those of an undisturbed run. Both ways to pause are counted side by side."""

import contextlib
import os
import random
import threading
import time
import unittest

from stasis_ranks import RankSite, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
PAUSES = 200 if FULL else 5  # by each protocol
PAUSES_OF_A_JOB = 6
DEADLINE_S = 5.0 if FULL else 10.0
# Beyond the deadline: starting ghosts, and going back. The full run has the machine for itself.
SLACK_S = 5.0 if FULL else 60.0
HELD_S = DEADLINE_S + (SLACK_S + 2 if FULL else 1)
DEVICES = 8
RANKS = (2, 4, 8)
# A rank has come to its end meanwhile.
ENDED = ("PEER_DIED", "NOT_FOUND")
SAMPLES = ("ddp_train", "pipeline_train", "tp_train")
# Enough for the pauses of one job, and not for much more.
STEPS = {"ddp_train": {2: 500, 4: 300, 8: 150}, "pipeline_train": {2: 300, 4: 150, 8: 80},
         "tp_train": {2: 500, 4: 300, 8: 150}}
# What else happens to a rank, and how often of twenty times: nothing; stopped just before; stopped meanwhile; stopped meanwhile for
# longer than the deadline.
DISTURBANCES = ("none",) * 7 + ("delayed",) * 6 + ("stopped",) * 6 + ("held",)


class Tally:
    """How pauses by one protocol have ended."""

    def __init__(self):
        self.committed = {name: 0 for name in dict.fromkeys(DISTURBANCES)}
        self.given_up = dict(self.committed)
        self.refused = 0
        self.longest = 0.0

    def pauses(self):
        return sum(self.committed.values()) + sum(self.given_up.values()) + self.refused

    def add(self, disturbance, status, answer, seconds):
        self.longest = max(self.longest, seconds)
        if status == 0:
            self.committed[disturbance] += 1
        elif answer["code"] == "FAILED_PRECONDITION":
            self.refused += 1
        else:
            self.given_up[disturbance] += 1

    def share(self):
        """Of the pauses that were begun, without those in which a rank was stopped for longer than the deadline: nothing can
        pause that one. How many were committed at the first try, and how many there were."""
        usual = [name for name in self.committed if name != "held"]
        committed = sum(self.committed[name] for name in usual)
        return committed, committed + sum(self.given_up[name] for name in usual)

    def row(self, protocol):
        committed, pauses = self.share()
        details = ", ".join(f"{name} {count}/{count + self.given_up[name]}" for name, count in self.committed.items())
        return (f"{protocol:8} {self.pauses()} pauses: committed at the first try {committed}/{pauses} "
                f"({100 * committed / max(pauses, 1):.1f} %: {details}); refused, as a rank was stopped already, {self.refused}; "
                f"longest {self.longest:.2f} s")


class Disturber:
    """What happens to one rank of a job around one verb."""

    def __init__(self, job, chance, kind, first_step):
        self.job = job
        self.kind = kind
        self.rank = chance.randrange(job.count)
        self.first_step = first_step  # of the verb, as the ghost writes it
        self.before = chance.random() * 0.2
        self.after = chance.random() * 0.15
        self.length = HELD_S if kind == "held" else 0.05 + chance.random() * 0.4
        self.thread = threading.Thread(target=self._meanwhile)

    def __enter__(self):
        self.log = self.job.ghost_log(self.rank)
        if self.kind == "delayed":
            self._stop_for(self.before)
        if self.kind in ("stopped", "held"):
            self.thread.start()
        return self

    def __exit__(self, *_):
        if self.thread.ident is not None:
            self.thread.join()
        self.log.close()

    def _meanwhile(self):
        if self.log.wait_for(self.first_step, DEADLINE_S):
            time.sleep(self.after)
            self._stop_for(self.length)

    def _stop_for(self, seconds):
        with contextlib.suppress(ProcessLookupError):  # it may have come to its end
            self.job.stop(self.rank)
            time.sleep(seconds)
            self.job.go_on(self.rank)


class Stress(unittest.TestCase):
    """Each rank is a task."""

    protocols = ("cut", "timeout")

    def setUp(self):
        self.tallies = {protocol: Tally() for protocol in self.protocols}

    def start(self, site, number, ranks, command, options):
        return site.start_ranks(f"job{number}", ranks, *command, options=options)

    def options(self, protocol):
        return ["--pause-protocol", protocol, "--attempts", 1]

    def pause(self, job, chance, protocol):
        """False when the job has come to its end."""
        time.sleep(chance.random() * 0.3)
        kind = chance.choice(DISTURBANCES)
        with Disturber(job, chance, kind, "step quiesce "):
            begin = time.monotonic()
            status, answer = job.call("pause", "--deadline", f"{DEADLINE_S}s", *self.options(protocol))
            seconds = time.monotonic() - begin
        if status != 0 and (answer["code"] in ENDED or not job.alive()):
            return False
        # A rank that is stopped after all have come to rest, or that has to be put back, is waited for.
        self.assertLess(seconds, (HELD_S if kind == "held" else DEADLINE_S) + SLACK_S, answer)
        if status != 0:
            if answer["code"] != "TIMEOUT":
                self.assertRegex(answer["message"], "is stopped by a signal", answer)
            self.assertIn(answer["left"], ("rolled-back", "unchanged"), answer)
            print(f"{job.name} {protocol} {kind}: {answer['message']}", flush=True)
        self.tallies[protocol].add(kind, status, answer, seconds)
        if status == 0:
            with Disturber(job, chance, chance.choice(("none", "none", "stopped")), "step attach "):
                job.verb("resume")
        return True

    def disturb(self, job, chance):
        """Pauses by all protocols in turn until enough, or until the job has come to its end."""
        job.wait_for_output("step ")
        for _ in range(PAUSES_OF_A_JOB):
            protocol = min(self.protocols, key=lambda name: self.tallies[name].pauses())
            if self.tallies[protocol].pauses() >= PAUSES or not self.pause(job, chance, protocol):
                return

    def check_job(self, site, number, chance):
        sample, ranks = SAMPLES[number % len(SAMPLES)], RANKS[(number + number // 3) % len(RANKS)]
        command = [built(os.path.join("samples", sample)), "--steps", str(STEPS[sample][ranks]), "--log-every", "5",
                   "--pace-ms", chance.choice(("0", "2", "10"))]
        devices = chance.choice((1, DEVICES // ranks)) if sample == "ddp_train" else 1
        # The host-only mode knows ranks, not who drives them.
        expected = site.node.run(*command, "--reference", "--ranks", str(ranks * devices))
        self.assertEqual(expected.returncode, 0, expected.stderr)
        command += ["--devices-per-rank", str(devices)] if devices > 1 else []
        strategy = chance.choice(("reconstruct", "driver-checkpoint"))
        with self.subTest(job=number, seed=SEED, command=command, ranks=ranks, strategy=strategy):
            job = self.start(site, number, ranks, command, ["--strategy", strategy])
            self.disturb(job, chance)
            self.assertEqual(job.wait(), 0, job.lines())
            self.assertEqual(job.lines(), sorted(expected.stdout.splitlines()))

    def report(self, jobs):
        print(f"\n{type(self).__name__}: seed {SEED}, {jobs} jobs, deadline {DEADLINE_S} s")
        for protocol, tally in self.tallies.items():
            print(tally.row(protocol), flush=True)

    def test_none_hangs_and_the_results_are_the_same(self):
        number = 0
        with RankSite("--gpus", str(DEVICES), "--memory", "256MiB") as site:
            while min(tally.pauses() for tally in self.tallies.values()) < PAUSES:
                self.check_job(site, number, random.Random(SEED * 1000 + number))
                number += 1
                if FULL and number % 10 == 0:
                    self.report(number)
            self.assertEqual(site.memory_in_the_end(), [0] * DEVICES)
        self.report(number)
        committed, pauses = self.tallies["cut"].share()
        self.assertGreaterEqual(committed, 0.99 * pauses if FULL else 1)


class StressOfTrees(Stress):
    """All ranks are in one task."""

    protocols = ("cut",)

    def start(self, site, number, ranks, command, options):
        return site.start_tree(f"tree{number}", ranks, *command, options=options)

    def options(self, protocol):
        return []


if __name__ == "__main__":
    unittest.main()
