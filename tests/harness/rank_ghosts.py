"""The coordinator's side of docs/ghost-protocol.md, "Jobs", step by step as a test wants it: the ghosts of single tasks that are
told that they are ranks of a job."""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess

from softgpu import built
from stasis_job import Job
from task_client import CODES, HEADER, MAGIC, VERSION, Reader, text

REQUEST, EVENT, RESULT, QUESTION, ANSWER = 1, 2, 3, 4, 5
KINDS = ["cut", "vote", "join", "claim", "fail"]
POINTS = ["drained", "held", "dumped", "saved", "committed", "loaded", "revived", "joined"]
GIVE_UP_SECONDS = 120


def make_ranks(jobs, name="job"):
    """Writes into their task.json that the tasks are the ranks of one job."""
    for rank, job in enumerate(jobs):
        task = job.read_json("task.json")
        task.update(job=name, rank=rank, ranks=len(jobs))
        with open(job.path("task.json"), "w", encoding="utf-8") as file:
            json.dump(task, file)


class Question:
    def __init__(self, payload):
        reader = Reader(payload)
        self.number, self.kind = reader.take("I"), KINDS[reader.take("B")]
        self.point, self.settled, self.comms, self.chunks, self.failure = None, True, [], 0, None
        if self.kind == "cut":
            self.settled = all(report[0] for report in reader.list(reader.raw))
        elif self.kind == "vote":
            self.point = POINTS[reader.take("B")]
        elif self.kind == "join":
            inner = Reader(reader.raw())
            self.comms = inner.list(lambda: {
                "comm": inner.take("Q"), "size": inner.take("i"), "made_by": inner.text(),
                "ranks": inner.list(lambda: inner.take("i")), "id": inner.raw()})
            inner.finish()
        elif self.kind == "claim":
            self.chunks = reader.take("I")
            reader.data = reader.data[:reader.at + 16 * self.chunks]
            reader.at = len(reader.data)
        else:
            self.failure = (CODES[reader.take("i")], reader.text())
        reader.finish()

    @property
    def name(self):
        return self.point or self.kind


class RankGhost:
    """The ghost of one rank, and the connection to it."""

    def __init__(self, job, rank, ranks, job_name="job"):
        self.job, self.about = job, {"name": job_name, "rank": rank, "ranks": ranks}
        self.rank, self.socket, self.ghost = rank, None, None
        self.request_id = 0
        self.forget()

    def forget(self):
        """What a new request begins with."""
        self.result, self.waiting, self.asked, self.failures = None, None, [], []

    # ---- the ghost

    def connect(self, fault=None):
        """Starts the ghost unless there is one."""
        run = os.path.join(self.job.site.run_dir, "tasks", self.job.name)
        with contextlib.suppress(OSError):
            return self._connect(run)
        env = self.job.site.env()
        env.update(entry.split("=", 1) for entry in self.job.read_json("task.json").get("driver_environment", []))
        if fault:
            env["STASIS_GHOST_FAULT"] = fault
        if self.ghost:
            self.ghost.wait(GIVE_UP_SECONDS)  # it has left, or another one takes its place
        ready, tell = os.pipe()
        self.ghost = subprocess.Popen(
            [built("bin/stasis-ghost"), "--task", self.job.name, "--state-dir", self.job.site.state, "--run-dir",
             self.job.site.run_dir, "--ready-fd", str(tell)], env=env, pass_fds=[tell], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(tell)
        with os.fdopen(ready, "rb") as file:
            assert file.read(1) == b"1", self.log()
        return self._connect(run)

    def _connect(self, run):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.path.join(run, "ghost.sock"))
        except OSError:
            connection.close()
            raise
        self.socket = connection
        self.forget()

    def log(self):
        with open(self.job.path("ghost.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def lose(self):
        """The connection ends."""
        if self.socket:
            self.socket.close()
        self.socket = None

    def close(self):
        self.lose()
        if self.ghost:
            self.ghost.wait(GIVE_UP_SECONDS)

    # ---- messages

    def _send(self, kind, payload):
        self.socket.sendall(HEADER.pack(MAGIC, VERSION, 0, kind, len(payload), self.request_id) + payload)

    def ask(self, verb, job=True, **fields):
        self.forget()
        self.request_id += 1
        request = {"verb": verb, **fields}
        if job:
            request["job"] = self.about
        self._send(REQUEST, json.dumps(request).encode())

    def call(self, verb, job=True, **fields):
        """A request without questions: its result."""
        self.ask(verb, job, **fields)
        while self.result is None:
            assert self.take(), f"{verb}: rank {self.rank}'s ghost has hung up\n{self.log()}"
            assert self.waiting is None, self.waiting.name
        return self.result

    def status(self):
        return self.call("status", job=False)

    def _receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def take(self, timeout=GIVE_UP_SECONDS):
        """The next message; False when the ghost has hung up."""
        if not select.select([self.socket], [], [], timeout)[0]:
            raise AssertionError(f"rank {self.rank}: nothing for {timeout} s\n{self.log()}")
        try:
            _, _, _, kind, size, request_id = HEADER.unpack(self._receive(HEADER.size))
            payload = self._receive(size)
        except ConnectionError:
            self.lose()
            return False
        if request_id != self.request_id:
            return True
        if kind == RESULT:
            self.result = json.loads(payload)
        elif kind == QUESTION:
            question = Question(payload)
            if question.kind != "claim":  # as many as there are threads that copy
                self.asked.append(question.name)
            if question.kind == "fail":
                self.failures.append(question.failure)
                if self.waiting:
                    self.refuse(*question.failure)
            else:
                assert self.waiting is None, "a question beside another one"
                self.waiting = question
        return True

    # ---- answers

    def answer(self, ids=b"", code="OK", message=""):
        question, self.waiting = self.waiting, None
        payload = struct.pack("=IBi", question.number, KINDS.index(question.kind), CODES.index(code)) + text(message)
        if code == "OK" and question.kind == "cut":
            nothing = struct.pack("=IIBIIB", 0, 0, 0, 0, 0, 0)  # CutTargets
            payload += struct.pack("=B", question.settled) + struct.pack("=I", len(nothing)) + nothing
        elif code == "OK" and question.kind == "join":
            ids = ids or struct.pack("=II", 0, 0)
            payload += struct.pack("=I", len(ids)) + ids
        elif code == "OK" and question.kind == "claim":
            payload += struct.pack("=I", question.chunks) + b"\1" * question.chunks
        self._send(ANSWER, payload)

    def refuse(self, code="TIMEOUT", message="rank 9: too late"):
        self.answer(code=code, message=message)


class Ranks:
    """All ghosts of a job, led in step."""

    def __init__(self, jobs):
        self.ranks = [RankGhost(job, rank, len(jobs)) for rank, job in enumerate(jobs)]
        self.failure, self.back = None, set()

    def __getitem__(self, rank):
        return self.ranks[rank]

    def __iter__(self):
        return iter(self.ranks)

    def connect(self, faults=None):
        for rank in self:
            if rank.socket is None:
                rank.connect((faults or {}).get(rank.rank))

    def begin(self, verb, *, each=None, **fields):
        """`each`: more fields, by rank."""
        self.connect()
        self.failure, self.back = None, set()
        for rank in self:
            rank.ask(verb, **fields, **(each or {}).get(rank.rank, {}))

    def lose(self):
        for rank in self:
            rank.lose()

    def close(self):
        for rank in self:
            rank.close()

    def _live(self):
        return [rank for rank in self if rank.socket and rank.result is None]

    def _meet(self):
        """Until every rank waits with a question, or is over; after a failure each is told it once."""
        for rank in self._live():
            while rank.waiting is None and rank.result is None and rank.take():
                pass
        for rank in self:
            over = rank.socket is None or (rank.result is not None and not rank.result["ok"])
            if (rank.failures or over) and rank.rank not in self.back:
                self.back.add(rank.rank)
                code, message = rank.failures[0] if rank.failures else ("PEER_DIED", "its ghost is gone")
                self.failure = self.failure or (code, f"rank {rank.rank}: {message}")
        if self.failure:
            self.refuse(*self.failure)
        # Communicators are made again by all or by none.
        if any(rank.socket is None or rank.result is not None for rank in self):
            for rank in self._live():
                if rank.waiting and rank.waiting.kind == "join" and self.failure:
                    rank.refuse(*self.failure)

    def refuse(self, code="TIMEOUT", message="rank 9: too late"):
        """To all that wait and have not been told yet."""
        self.failure = (code, message)
        told = [rank for rank in self._live() if rank.waiting and rank.rank not in self.back]
        for rank in told:
            self.back.add(rank.rank)
            rank.refuse(code, message)
        if told:
            self._meet()

    def _claims(self):
        claiming = [rank for rank in self._live() if rank.waiting and rank.waiting.kind == "claim"]
        for rank in claiming:
            rank.answer()
        return bool(claiming)

    def until(self, name):
        """Answers everything with OK until all that are not over wait with the question `name`."""
        while True:
            self._meet()
            waiting = [rank for rank in self._live() if rank.waiting]
            assert waiting, f"nobody asks {name}: {[rank.result for rank in self]}"
            if all(rank.waiting.name == name for rank in waiting):
                return
            if not self._claims():
                self.answer()

    def answer(self):
        """To all that wait: OK, with the ids that they have brought together."""
        waiting = [rank for rank in self._live() if rank.waiting]
        found = [comm for rank in waiting for comm in rank.waiting.comms if comm["id"]]
        ids = struct.pack("=II", 0, len(found)) + b"".join(
            struct.pack("=QI", comm["comm"], len(comm["id"])) + comm["id"] for comm in found)
        for rank in waiting:
            rank.answer(ids=ids)

    def finish(self):
        """Answers everything with OK until all are over; their results, None where the connection has ended."""
        while self._live():
            self._meet()
            if not self._claims():
                self.answer()
        return [rank.result for rank in self]

    def run(self, verb, **fields):
        self.begin(verb, **fields)
        return self.finish()


__all__ = ["Job", "RankGhost", "Ranks", "make_ranks"]
