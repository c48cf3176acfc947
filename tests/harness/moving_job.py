"""The samples as jobs that go from node to node under their agents, and what they print when nobody disturbs them."""

import os

from agents import INTERFACE, OperationFailed, pb
from softgpu import BUILD, Node, built

CONDITION = pb.Condition.Value


class Sample:
    """`ranks`: 0 for a task alone. `devices` are what it needs on a node. `more`: options in the full run."""

    def __init__(self, name, *options, ranks=0, devices=1, label=""):
        self.program = name
        self.name = label or name
        self.options = list(options)
        self.ranks = ranks
        self.devices = ranks or devices
        self.known = None
        word = {"vector": "round", "nccl_ring": "round", "stencil": "iteration", "counter": "listening"}
        # Of the first line about what it does; those alone have a line about themselves before it.
        self.first_words = ("" if ranks or name == "counter" else "\n") + word.get(name, "step") + " "

    def command(self):
        return [built(f"samples/{self.program}"), *self.options]

    def lines(self, output):
        """What depends on what was computed; ranks print in no order."""
        lines = [line for line in output.splitlines() if not line.startswith("matches the host")]
        return sorted(lines) if self.ranks else lines

    def expected(self):
        if self.known is None:
            command = self.command()
            if self.ranks:
                command += ["--reference", "--ranks", str(self.ranks)]
            with Node("--gpus", str(self.devices), "--memory", "512MiB") as node:
                result = node.run(*command, timeout=600, PACE_UNTIL="/")
            if result.returncode != 0:
                raise AssertionError(f"{command}: {result.stderr}")
            self.known = self.lines(result.stdout)
        return self.known


class MovingJob:
    def __init__(self, nodes, sample, name, at):
        self.nodes = nodes
        self.sample = sample
        self.name = name
        self.at = at  # the node it was last known to be on
        self.hurry_file = os.path.join(nodes.folder, f"hurry-{name}")
        self.tasks = [f"{name}.{rank}" for rank in range(sample.ranks)] or [name]

    def start(self, **fields):
        node = self.nodes[self.at]
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": node.socket, "SOFTGPU_AUTOSTART": "0",
               "PACE_UNTIL": self.hurry_file}
        node.agent.run(self.name, self.sample.command(), env, ranks=self.sample.ranks, **fields)
        node.agent.wait_for_output(self.name, self.sample.first_words)
        return self

    def migrate(self, to, **fields):
        """The operation as it ended."""
        source = self.nodes[self.at]
        operation = source.agent.call("migrate", job=self.name, node=self.nodes[to].peer, **fields)
        self.at = to
        return operation

    def live_on(self):
        """Where its tasks live, as kernel and files have it: {node: [task, ...]}, without nodes that have none."""
        found = {}
        for name, node in self.nodes.nodes.items():
            live = [task for task in self.tasks if node.live(task)]
            if live:
                found[name] = live
        return found

    def output(self, at=None):
        return "".join(self.nodes[at or self.at].output(task) for task in self.tasks)

    def hurry(self):
        """From now on it does not rest any more."""
        with open(self.hurry_file, "w", encoding="utf-8"):
            pass

    def finish(self):
        """Hurries; (exit status, what it has printed) when it has ended by itself."""
        self.hurry()
        node = self.nodes[self.at]
        status = next(filter(None, [node.wait_for_end(task) for task in self.tasks]), 0)
        return status, self.sample.lines(self.output())

    def remove(self):
        """All of it, from every node, when it has ended."""
        for node in self.nodes.nodes.values():
            if node.agent.job(self.name) is not None:
                node.agent.call("remove", job=self.name, images=True)


__all__ = ["BUILD", "CONDITION", "INTERFACE", "MovingJob", "OperationFailed", "Sample"]
