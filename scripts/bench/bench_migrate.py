"""Migration between two nodes against the size of the job and the bandwidth between them, with and without pre-copy, beside what
a user does without it: `stasis checkpoint --stop` to a disk that both nodes share and `stasis restore` there, and the program's own
checkpoint, with which it is started anew.

All are measured from outside, by the lines that the program prints, one a step: the standstill is the time between the last line on
the one node and the first on the other, less that of a step; the total begins when the move is asked for. The disk that is shared
costs each byte of an image one way over the network, as nothing but its bytes, and nothing more: the baselines' best case.
"""

import os
import re
import select
import statistics
import subprocess
import sys
import threading
import time

import report
from agents import AgentNodes
from moving_job import MovingJob, Sample
from softgpu import LIBC, built

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "3"))
RATES = [int(rate) for rate in os.environ.get("STASIS_BENCH_MBITS", "100 400").split()]
DELAY = 0.0005
FOREVER = "100000000"
# Name, options: what the program holds on the device. A step computes little, so that it is short beside what is measured.
PROGRAMS = {
    "small": ["--batch", "1", "--width", "256", "--hidden", "1"],
    "medium": ["--batch", "1", "--width", "768", "--hidden", "3"],
    "large": ["--batch", "1", "--width", "1536", "--hidden", "3"],
}
CHOSEN = os.environ.get("STASIS_BENCH_PROGRAMS", " ".join(PROGRAMS)).split()
DEVICE = ["--gpus", "1", "--memory", "2GiB"]
RECEIVE = """
import socket, sys
server = socket.create_server(("0.0.0.0", 5000))
print("ready", flush=True)
connection, _ = server.accept()
with open(sys.argv[1], "wb") as file:
    while data := connection.recv(1 << 20):
        file.write(data)
connection.sendall(b"x")
"""
SEND = """
import socket, sys
connection = socket.create_connection((sys.argv[2], 5000))
with open(sys.argv[1], "rb") as file:
    connection.sendfile(file)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
"""


class Lines:
    """The times at which lines with a step come into a file that grows, from where it is now."""

    def __init__(self, path, beginning=False):
        self.file = open(path, "rb")
        self.file.seek(0, os.SEEK_SET if beginning else os.SEEK_END)
        self.events = LIBC.inotify_init1(os.O_CLOEXEC)
        in_modify = 0x2
        if self.events < 0 or LIBC.inotify_add_watch(self.events, os.fsencode(path), in_modify) < 0:
            raise OSError(f"cannot watch {path}")
        self.times = {}
        self.over = threading.Event()
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        rest = b""
        while not self.over.is_set():
            *lines, rest = (rest + self.file.read()).split(b"\n")
            now = time.monotonic()
            with self.changed:
                for line in lines:
                    if match := re.match(rb"step (\d+) ", line):
                        self.times.setdefault(int(match[1]), now)
                self.changed.notify_all()
            if select.select([self.events], [], [], 0.5)[0]:
                os.read(self.events, 65536)

    def wait_for_more(self, count, seconds=120):
        with self.changed:
            wanted = len(self.times) + count
            if not self.changed.wait_for(lambda: len(self.times) >= wanted, seconds):
                raise AssertionError(f"no step for {seconds} s")

    def wait_after(self, step, seconds=120):
        with self.changed:
            if not self.changed.wait_for(lambda: any(each > step for each in self.times), seconds):
                raise AssertionError(f"no step after {step} for {seconds} s")

    def end(self):
        self.over.set()
        self.thread.join()
        os.close(self.events)
        self.file.close()
        return self.times


def step_seconds(times):
    """Of the later steps: the first come in one piece where the file had some."""
    at = [times[step] for step in sorted(times)]
    return statistics.median([after - before for before, after in zip(at, at[1:])] or [0])


class Move:
    """What a move took, by the lines on either side."""

    def __init__(self, asked, before, after):
        last = max(before)
        first = min(step for step in after if step > last)
        assert first == last + 1, f"steps {last} and {first} do not follow each other"
        step = step_seconds(before)
        self.standstill = max(0.0, after[first] - before[last] - step) * 1000
        self.total = max(0.0, after[first] - asked - step) * 1000
        self.step = step * 1000


class Bench:
    def __init__(self, nodes, options):
        self.nodes = nodes
        self.options = options
        self.count = 0

    def start(self, frozen):
        self.count += 1
        more = ["--freeze-after", "5"] if frozen else []
        sample = Sample("mlp_train", "--steps", FOREVER, "--log-every", "1", *self.options, *more)
        job = MovingJob(self.nodes, sample, f"job-{self.count}", "left").start()
        return job

    def lines(self, job, beginning=False):
        return Lines(os.path.join(self.nodes[job.at].task_folder(job.name), "output.log"), beginning)

    def end(self, job):
        node = self.nodes[job.at]
        node.agent.call("cancel", job=job.name)
        for node in self.nodes.nodes.values():
            if node.agent.job(job.name):
                node.agent.call("remove", job=job.name, images=True)

    def migrate(self, precopy, frozen):
        job = self.start(frozen)
        before = self.lines(job)
        before.wait_for_more(15)
        asked = time.monotonic()
        operation = job.migrate("right", precopy=precopy)
        after = self.lines(job, beginning=True)
        last = max(before.end())
        after.wait_after(last)
        move = Move(asked, before.times, after.end())
        move.operation = operation
        self.end(job)
        return move

    def copy(self, source, target, path, there):
        """A file, over the network."""
        receiver = target.start("/usr/bin/python3", "-c", RECEIVE, there)
        assert receiver.stdout.readline() == "ready\n"
        result = source.run("/usr/bin/python3", "-c", SEND, path, target.address, timeout=600)
        receiver.communicate(timeout=60)
        assert result.returncode == 0 and receiver.returncode == 0, result.stderr

    def shared_disk(self, frozen):
        """By hand, with the image on a disk that both have."""
        job = self.start(frozen)
        left, right = self.nodes["left"], self.nodes["right"]
        before = self.lines(job)
        before.wait_for_more(15)
        asked = time.monotonic()
        self.verb(left, "checkpoint", "--stop", job.name)
        # What is on the disk. That the files are packed and unpacked here is none of the baseline's affair.
        begin = time.monotonic()
        packed = left.path("/tmp/" + os.path.basename(self.nodes.root) + ".tar")
        subprocess.run(["tar", "-C", left.path(left.state), "-cf", packed, "store", "tasks/" + job.name], check=True)
        unpack = time.monotonic() - begin
        received = packed + ".received"
        self.copy(left, right, packed, received)
        begin = time.monotonic()
        subprocess.run(["tar", "-C", right.path(right.state), "-xf", received], check=True)
        unpack += time.monotonic() - begin
        self.verb(right, "restore", "--detach", job.name)
        job.at = "right"
        after = self.lines(job, beginning=True)
        last = max(before.end())
        after.wait_after(last)
        move = Move(asked, before.times, after.end())
        move.standstill -= unpack * 1000
        move.total -= unpack * 1000
        move.bytes = os.path.getsize(packed)
        os.remove(packed)
        os.remove(received)
        self.verb(right, "cancel", job.name)
        for node in (left, right):
            node.stasis("rm", job.name)
        return move

    def verb(self, node, *arguments):
        status, answer, error = node.stasis(*arguments)
        if status != 0:
            raise AssertionError(f"{arguments} on {node.name}: {answer} {error}")
        return answer

    def own_checkpoint(self, frozen):
        """The program saves itself, its file goes over, and it is started anew."""
        left, right = self.nodes["left"], self.nodes["right"]
        command = [built("samples/mlp_train"), "--steps", FOREVER, "--log-every", "1", *self.options]
        command += ["--freeze-after", "5"] if frozen else []
        state = os.path.join(self.nodes.root, "disk", "saved")
        at = 25
        before, asked = self.follow(left.start(*command, "--save", state, "--save-at", str(at)), None), None
        asked = before[at]
        self.copy(left, right, state, state)
        size = os.path.getsize(left.path(state))
        after = self.follow(right.start(*command, "--load", state), at)
        os.remove(left.path(state))
        os.remove(right.path(state))
        move = Move(asked, {step: when for step, when in before.items() if step > 5}, after)
        move.bytes = size
        return move

    def follow(self, program, after):
        """When its lines came: to its end, or to the first step after that one."""
        times = {}
        for line in program.stdout:
            if match := re.match(r"step (\d+) ", line):
                times[int(match[1])] = time.monotonic()
                if after is not None and int(match[1]) > after:
                    program.kill()
                    break
        program.communicate()
        return times


def network_row(nodes, rate):
    """What the network gives to a copy."""
    left, right = nodes["left"], nodes["right"]
    path, size = os.path.join(nodes.root, "disk", "random"), 16 << 20
    with open(left.path(path), "wb") as file:
        file.write(os.urandom(size))
    speeds = []
    for _ in range(RUNS):
        begin = time.monotonic()
        Bench(nodes, []).copy(left, right, path, path)
        speeds.append(size * 8 / (time.monotonic() - begin) / 1e6)
    os.remove(left.path(path))
    os.remove(right.path(path))
    return report.row(f"the network at {rate} Mbit/s: a copy of {size >> 20} MiB, with the programs that do it", "Mbit/s", speeds)


def measure(nodes, name, rate, frozen):
    bench = Bench(nodes, PROGRAMS[name])
    kinds = {"never": lambda: bench.migrate("never", frozen), "always": lambda: bench.migrate("always", frozen),
             "auto": lambda: bench.migrate("auto", frozen), "disk": lambda: bench.shared_disk(frozen),
             "own": lambda: bench.own_checkpoint(frozen)}
    moves = {kind: [] for kind in kinds}
    for run in range(RUNS):
        order = list(kinds) if run % 2 == 0 else list(reversed(kinds))
        for kind in order:
            moves[kind].append(kinds[kind]())
            print(f"{name} {rate} Mbit/s {'frozen' if frozen else 'trains'} {kind}: standstill {moves[kind][-1].standstill:.0f} ms, "
                  f"total {moves[kind][-1].total:.0f} ms, step {moves[kind][-1].step:.0f} ms, "
                  f"{getattr(moves[kind][-1], 'bytes', 0) >> 20} MiB", file=sys.stderr, flush=True)
    return moves


def rows_of(name, rate, frozen, moves):
    mib = round(moves["disk"][0].bytes / 2**20)
    label = f"{name} ({mib} MiB), {rate} Mbit/s, {'frozen' if frozen else 'trains'}"

    def figures(kind, what):
        return [getattr(move, what) for move in moves[kind]]

    rows = []
    for kind in ("never", "always", "auto"):
        precopy = {"never": "no pre-copy", "always": "pre-copy", "auto": "as it chooses"}[kind]
        for what, base, goal, limit in (("standstill", "disk", "1/2 of checkpoint and restore", 0.5),
                                        ("total", "own", "1/1.7 of save and restart", 1 / 1.7)):
            row = report.row(f"{label}, {precopy}: {what}", "ms", figures(kind, what), figures(base, what),
                             goal if kind == "auto" else None)
            if kind == "auto":
                row["met"] = row["ratio"] <= limit
            rows.append(row)
    rows.append(report.row(f"{label}: checkpoint and restore by a shared disk, total", "ms", figures("disk", "total")))
    rows.append(report.row(f"{label}: save and restart, size of the file", "bytes", figures("own", "bytes")))
    rows.append(report.row(f"{label}: a step", "ms", figures("never", "step")))
    return rows


def main():
    rows = []
    for rate in RATES:
        with AgentNodes(rate=rate * 1_000_000, delay=DELAY, left=DEVICE, right=DEVICE) as nodes:
            rows.append(network_row(nodes, rate))
            nodes.start_agents()
            for name in CHOSEN:
                for frozen in (False, True):
                    rows += rows_of(name, rate, frozen, measure(nodes, name, rate, frozen))
    report.write(sys.argv[1], "migrate", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with report.large_device_pages():
        main()
