"""A program that does one step a line of its input and ends at `q`."""

import os
import pathlib
import subprocess

from softgpu import die_with_parent


class StepProgram:
    """`step` returns what the program printed for it."""

    def __init__(self, node, *command, **extra):
        self.process = subprocess.Popen(command, env=node.env(**extra), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=die_with_parent)

    def until(self, beginning):
        lines = []
        while not lines or not lines[-1].startswith(beginning):
            lines.append(self.process.stdout.readline())
            assert lines[-1], "the program has ended: " + "".join(lines)
        return "".join(lines)

    def step(self, number):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.until(f"step {number}:")

    def finish(self):
        rest, _ = self.process.communicate("q\n", timeout=120)
        return rest, self.process.returncode

    def end(self):
        self.process.kill()
        self.process.communicate()

    def thread_names(self):
        names = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                names.append((task / "comm").read_text(encoding="utf-8").strip())
            except FileNotFoundError:
                continue  # it has ended meanwhile
        return sorted(names)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
