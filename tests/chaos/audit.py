"""What may be left on a node once its jobs have been removed: nothing that was not there before."""

import collections
import contextlib
import glob
import os
import re
import time

SECONDS = 60  # for what is on its way out: an agent lets go of what came from one that says nothing any more
# Of the agent and of the store itself.
STATE_FILES = re.compile(r"(agent\.db(-wal|-shm)?|agent\.id|store/(format|locks|image-locks))$|.*\.lock$")
RUN_FILES = re.compile(r"stasisd\.(sock|lock)|.*\.lock$")
# Connections of clients and other agents come and go.
MAX_MORE = {"socket": 8}
LIST_TABLES = """
import ctypes
nft = ctypes.CDLL("libnftables.so.1")
nft.nft_ctx_new.restype, nft.nft_ctx_get_output_buffer.restype = ctypes.c_void_p, ctypes.c_char_p
context = ctypes.c_void_p(nft.nft_ctx_new(0))
nft.nft_ctx_buffer_output(context)
assert nft.nft_run_cmd_from_buffer(context, b"list tables") == 0
print(nft.nft_ctx_get_output_buffer(context).decode())
"""


def state(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def open_files(pid):
    """How many descriptors there are of each kind."""
    kinds = collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            kinds[re.sub(r":\[\d+\]|/proc/\d+", "", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
    return kinds


def mounts(node):
    with open(f"/proc/{node.keeper.pid}/mountinfo", encoding="utf-8") as file:
        # What the machine mounts elsewhere is not shared with the node; its own are.
        return sorted(line.split(" ", 5)[4] for line in file)


def files_below(folder, known):
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(place, name), folder)
            if not known.match(path):
                found.append(path)
    return found


def own_cgroups():
    return set(glob.glob(f"/sys/fs/cgroup/**/stasis-chaos*-{os.getpid()}*", recursive=True))


class Audit:
    """Of one node. Made before anything has happened on it; findings() are then what has been left behind."""

    def __init__(self, node):
        self.node = node
        self.seconds = SECONDS
        self.mounts = mounts(node)
        self.cgroups_before = own_cgroups()  # a world that a failed run has left was ended by force
        self.new_agent()

    def new_agent(self):
        """Another process has taken its place."""
        self.agent = self.node.stasisd.pid
        self.open_files = open_files(self.agent)

    def until(self, check):
        """The findings of `check`, once there are none, or after a while."""
        give_up = time.monotonic() + self.seconds
        while (found := check()) and time.monotonic() < give_up:
            time.sleep(0.05)  # nothing tells when a process of nobody's has ended
        return found

    def findings(self):
        """With nothing there of any job."""
        found = []
        for check in (self.processes, self.device_memory, self.descriptors, self.store, self.run_files, self.mounted, self.tables,
                      self.cgroups):
            found += [f"{self.node.name}: {finding}" for finding in self.until(check)]
        return found

    def processes(self):
        own = {self.node.keeper.pid, self.node.daemon.pid, self.node.stasisd.pid}
        return [f"process {pid} ({state(pid)}) is left: {command}" for pid, command in self.node.processes().items()
                if pid not in own]

    def device_memory(self):
        return [f"device {device['index']}: {device['memory_used']} bytes are used, by {device['pids']}"
                for device in self.node.devices() if device["memory_used"] or device["pids"]]

    def descriptors(self):
        if self.node.stasisd.pid != self.agent:
            self.new_agent()
            return []
        more = open_files(self.agent) - self.open_files
        return [f"stasisd has {count} more of {kind}" for kind, count in more.items() if count > MAX_MORE.get(kind, 0)]

    def store(self):
        status, answer, stderr = self.node.stasis("images gc")
        if status != 0:
            return [f"images gc: {answer} {stderr}"]
        status, answer, stderr = self.node.stasis("images verify")
        return self.state_files() if status == 0 else [f"images verify: {answer} {stderr}"]

    def state_files(self):
        return [f"{path} is left in the state folder"
                for path in files_below(self.node.path(self.node.state), STATE_FILES)]

    def run_files(self):
        return [f"{path} is left in the run folder" for path in files_below(self.node.path(self.node.run_dir), RUN_FILES)]

    def mounted(self):
        return [f"{place} is mounted" for place in mounts(self.node) if place not in self.mounts]

    def tables(self):
        result = self.node.run("/usr/bin/python3", "-c", LIST_TABLES, timeout=60)
        if result.returncode != 0:
            return [f"nftables cannot be asked: {result.stderr}"]
        return [f"{line} of nftables is left" for line in result.stdout.splitlines() if line.strip()]

    def cgroups(self):
        return [f"{folder} is left" for folder in sorted(own_cgroups() - self.cgroups_before)]
