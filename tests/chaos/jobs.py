"""The jobs of the campaign: all samples, small, resting between their steps for longer than a run takes."""

import os
import re
import time

import hung
from moving_job import CONDITION, MovingJob, Sample
from softgpu import Node

RANKS = 2
HARNESS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "harness")
PROGRESS_SECONDS = 120
RUNNING = CONDITION("CONDITION_RUNNING")


class Tree(Sample):
    """All ranks in one task, below a launcher."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.devices = RANKS
        self.first_words = "step "

    def command(self):
        return ["/usr/bin/python3", "-B", os.path.join(HARNESS, "rank_launcher.py"), str(RANKS), *super().command()]

    def lines(self, output):
        return sorted(output.splitlines())

    def expected(self):
        if self.known is None:
            command = [*super().command(), "--reference", "--ranks", str(RANKS)]
            with Node("--gpus", "1", "--memory", "64MiB") as node:
                result = node.run(*command, timeout=600)
            if result.returncode != 0:
                raise AssertionError(f"{command}: {result.stderr}")
            self.known = self.lines(result.stdout)
        return self.known


DDP = ("ddp_train", "--steps", "300", "--pace-ms", "1400", "--log-every", "1")
SAMPLES = {
    "counter": Sample("counter"),
    "mlp": Sample("mlp_train", "--steps", "300", "--pace-ms", "1400", "--batch", "16", "--width", "32", "--log-every", "1"),
    "gpt": Sample("gpt_train", "--steps", "120", "--pace-ms", "3000", "--width", "32", "--context", "32", "--log-every", "1"),
    "cnn": Sample("cnn_train", "--steps", "300", "--pace-ms", "1400", "--batch", "16", "--channels", "2", "--hidden", "16",
                  "--test", "100", "--log-every", "1"),
    "stencil": Sample("stencil", "--iterations", "6000", "--pace-ms", "2500", "--report-every", "40", "--width", "64",
                      "--height", "64"),
    "vector": Sample("vector", "--rounds", "150", "--pace-ms", "2400", "--elements", str(1 << 16)),
    "nccl_ring": Sample("nccl_ring", "--rounds", "300", "--pace-ms", "1400", "--elements", str(1 << 12), devices=RANKS),
    "ddp": Sample(*DDP, ranks=RANKS),
    "pipeline": Sample("pipeline_train", "--steps", "150", "--pace-ms", "300", "--log-every", "1", ranks=RANKS),
    "tp": Sample("tp_train", "--steps", "150", "--pace-ms", "600", "--log-every", "1", ranks=RANKS),
    "ddp-tree": Tree(*DDP, label="ddp-tree"),
}


class NotRunning(AssertionError):
    """The job has come to its end, or to rest, where it should have gone on."""


class ChaosJob(MovingJob):
    """A job that tells whether it gets on."""

    def alive(self):
        return all(self.nodes[self.at].live(task) for task in self.tasks)

    def check_running(self):
        if not self.alive():
            raise NotRunning(f"{self.name} does not live on {self.at}")
        # A ghost whose command was killed goes on to pause it.
        told = self.nodes[self.at].agent.job(self.name)
        if told is None or told.condition != RUNNING:
            raise NotRunning(f"{self.name} on {self.at}: {told}")

    def await_end(self, seconds):
        """NotRunning as soon as it does not run any more, which may be soon after it has ceased to do anything."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            self.check_running()
            time.sleep(0.05)  # nothing tells of it where a ghost or an agent is disturbed

    def printed(self):
        try:
            return len(self.output())
        except FileNotFoundError:
            return 0

    def get_on(self):
        """Until it has done something new; NotRunning when it ends before."""
        before, give_up = self.printed(), time.monotonic() + PROGRESS_SECONDS
        while self.printed() <= before:
            self.check_running()
            if time.monotonic() > give_up:
                self.tell()
                raise AssertionError(f"{self.name} on {self.at} lives and does nothing for {PROGRESS_SECONDS} s")
            time.sleep(0.1)  # nothing tells when a program without agent or ghost has printed

    def tell(self):
        """What its processes do, and what their ghosts have done last."""
        node = self.nodes[self.at]
        for task in self.tasks:
            with open(os.path.join(node.task_folder(task), "ghost.log"), encoding="utf-8", errors="replace") as log:
                print(f"--- ghost.log of {task}\n" + "".join(log.readlines()[-40:]), flush=True)
            hung.tell(hung.descendants(node.process(task)["init_pid"]))

    def expected(self):
        return self.sample.expected()

    def brought_back(self):
        """From an image, however old."""


class Counter(ChaosJob):
    """A server, whose client counts along."""

    count = 0
    counts = frozenset({0})
    unanswered = 0  # requests that it may have counted

    def ask(self, line):
        port = re.search(r"127\.0\.0\.1:(\d+)", self.output())[1]
        client = ("import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 30); "
                  "c.sendall(sys.argv[2].encode() + b'\\n'); print(c.makefile().readline().strip())")
        result = self.nodes[self.at].run("/usr/bin/python3", "-c", client, port, line, timeout=120)
        if result.returncode != 0:
            self.unanswered += line == "inc"
            self.await_end(60)
            raise AssertionError(f"{self.name} on {self.at} does not answer: {result.stderr}")
        return result.stdout.strip()

    def get_on(self):
        answer = self.ask("inc")
        if not answer:
            self.unanswered += 1
            self.await_end(10)  # the connection is closed before the process is gone
            raise NotRunning(f"{self.name} on {self.at} hangs up")
        if not answer.isdigit() or not self.count < int(answer) <= self.count + 1 + self.unanswered:
            raise AssertionError(f"{self.name} counts {answer} after {self.count}")
        self.count, self.unanswered = int(answer), 0
        self.counts |= {self.count}

    def brought_back(self):
        count = self.ask("get")
        known = {each + more for each in self.counts for more in range(self.unanswered + 1)}
        if not count.isdigit() or int(count) not in known:
            raise AssertionError(f"{self.name} came back with {count}, having counted {sorted(self.counts)}")
        self.count, self.unanswered = int(count), 0

    def expected(self):
        return [f"stopped at {self.count}"]

    def finish(self):
        self.ask("quit")
        status, lines = super().finish()
        return status, lines[-1:]


def make(nodes, job, name, at):
    return (Counter if job == "counter" else ChaosJob)(nodes, SAMPLES[job], name, at)
