"""Jobs of several ranks under `stasis run --ranks`, each rank a task of its own."""

import os
import signal
import subprocess

from softgpu import built, die_with_parent
from stasis_job import GIVE_UP_SECONDS, Job, Site, VerbFailed


class RankSite(Site):
    """A site on which jobs of ranks are started."""

    def start_ranks(self, name, ranks, *program, options=(), **extra):
        """Starts a detached job."""
        self.ok("run", "--detach", "--name", name, "--device", "soft", "--ranks", ranks, *options, "--", *program, **extra)
        return RankJob(self, name, ranks)


class RankJob:
    def __init__(self, site, name, ranks):
        self.site = site
        self.name = name
        self.ranks = [Job(site, f"{name}.{rank}") for rank in range(ranks)]

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

    def alive(self):
        return all(rank.alive() for rank in self.ranks)

    def lines(self):
        """What all ranks have printed, sorted."""
        return sorted(line for rank in self.ranks for line in rank.output().splitlines())

    def wait(self, timeout=GIVE_UP_SECONDS):
        """The exit status of each rank, by rank."""
        return [rank.wait(timeout) for rank in self.ranks]

    def pid(self, rank):
        return self.ranks[rank].process()["pid"]

    def stop(self, rank):
        """As `kill -STOP` of one rank's program does."""
        os.kill(self.pid(rank), signal.SIGSTOP)

    def go_on(self, rank):
        os.kill(self.pid(rank), signal.SIGCONT)

    def kill(self, rank):
        os.kill(self.pid(rank), signal.SIGKILL)


__all__ = ["Job", "RankJob", "RankSite", "VerbFailed", "built"]
