"""Jobs of several ranks under `stasis`: each rank a task of its own (`stasis run --ranks`), or all of them in one tree, started
by a launcher."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

from softgpu import LIBC, built, die_with_parent
from stasis_job import GIVE_UP_SECONDS, Job, Site, VerbFailed


class RankSite(Site):
    """A site on which jobs of ranks are started."""

    def start_ranks(self, name, ranks, *program, options=(), **extra):
        """Starts a detached job."""
        self.ok("run", "--detach", "--name", name, "--device", "soft", "--ranks", ranks, *options, "--", *program, **extra)
        return RankJob(self, name, ranks)

    def start_tree(self, name, ranks, *program, options=(), **extra):
        """Starts a detached task in which a launcher starts the ranks."""
        launcher = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_launcher.py")
        self.start(name, sys.executable, "-B", launcher, str(ranks), *program, options=options, **extra)
        return RankTree(self, name, ranks)


class GhostLog:
    """What the ghost of a rank writes from now on."""

    def __init__(self, rank):
        self.path = rank.path("ghost.log")
        self.offset = os.path.getsize(self.path) if os.path.exists(self.path) else 0
        self.events = LIBC.inotify_init1(os.O_CLOEXEC)
        in_modify, in_create = 0x2, 0x100
        if self.events < 0 or LIBC.inotify_add_watch(self.events, os.fsencode(os.path.dirname(self.path)), in_modify | in_create) < 0:
            raise OSError(f"cannot watch {self.path}")

    def wait_for(self, text, seconds):
        """Whether it has come by then."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(FileNotFoundError), open(self.path, encoding="utf-8", errors="replace") as log:
                log.seek(self.offset)
                if text in log.read():
                    return True
            if not select.select([self.events], [], [], max(0, end - time.monotonic()))[0]:
                return False
            os.read(self.events, 65536)

    def close(self):
        os.close(self.events)


class Ranks:
    """What both kinds of job have; pid() tells the process of a rank."""

    def __init__(self, site, name, count):
        self.site = site
        self.name = name
        self.count = count

    def verb(self, verb, *arguments, **extra):
        """A verb on all ranks, which must succeed: its answer."""
        return self.site.ok(verb, self.name, *arguments, **extra)

    def call(self, verb, *arguments, **extra):
        """A verb on all ranks: (exit status, its answer)."""
        status, answer, _ = self.site.call(verb, self.name, *arguments, **extra)
        return status, answer

    def start_verb(self, verb, *arguments):
        """A verb that goes on meanwhile; communicate() gives its JSON."""
        return subprocess.Popen([built("bin/stasis"), verb, "--json", self.name, *map(str, arguments)], env=self.site.env(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=die_with_parent)

    def stop(self, rank):
        """As `kill -STOP` of one rank's program does."""
        os.kill(self.pid(rank), signal.SIGSTOP)

    def go_on(self, rank):
        os.kill(self.pid(rank), signal.SIGCONT)

    def kill(self, rank):
        os.kill(self.pid(rank), signal.SIGKILL)


class RankJob(Ranks):
    def __init__(self, site, name, count):
        super().__init__(site, name, count)
        self.ranks = [Job(site, f"{name}.{rank}") for rank in range(count)]

    def alive(self):
        """All of them are."""
        return all(rank.alive() for rank in self.ranks)

    def lines(self):
        """What all ranks have printed, sorted."""
        return sorted(line for rank in self.ranks for line in rank.output().splitlines())

    def wait(self, timeout=GIVE_UP_SECONDS):
        """The first exit status that is not 0."""
        return next(filter(None, [rank.wait(timeout) for rank in self.ranks]), 0)

    def wait_for_output(self, text):
        """Of rank 0."""
        self.ranks[0].wait_for_output(text)

    def pid(self, rank):
        return self.ranks[rank].process()["pid"]

    def ghost_log(self, rank):
        return GhostLog(self.ranks[rank])


class RankTree(Ranks):
    def __init__(self, site, name, count):
        super().__init__(site, name, count)
        self.task = Job(site, name)

    def alive(self):
        return self.task.alive()

    def lines(self):
        return sorted(self.task.output().splitlines())

    def wait(self, timeout=GIVE_UP_SECONDS):
        return self.task.wait(timeout)

    def wait_for_output(self, text):
        self.task.wait_for_output(text)

    def ghost_log(self, _):
        return GhostLog(self.task)

    def pid(self, rank):
        """By the environment that the launcher has given it."""
        launcher = self.task.process()["pid"]
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as children:
                for pid in map(int, children.read().split()):
                    with open(f"/proc/{pid}/environ", "rb") as environment:
                        if f"RANK={rank}".encode() in environment.read().split(b"\0"):
                            return pid
        raise ProcessLookupError(f"{self.name} has no rank {rank}")


__all__ = ["Job", "RankJob", "RankSite", "RankTree", "VerbFailed", "built"]
