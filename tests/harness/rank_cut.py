"""The ghost's part in a pause of several processes whose NCCL communicators reach each other (ghost/cut.h), for tests that
talk to the processes' control sockets themselves."""

import concurrent.futures
import struct
import time

from task_client import left_ms

STILL = 0.1  # seconds without movement before held calls go on


class NoCut(Exception):
    """The ranks have not come to a cut in time."""


def _keys(keys):
    return struct.pack(f"=I{len(keys)}Q", len(keys), *keys)


def _counts(rank):
    peers = b"".join(struct.pack("=I", len(rank[kind])) +
                     b"".join(struct.pack("=iQ", peer, count) for peer, count in sorted(rank[kind].items()))
                     for kind in ("sends", "receives"))
    return struct.pack("=Q", rank["collectives"]) + peers


class Targets:
    """CutTargets (base/rank_protocol.h)."""

    def __init__(self):
        self.ranks, self.meetings, self.making, self.used, self.ended, self.admit_all = [], set(), False, set(), set(), False

    def encoded(self):
        ranks = b"".join(struct.pack("=Qi", rank["comm"], rank["rank"]) + _counts(rank) for rank in self.ranks)
        return (struct.pack("=I", len(self.ranks)) + ranks + _keys(self.meetings) + struct.pack("=B", self.making) +
                _keys(self.used) + _keys(self.ended) + struct.pack("=B", self.admit_all))


def _target(rank, living):
    target = {"comm": rank["comm"], "rank": rank["rank"], "collectives": max(peer["collectives"] for peer in living),
              "sends": dict(rank["sends"]), "receives": dict(rank["receives"])}
    for peer in living:
        for mine, theirs in (("sends", "receives"), ("receives", "sends")):
            count = peer[theirs].get(rank["rank"], 0)
            if count > target[mine].get(peer["rank"], 0):
                target[mine][peer["rank"]] = count
    return target


def next_targets(reports, told):
    """What the processes are told next, and whether they are at the cut."""
    targets, at_cut = Targets(), all(report["settled"] for report in reports)
    ranks = [rank for report in reports for rank in report["ranks"]]
    for rank in ranks:
        living = [peer for peer in ranks if peer["comm"] == rank["comm"] and not peer["over"]]
        over = [peer for peer in ranks if peer["comm"] == rank["comm"] and peer["over"]]
        if rank["over"]:
            continue
        if over:
            targets.ended.add(rank["comm"])
        targets.ranks.append(_target(rank, living))
        same = all(targets.ranks[-1][kind] == rank[kind] for kind in ("collectives", "sends", "receives"))
        whole = len({peer["rank"] for peer in living + over}) == rank["size"]
        at_cut = at_cut and same and whole and len({peer["windows"] for peer in living}) == 1
    for report in reports:
        targets.meetings.update(report["meetings"])
        targets.used.update(report["used"])
        targets.making = targets.making or report["making"]
    at_cut = at_cut and not targets.meetings and not targets.making and targets.ended == told.ended
    return targets, at_cut


class Together:
    """Several processes, each with its connection, that are paused and go on together."""

    def __init__(self, tasks):
        self.tasks = list(tasks)
        self.pool = concurrent.futures.ThreadPoolExecutor(len(self.tasks))
        self.targets = Targets()

    def close(self):
        self.pool.shutdown()

    def each(self, function):
        """Of all processes at the same time; what each has answered. The first error is raised when all are done."""
        futures = [self.pool.submit(function, task) for task in self.tasks]
        concurrent.futures.wait(futures)
        return [future.result() for future in futures]

    def find_cut(self, deadline_ms=20000):
        """Running -> Quiescing, at the cut. Returns the number of rounds."""
        end = time.monotonic() + deadline_ms / 1000
        self.targets = Targets()
        reports = self.each(lambda task: task.shut(left_ms(end)))
        moved, rounds = time.monotonic(), 0
        while True:
            told, events = self.targets, [report["events"] for report in reports]
            self.targets, at_cut = next_targets(reports, told)
            if at_cut:
                return rounds
            if time.monotonic() > end:
                raise NoCut([report["missing"] for report in reports])
            self.targets.admit_all = time.monotonic() - moved > STILL
            encoded, admit_all = self.targets.encoded(), self.targets.admit_all
            reports = self.each(lambda task: task.cut(encoded, left_ms(end)))
            rounds += 1
            if admit_all or events != [report["events"] for report in reports]:
                moved = time.monotonic()

    def quiesce(self, deadline_ms=20000):
        """Running -> Quiesced."""
        rounds = self.find_cut(deadline_ms)
        self.each(lambda task: task.drain(deadline_ms))
        self.each(lambda task: task.give_up())
        return rounds

    def ids(self):
        """One of each communicator that has to be made again; all of its ranks have to be there."""
        comms = [comm for reports in self.each(lambda task: task.comms()) for comm in reports]
        for comm in comms:
            ranks = sorted(rank for other in comms if other["comm"] == comm["comm"] for rank in other["ranks"])
            assert ranks == list(range(comm["size"])), f"{comm['made_by']}: only ranks {ranks} of {comm['size']} are there"
        return [(comm["comm"], comm["id"]) for comm in comms if comm["id"]]

    def go_on(self, deadline_ms=20000):
        """Quiesced -> Running."""
        ids = self.ids()
        self.each(lambda task: task.rejoin(ids, deadline_ms))
        self.each(lambda task: task.resume())
