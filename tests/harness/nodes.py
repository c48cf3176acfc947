"""Several nodes on one machine: each has its own network, mounts, host name and softgpu daemon, and shares everything else.

Programs get into a node by the prefix `through`. The daemon's socket lies at the same path in every node. Packets between the
nodes pass a router, a network of its own. All of it goes with the processes that hold it, which end with the test."""

import contextlib
import json
import os
import subprocess
import tempfile

from softgpu import BUILD, Node, built, die_with_parent
from stasis_ranks import RankSite


class Keeper:
    """A process that holds namespaces. It ends when its input does."""

    def __init__(self, unshare_options, setup="true"):
        self.process = subprocess.Popen(["unshare", *unshare_options, "sh", "-c", f"{setup} && echo ready && exec cat"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("no namespaces: " + " ".join(unshare_options))
        self.pid = self.process.pid

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class PlacedNode(Node):
    """A node of Nodes: `name`, `address`, `through`, and all that softgpu's Node has."""

    def __init__(self, name, number, socket, *options):
        super().__init__(*options)
        self.name = name
        self.address = f"10.77.{number}.2"
        self.router = f"10.77.{number}.1"
        self.socket = socket
        self.keeper = None
        self.through = []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="softgpu-test-")
        self.log = open(os.path.join(self.folder.name, "softgpud.log"), "w+")
        own = os.path.join(self.folder.name, "d")
        os.mkdir(own, 0o700)
        self.keeper = Keeper(["--net", "--mount", "--uts", "--propagation", "private"],
                             f"mount --bind {own} {os.path.dirname(self.socket)} && hostname {self.name}")
        # nsenter stays in front of a program for nothing: without a new PID namespace it becomes the program.
        self.through = ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", "-u", "--"]
        self.start_daemon()
        return self

    def daemon_command(self, *arguments):
        return [*self.through, *super().daemon_command(*arguments)]

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        self.keeper.end()

    def start(self, *command, **options):
        return super().start(*self.through, *command, **options)

    def run(self, *command, **options):
        return super().run(*self.through, *command, **options)

    def smi(self, *arguments):
        return subprocess.run([*self.through, built("bin/softgpu-smi"), "--socket", self.socket, *arguments],
                              capture_output=True, text=True, timeout=120, check=False)


class OutsideNode(Node):
    """Where `stasis` itself runs, which looks whether there are devices."""

    def __init__(self, socket):
        super().__init__("--gpus", "1", "--memory", "16MiB")
        self.place = socket

    def start_daemon(self):
        self.socket = self.place
        super().start_daemon()


class Nodes:
    """Nodes by name: Nodes(a=["--gpus", "8"], b=[...])."""

    def __init__(self, **options):
        self.options = options
        self.stack = contextlib.ExitStack()
        self.nodes = {}

    def __getitem__(self, name):
        return self.nodes[name]

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stasis-nodes-"))
            self.socket = os.path.join(folder, "gpu", "softgpud.sock")
            os.mkdir(os.path.dirname(self.socket))
            self.outside = stack.enter_context(OutsideNode(self.socket))
            self.router = Keeper(["--net"], "echo 1 > /proc/sys/net/ipv4/ip_forward")
            stack.callback(self.router.end)
            for number, (name, options) in enumerate(self.options.items(), 1):
                node = stack.enter_context(PlacedNode(name, number, self.socket, *options))
                self.connect(node)
                self.nodes[name] = node
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def connect(self, node):
        def ip(pid, *arguments):
            subprocess.run(["nsenter", "-t", str(pid), "-n", "--", "ip", *arguments], check=True, preexec_fn=die_with_parent)

        inside, outside = node.keeper.pid, self.router.pid
        ip(inside, "link", "add", "eth0", "type", "veth", "peer", "name", node.name, "netns", str(outside))
        for pid, device, address in ((inside, "eth0", node.address), (outside, node.name, node.router)):
            ip(pid, "address", "add", f"{address}/24", "dev", device)
            ip(pid, "link", "set", "dev", device, "up")
        ip(inside, "link", "set", "dev", "lo", "up")
        ip(inside, "route", "add", "default", "via", node.router)

    def write(self, path, **ranks):
        """A file for --nodes: how many ranks on each, or (ranks, physical ordinals)."""
        rows = []
        for name, entry in ranks.items():
            count, gpus = entry if isinstance(entry, tuple) else (entry, [])
            node = self.nodes[name]
            rows.append({"name": name, "address": node.address, "through": node.through, "ranks": count, "gpus": gpus})
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        return path


class NodesSite(RankSite):
    """`stasis` outside of the nodes, with state and run folders that all of them see."""

    def __init__(self, nodes):
        super().__init__(beside=None)
        self.nodes = nodes
        self.node = nodes.outside
        self.owns_node = False

    def write_nodes(self, **ranks):
        return self.nodes.write(os.path.join(self.folder.name, "-".join(ranks) + ".json"), **ranks)

    def memory_in_the_end(self):
        used = []
        for self.node in self.nodes.nodes.values():
            used += super().memory_in_the_end()
        self.node = self.nodes.outside
        return used


__all__ = ["BUILD", "Nodes", "NodesSite", "PlacedNode"]
