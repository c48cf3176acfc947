"""What happens to a verb: begun at its moment by a thread of its own, and healed when the verb has ended."""

import concurrent.futures
import contextlib
import os
import resource
import signal
import struct
import threading
import time

import hung

CRIU_SECONDS = 0.15  # that it takes, or less
MAX_STOP_SECONDS, MAX_CUT_SECONDS = 2.0, 4.0
SLOW_BITS, FAR_SECONDS = 80_000_000, 0.1
LEAVE_BYTES = (0, 1 << 16, 1 << 20, 16 << 20)
MAX_MORE_MEMORY = 24 << 20
CLOCK_HOURS = 20  # less than the certificates are good for


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def signal_process(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


class Strike:
    """One fault at one verb. `struck`: whether it found its victim in time."""

    def __init__(self, world, job, each, usual):
        self.world, self.job, self.round = world, job, each
        self.here = world.nodes[job.at]
        self.there = world.nodes["right" if job.at == "left" else "left"]
        self.delay = each.moment * usual
        self.over = threading.Event()
        self.command = None  # the process that carries the verb out
        self.struck = False
        self.heal = contextlib.ExitStack()
        self.thread = None

    def __enter__(self):
        if self.round.kind != "none":
            self.thread = self.world.striker.submit(self.run)
        return self

    def __exit__(self, *_):
        self.over.set()
        try:
            if self.thread:
                concurrent.futures.wait([self.thread])
        finally:
            self.heal.close()
        if self.thread and self.thread.exception():
            raise self.thread.exception()

    def run(self):
        if self.over.wait(self.delay):
            return
        method = getattr(self, self.round.kind)
        self.struck = bool(method(self.round.what))

    def choose(self, among):
        return among[self.round.victim % len(among)] if among else None

    # ---- victims

    def programs(self):
        """Of the node that the job is on: all processes of its tasks but the first."""
        found = []
        for task in self.job.tasks:
            process = self.here.process(task)
            if process and self.here.live(task):
                found += hung.descendants(process["init_pid"])[1:]
        return found

    def inits(self):
        processes = [self.here.process(task) for task in self.job.tasks if self.here.live(task)]
        return [process["init_pid"] for process in processes if process]

    def ghosts(self):
        return self.here.ghosts() + self.there.ghosts()

    def await_criu(self):
        """It is about to start, and is soon done; nothing tells when."""
        while not self.over.is_set():
            for ghost in self.ghosts():
                found = [pid for pid in hung.descendants(ghost) if comm(pid) == "criu"]
                if found:
                    self.over.wait(self.round.amount * CRIU_SECONDS)
                    return [pid for pid in hung.descendants(ghost) if comm(pid) == "criu"]
            self.over.wait(0.01)
        return []

    def victims(self, what):
        found = {"program": self.programs, "init": self.inits, "ghost": self.ghosts, "criu": self.await_criu}.get(what)
        if found:
            return found()
        return {"agent": [self.here.stasisd.pid], "softgpud": [self.here.daemon.pid],
                "command": [self.command.pid] if self.command and self.command.poll() is None else []}[what]

    # ---- what happens, by kind

    def kill(self, what):
        if what in ("agent", "peer-agent"):
            node = self.here if what == "agent" else self.there
            node.kill_agent()
            node.start_agent()
            return True
        if what == "softgpud":
            self.here.daemon.kill()
            self.here.daemon.wait()
            self.here.start_daemon()
            return True
        if what == "ghosts":  # with their guardians
            return any([signal_process(ghost, signal.SIGKILL) for ghost in self.ghosts()])
        victim = self.choose(self.victims(what))
        return victim is not None and signal_process(victim, signal.SIGKILL)

    def stop(self, what):
        victim = self.choose(self.victims(what))
        if victim is None or not signal_process(victim, signal.SIGSTOP):
            return False
        self.heal.callback(signal_process, victim, signal.SIGCONT)
        time.sleep(self.round.amount * MAX_STOP_SECONDS)
        signal_process(victim, signal.SIGCONT)
        return True

    def disk(self, what):
        node = self.here if what == "here" else self.there
        filler = node.fill_disk(leave=LEAVE_BYTES[int(self.round.amount * len(LEAVE_BYTES))])
        self.heal.callback(os.remove, filler)
        return True

    def network(self, what):
        if what == "cut":
            self.world.nodes.cut(self.here.name)
            self.over.wait(self.round.amount * MAX_CUT_SECONDS)
            self.world.nodes.join()
            return True
        self.world.nodes.network(**({"rate": SLOW_BITS} if what == "slow" else {"delay": FAR_SECONDS}))
        self.heal.callback(self.world.nodes.network, rate=self.world.nodes.rate, delay=self.world.nodes.delay)
        return True

    def memory(self, what):
        if what == "device":
            self.fault_devices(f"oom-after={int(self.round.amount * 6)}", "none")
            return True
        ghosts = self.ghosts()
        for ghost in ghosts:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
                with open(f"/proc/{ghost}/statm", encoding="ascii") as file:
                    now = int(file.read().split()[0]) * resource.getpagesize()
                limit = now + int(self.round.amount * MAX_MORE_MEMORY)
                resource.prlimit(ghost, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        self.heal.callback(self.lift_memory_limits)
        return bool(ghosts)

    def lift_memory_limits(self):
        """Of those, too, which a limited ghost has begun: those of before its own was lifted are there to be found afterwards."""
        lifted = set()
        while more := set(self.ghosts()) - lifted:
            for pid in more:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            lifted |= more

    def device(self, what):
        self.fault_devices("slow=0.1" if what == "slow" else what, "none" if what == "slow" else "reset")
        return True

    def fault_devices(self, kind, healed):
        """All devices of the node: which of them a job is on is its own affair."""
        def fault(kind):
            for index in range(len(self.here.devices())):
                result = self.here.smi("fault", "--gpu", str(index), "--kind", kind)
                if result.returncode != 0:
                    raise AssertionError(f"softgpu-smi fault {kind}: {result.stderr}")
        fault(kind)
        self.heal.callback(fault, healed)

    def clock(self, _):
        self.step_clock(int(self.round.amount * CLOCK_HOURS * 3600e9))
        self.heal.callback(self.step_clock, 0)
        return True

    def step_clock(self, nanoseconds):
        with open(self.world.clock_file, "r+b") as file:
            file.write(struct.pack("q", nanoseconds))
