"""Programs that are paused, moved, dumped, killed and restored at random moments print what they print undisturbed.

STASIS_SOAK_SEED chooses the moments (printed); STASIS_TEST_FULL=1 makes it 50 disturbances a program, and the programs long.
"""

import os
import random
import sys
import time
import unittest

from stasis_job import Job, Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
DISTURBANCES = 50 if FULL else 2
SEED = int(os.environ.get("STASIS_SOAK_SEED", "20") if not FULL else os.environ.get("STASIS_SOAK_SEED", time.time_ns() % 2**32))


def size(full, normal):
    """How long a program is: in the normal run, for about a second."""
    return str(full if FULL else normal)


class Soak(unittest.TestCase):
    strategy = "reconstruct"

    @classmethod
    def setUpClass(cls):
        print(f"soak: seed {SEED}, {DISTURBANCES} disturbances a program", file=sys.stderr, flush=True)
        cls.site = Site("--gpus", "2", "--memory", "1GiB")
        cls.site.__enter__()
        cls.addClassCleanup(cls.site.__exit__, None, None, None)

    def undisturbed(self, command):
        result = self.site.node.run(*command, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def disturb(self, job, kind, device):
        """One disturbance; the device where the program is afterwards."""
        if kind == "pause":
            residency = self.random.choice(["device", "host", "disk"])
            job.verb("pause", "--residency", residency)
            job.verb("resume")
        elif kind == "checkpoint":
            job.verb("checkpoint")
        elif kind == "migrate":
            job.verb("migrate", "--gpus", f"{1 - device},{device}")
            device = 1 - device
        else:
            job.verb("checkpoint", *(["--stop"] if kind == "stop" else []))
            if kind == "kill":
                job.kill()
            else:
                job.wait()
            device = self.random.choice([0, 1])
            job.verb("restore", "--detach", "--gpus", f"{device},{1 - device}")
        return device

    @staticmethod
    def is_a_fault(error):
        """Of a program that has come to its end in the meantime nothing else may be said; its end is waited for then."""
        if isinstance(error, ProcessLookupError):
            return False
        answer = getattr(error, "answer", None)
        return answer is None or answer["code"] not in ("NOT_FOUND", "FAILED_PRECONDITION", "PEER_DIED")

    @staticmethod
    def results(output):
        """What a program printed, without the times that it measured."""
        return [line.split("device time")[0] for line in output.splitlines()]

    def fail_now(self, job, what):
        """Says at once what went wrong: a whole soak takes long."""
        with open(job.path("ghost.log"), encoding="utf-8", errors="replace") as log:
            text = f"seed {SEED}, {job.name}: {what}\nends with: {job.output()[-500:]}\nghost: {log.read()[-1500:]}"
        print(text, file=sys.stderr, flush=True)
        self.fail(text)

    def soak(self, name, *command, kinds=("pause", "checkpoint", "migrate", "stop", "kill")):
        program = [built(command[0]), *command[1:]]
        started = time.monotonic()
        expected = self.undisturbed(program)
        length = time.monotonic() - started
        self.random = random.Random(f"{SEED} {name}")
        done = runs = 0
        while done < DISTURBANCES:
            runs += 1
            job = self.site.start(f"{name}-{runs}", *program, options=["--strategy", self.strategy])
            device = 0
            while done < DISTURBANCES:
                # A random moment of the program's life; nothing is waited for.
                time.sleep(self.random.uniform(0, length / 3))
                if not job.alive():
                    break
                kind = self.random.choice(kinds)
                try:
                    device = self.disturb(job, kind, device)
                except (AssertionError, ProcessLookupError) as error:
                    if self.is_a_fault(error):
                        self.fail_now(job, f"disturbance {done}, {kind}: {error}")
                    break  # the program came to its end before the verb did
                done += 1
            status = job.wait()
            if status != 0:
                self.fail_now(job, f"after {done} disturbances it ended with {status}")
            if self.results(job.output()) != self.results(expected):
                self.fail_now(job, f"after {done} disturbances its results differ")
        print(f"soak: {name}: {done} disturbances in {runs} run(s), identical", file=sys.stderr, flush=True)

    def test_mlp_train(self):
        self.soak("mlp", "samples/mlp_train", "--steps", size(80, 12))

    def test_gpt_train(self):
        self.soak("gpt", "samples/gpt_train", "--steps", size(8, 2))

    def test_stencil_captured(self):
        self.soak("stencil-capture", "samples/stencil", "--graph", "capture", "--iterations", size(1000, 50))

    def test_stencil_explicit(self):
        self.soak("stencil-explicit", "samples/stencil", "--graph", "explicit", "--iterations", size(1000, 50))

    def test_expandable_segments(self):
        self.soak("expandable", "tests/programs/expandable", size(40, 2), "11")

    def test_shared_memory(self):
        self.soak("share", "tests/programs/share", size(60, 8), "host")

    def test_vector(self):
        self.soak("vector", "samples/vector", "--rounds", size(50, 30))

    def test_threads_blocked_in_synchronising_calls(self):
        self.soak("threads", "tests/programs/soak", "threads", size(500, 80))

    def test_allocation_storm(self):
        self.soak("storm", "tests/programs/soak", "storm", size(5000, 2000))

    def test_stream_ordered_allocation(self):
        self.soak("pool", "tests/programs/soak", "pool", size(1000, 700))

    def test_graphs_captured_all_the_time(self):
        self.soak("graphs", "tests/programs/soak", "graphs", size(4000, 2500))

    def test_events_between_streams(self):
        self.soak("events", "tests/programs/soak", "events", size(8000, 700))

    def test_host_functions(self):
        self.soak("callbacks", "tests/programs/soak", "callbacks", size(3000, 1500))

    def test_host_memory(self):
        self.soak("host", "tests/programs/soak", "host", size(4000, 500))

    def test_forked_workers(self):
        self.soak("fork", "tests/programs/soak", "fork", size(3000, 700))

    def test_launches_without_waiting(self):
        self.soak("launches", "tests/programs/soak", "launches", size(20000, 600))


class SoakByDriverCheckpoint(Soak):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    assert Job
    unittest.main()
