"""stasisd is killed with kill -9 while it carries out operations, and started again. No task is lost, none is there twice; each
operation ends, forwards or back; what the new agent tells of the jobs is what runs; and what the programs print in the end is
what they print undisturbed."""

import contextlib
import os
import random
import time
import unittest

from agents import ENDED, AgentNodes, alive, grpc, op, pb
from moving_job import CONDITION, Sample

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
STRIKES = 100 if FULL else 8
RANKS = 2

RUNNING, PAUSED, CHECKPOINTED = map(CONDITION, ("CONDITION_RUNNING", "CONDITION_PAUSED", "CONDITION_CHECKPOINTED"))
EXITED, KILLED = map(CONDITION, ("CONDITION_EXITED", "CONDITION_KILLED"))
ABSENT = None
# What may be asked for in which condition, and where it leads.
MOVES = {
    RUNNING: ("pause", "checkpoint", "checkpoint --stop", "migrate", "cancel"),
    PAUSED: ("resume", "checkpoint", "checkpoint --stop", "cancel"),
    CHECKPOINTED: ("restore",),
    KILLED: ("restore", "remove"),
    EXITED: ("remove",),
    ABSENT: ("run",),
}
GOALS = {"run": (RUNNING,), "pause": (PAUSED,), "resume": (RUNNING,), "checkpoint --stop": (CHECKPOINTED, KILLED),
         "restore": (RUNNING,), "migrate": (RUNNING,), "cancel": (KILLED, EXITED), "remove": (ABSENT,)}
# Killed before the agent has answered, as often as one in so many.
UNANSWERED = 5


def programs(task_folder, program):
    """Processes that run the program of a task."""
    mark = f"STASIS_TASK={task_folder}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) != program:
                continue
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if mark in environment.read().split(b"\0"):
                    found.append(int(pid))
    return found


class Victim:
    """A job that operations are asked for, and what is known of it."""

    def __init__(self, node, name, sample):
        self.node, self.name, self.sample = node, name, sample
        self.tasks = [f"{name}.{rank}" for rank in range(sample.ranks)] or [name]
        self.image = ""
        self.device = 0
        self.finished = 0

    def condition(self):
        job = self.node.agent.job(self.name)
        if job and job.condition not in MOVES:  # its ranks end one after the other
            job = self.node.agent.wait_for_job(self.name, lambda now: now.condition in MOVES)
        return job.condition if job else ABSENT

    def request(self, move):
        verb = move.split()[0]
        name = verb[0].upper() + verb[1:] + "Request"
        if verb == "run":
            env = {"PATH": os.environ["PATH"], "SOFTGPU_SOCKET": self.node.socket, "SOFTGPU_AUTOSTART": "0"}
            gpus = [] if self.sample.ranks else [0]
            return verb, pb.RunRequest(name=self.name, argv=self.sample.command(), folder="/", device="soft", gpus=gpus,
                                       environment=[f"{key}={value}" for key, value in env.items()], ranks=self.sample.ranks)
        request = getattr(pb, name)(job=self.name)
        if move == "checkpoint --stop":
            request.stop = True
        if verb == "migrate":
            request.gpus.extend([1 - self.device])
        if verb == "remove":
            request.images = True
        return verb, request

    def moves(self, condition):
        moves = MOVES[condition]
        if self.sample.ranks:
            moves = [move for move in moves if move != "migrate"]
        if not self.image:
            # Nothing brings it back.
            moves = [move for move in moves if move not in ("cancel", "restore")]
        return moves


class Kills(unittest.TestCase):
    def setUp(self):
        nodes = AgentNodes(a=["--gpus", "2", "--memory", "512MiB"]).__enter__()
        self.addCleanup(nodes.__exit__, None, None, None)
        self.node = nodes["a"]
        self.node.start_agent()
        more = 8 if FULL else 1
        alone = Sample("mlp_train", "--steps", str(800 * more), "--batch", "8", "--width", "32", "--log-every", "50")
        ranked = Sample("ddp_train", "--steps", str(900 * more), "--log-every", "20", "--pace-ms", "10", ranks=RANKS)
        self.victims = [Victim(self.node, "alone", alone), Victim(self.node, "ranks", ranked)]
        self.chance = random.Random(SEED)
        # Seconds that a move of a job takes, as measured last.
        self.takes = {}

    @property
    def agent(self):
        return self.node.agent

    def strike(self, number, victim, move):
        """Begins the operation and kills the agent in it. The operation as it ended."""
        verb, request = victim.request(move)
        request.change.idempotency_key = f"strike-{SEED}-{number}"
        call = getattr(self.agent.stub, verb.capitalize())
        unanswered = self.chance.randrange(UNANSWERED) == 0
        delay = self.chance.random() * self.takes.get((victim.name, move), 0.3)
        first = None
        if unanswered:
            future = call.future(request, timeout=60)
            time.sleep(self.chance.random() * 0.02)
            self.node.kill_agent()
            with contextlib.suppress(grpc.RpcError):
                first = future.result()
        else:
            first = call(request, timeout=60)
            time.sleep(delay)
            self.node.kill_agent()
        self.node.start_agent()
        again = getattr(self.agent.stub, verb.capitalize())(request, timeout=60)
        if first:
            self.assertEqual(again.id, first.id, "the same key has begun another operation")
        return self.agent.wait(again.id, spans=False), delay

    def undisturbed(self, victim, move):
        verb, request = victim.request(move)
        start = time.monotonic()
        ended = self.agent.wait(getattr(self.agent.stub, verb.capitalize())(request, timeout=60).id, spans=False)
        self.takes[victim.name, move] = time.monotonic() - start
        self.assertEqual(ended.state, op.OPERATION_STATE_SUCCEEDED, ended.result_json)
        self.settle(victim, move, ended)

    def settle(self, victim, move, ended):
        """What the end of an operation means for what is known."""
        if move.startswith("checkpoint"):
            images = self.agent.stub.Images(pb.ImagesRequest(job=victim.name), timeout=60).images
            ids = sorted(image.id for image in images)
            victim.image = ids[-1] if ids else ""
        elif move in ("run", "remove"):
            victim.image, victim.device = "", 0
        elif move == "migrate" and ended.state == op.OPERATION_STATE_SUCCEEDED:
            victim.device = 1 - victim.device

    def check_end(self, victim, move, before, ended):
        """Forwards, or back."""
        now = victim.condition()
        if now == EXITED and victim.name in self.agent.jobs():
            return self.check_finished(victim)
        if ended.state == op.OPERATION_STATE_SUCCEEDED:
            goals = (before,) if move == "checkpoint" else GOALS[move]
            self.assertIn(now, goals, (move, ended.result_json))
        else:
            self.assertRegex(ended.result_json, '"left": *"(unchanged|rolled-back)"', move)
            self.assertEqual(now, before, (move, ended.result_json))
        return None

    def check_finished(self, victim):
        """It has come to its end by itself meanwhile, or before."""
        output = "".join(self.node.output(task) for task in victim.tasks)
        self.assertEqual(victim.sample.lines(output), victim.sample.expected())
        victim.finished += 1

    def check_registry(self):
        """What the agent tells is what the files and the kernel have."""
        self.assertEqual(list(self.agent.stub.ListOperations(op.ListOperationsRequest(running=True), timeout=60).operations), [])
        jobs = self.agent.jobs()
        told = {rank.task for job in jobs.values() for rank in job.ranks}
        self.assertEqual(told, self.folders("tasks"))
        self.assertEqual({job.name for job in jobs.values() if job.ranked}, self.folders("jobs"))
        for job in jobs.values():
            for rank in job.ranks:
                process = self.node.process(rank.task)
                # One that has ended since lived when the agent was asked.
                live = process and (alive(process) or rank.init_pid == process["init_pid"] and self.has_just_ended(job))
                known = (process["init_pid"], process["pid"]) if live else (0, 0)
                self.assertEqual((rank.init_pid, rank.pid), known, (job.name, job.text))
        for victim in self.victims:
            for task in victim.tasks:
                if not self.check_programs(victim, task):
                    # It has ended between two looks.
                    self.has_just_ended(jobs[victim.name])
                    self.assertTrue(self.check_programs(victim, task), f"programs of {task}")

    def folders(self, kind):
        root = os.path.join(self.node.path(self.node.state), kind)
        return set(os.listdir(root)) if os.path.isdir(root) else set()

    def check_programs(self, victim, task):
        """Whether there is one where the task lives, and none where it does not."""
        count = len(programs(os.path.join(self.node.run_dir, "tasks", task), victim.sample.program))
        return count == (1 if self.node.live(task) else 0)

    def has_just_ended(self, job):
        return self.agent.wait_for_job(job.name, lambda now: now.condition == EXITED, seconds=120)

    def finish(self, victim):
        """To its end, from wherever it is."""
        while (condition := victim.condition()) != EXITED:
            if condition == RUNNING:
                job = self.agent.wait_for_job(victim.name, lambda job: job.ended_ms or job.condition == EXITED)
                self.assertEqual((job.condition, job.exit_code), (EXITED, 0), job)
            elif condition == PAUSED:
                self.undisturbed(victim, "resume")
            else:
                self.undisturbed(victim, "run" if condition is ABSENT else "restore")
        self.check_finished(victim)

    def measure(self, victim):
        """What each move takes here, so that the strikes fall into all of it."""
        for move in ("checkpoint", "pause", "resume", "checkpoint --stop", "restore", "migrate"):
            if move in (*victim.moves(victim.condition()), "restore"):
                self.undisturbed(victim, move)

    def test_every_operation_ends_forwards_or_back(self):
        for victim in self.victims:
            self.undisturbed(victim, "run")
            self.agent.wait_for_output(victim.name, victim.sample.first_words)
            if FULL:
                self.measure(victim)
        print({move: round(seconds, 2) for move, seconds in self.takes.items()}, flush=True)
        for number in range(STRIKES):
            victim = self.victims[number % len(self.victims)]
            before = victim.condition()
            move = self.chance.choice(victim.moves(before))
            with self.subTest(seed=SEED, number=number, job=victim.name, move=move):
                ended, delay = self.strike(number, victim, move)
                self.assertIn(ended.state, ENDED)
                self.settle(victim, move, ended)
                self.check_end(victim, move, before, ended)
                self.check_registry()
                print(f"{number:3} {victim.name:6} {move:18} after {delay * 1000:5.0f} ms: "
                      f"{op.OperationState.Name(ended.state)[16:].lower()}", flush=True)
        for victim in self.victims:
            self.finish(victim)


if __name__ == "__main__":
    unittest.main()
