#!/usr/bin/env python3
"""Jobs of all samples under verbs that are disturbed at random, on two nodes with agents. Each run is one job from its start to
its end: what it prints is what it prints undisturbed, there is never more than one of it, and once it is removed nothing is left.

All that is decided follows from the seed and the number of the run: `--seed N --only K` has one again, `--print` only tells."""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "harness"))

# pylint: disable=wrong-import-position
from agents import AgentNodes, OperationFailed, built, grpc, op, pb
from moving_job import CONDITION
from softgpu import die_with_parent
import damage
import faults
import hung
import jobs
import plan
from audit import Audit, state
from jobs import NotRunning

DEVICES = ["--gpus", str(jobs.RANKS), "--memory", "512MiB"]
RATE, DELAY, DISK = 400_000_000, 0.001, "512m"
SECONDS = 300
DEADLINE_MS = 30000
# What a step takes, in seconds, until that was measured.
USUAL = {"pause": 0.08, "resume": 0.06, "checkpoint": 0.25, "checkpoint --stop": 0.25, "restore": 0.2, "move": 0.1, "migrate": 1.0}

RUNNING, PAUSED, CHECKPOINTED, EXITED, KILLED, BROKEN, MIXED, IN_DOUBT, STRANDED, MIGRATED = (
    CONDITION("CONDITION_" + name) for name in ("RUNNING", "PAUSED", "CHECKPOINTED", "EXITED", "KILLED", "BROKEN", "MIXED",
                                                "IN_DOUBT", "STRANDED", "MIGRATED"))
UNDER_WAY = tuple(CONDITION("CONDITION_" + name) for name in ("CREATED", "CHECKPOINTING", "RESTORING"))
# What no program may notice.
HARMLESS = {"none": None, "stop": None, "disk": None, "network": None, "clock": None, "damage": None,
            "kill": ("agent", "peer-agent", "command"), "device": ("slow",)}


# A program finds out at its next call, or later.
LOST_DEVICE = {("kill", "softgpud"), ("device", "fell-off-bus"), ("device", "ecc"), ("memory", "device")}


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def harmless(each):
    """Whether the job must live on whatever comes of the verb."""
    # CRIU cannot go on with a process that is stopped while it works in it, and may not get out of it either.
    if each.kind not in HARMLESS or each.kind == "stop" and each.what in ("program", "init") and each.verb in plan.WITH_CRIU:
        return False
    return HARMLESS[each.kind] is None or each.what in HARMLESS[each.kind]


class World:
    """Two nodes, their agents under a clock that can be stepped, and their audits."""

    def __enter__(self):
        self.usual = dict(USUAL)
        with contextlib.ExitStack() as stack:
            # One thread for all that strikes: what it starts ends with it.
            self.striker = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            self.nodes = stack.enter_context(AgentNodes(rate=RATE, delay=DELAY, disk=DISK, left=DEVICES, right=DEVICES))
            self.clock_file = os.path.join(self.nodes.folder, "clock")
            with open(self.clock_file, "wb") as file:
                file.write(bytes(8))
            for node in self.nodes.nodes.values():
                node.agent_env = {"LD_PRELOAD": built("lib/libstep_clock.so"), "STEP_CLOCK_FILE": self.clock_file}
                node.start_agent()
            self.audits = [Audit(node) for node in self.nodes.nodes.values()]
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def words(self):
        return "".join(f"--- {name}\n{node.agent_words()}\n" for name, node in self.nodes.nodes.items())

    def settle(self):
        """Until neither agent has an operation in hand."""
        for node in self.nodes.nodes.values():
            for running in node.agent.stub.ListOperations(op.ListOperationsRequest(running=True), timeout=120).operations:
                node.agent.wait(running.id, SECONDS)

    def findings(self):
        self.settle()
        return [finding for each in self.audits for finding in each.findings()]


class Outcome:
    """Of a verb: `state` is succeeded, failed, cancelled, lost. `brought_back`: it has restored the job from an image by itself."""

    def __init__(self, state_, result, brought_back=False):
        self.state = state_
        self.result = result
        self.brought_back = brought_back

    def __str__(self):
        return f"{self.state} {json.dumps(self.result)}"


class Course:
    """One run."""

    def __init__(self, world, run, totals):
        self.world, self.run, self.totals = world, run, totals
        self.job = jobs.make(world.nodes, run.job, f"chaos{run.number}-{os.getpid()}", "left")
        self.began = time.monotonic()
        self.down = False  # between an image that has ended it and the restore
        self.may_be_down = False  # the command that asked for that was killed, and the ghost goes on
        self.asked = 0  # how many operations of agents
        self.doomed = False  # since a device was lost, until it has come back from an image

    def say(self, text):
        print(f"  [{time.monotonic() - self.began:6.2f}] {text}", flush=True)

    @property
    def node(self):
        return self.world.nodes[self.job.at]

    @property
    def agent(self):
        return self.node.agent

    def other(self):
        return self.world.nodes["right" if self.job.at == "left" else "left"]

    # ---- verbs

    def request(self, step, each):
        """(verb, fields of the agent's request, arguments of the command)"""
        verb = step.split()[0]
        fields, arguments = dict(each.options), []
        if step != plan.VERBS[each.verb][0]:
            fields = {}
        for name, value in fields.items():
            arguments += [f"--{name}", value]
        if verb not in ("restore", "cancel"):
            fields["options"] = pb.PauseOptions(deadline_ms=DEADLINE_MS)
            arguments += ["--deadline", f"{DEADLINE_MS}ms"]
        if step == "checkpoint --stop":
            fields["stop"] = True
            arguments.append("--stop")
        if verb == "restore":
            arguments.append("--detach")
        if step == "move":
            gpus = list(range(jobs.RANKS))
            random.Random(each.victim).shuffle(gpus)
            verb, fields["gpus"] = "migrate", gpus
            arguments += ["--gpus", ",".join(map(str, gpus))]
        if step == "migrate":
            fields["node"] = self.other().peer
        return verb, fields, arguments

    def by_agent(self, verb, fields):
        node, give_up = self.node, time.monotonic() + SECONDS
        begun = self.begin(node, verb, fields, give_up)
        while True:
            try:
                ended = node.agent.wait(begun.id, give_up - time.monotonic())
                break
            except (grpc.RpcError, AttributeError, ValueError, AssertionError) as error:
                if time.monotonic() > give_up:
                    self.tell_of_job()
                    raise AssertionError(f"{verb} of {self.job.name}: {begun.id} has not ended: {error!r}") from error
                time.sleep(0.05)  # the agent was killed, and is back in a moment
        word = op.OperationState.Name(ended.state).rsplit("_", 1)[1].lower()
        return Outcome(word, json.loads(ended.result_json or "{}"), any("brought back from image" in note for note in ended.notes))

    def begin(self, node, verb, fields, give_up):
        """The agent may be killed before it answers: asked again with the same key, it says whether it had taken it."""
        self.asked += 1
        change = pb.Change(idempotency_key=f"{self.job.name}-{self.asked}")
        while True:
            try:
                return node.agent.begin(verb, job=self.job.name, change=change, **fields)
            except (grpc.RpcError, AttributeError, ValueError) as error:
                gone = not isinstance(error, grpc.RpcError) or error.code() == grpc.StatusCode.UNAVAILABLE
                if not gone or time.monotonic() > give_up:
                    raise
                time.sleep(0.05)  # it is back in a moment

    def tell_of_job(self):
        """What it, and all that works on it, is doing, and what its ghosts have written."""
        for node in self.world.nodes.nodes.values():
            print(f"---- {node.name}: {node.agent.job(self.job.name) if node.agent else 'no agent'}", flush=True)
            hung.tell(sorted(node.processes()))
            for task in self.job.tasks:
                with contextlib.suppress(OSError):
                    with open(os.path.join(node.task_folder(task), "ghost.log"), encoding="utf-8", errors="replace") as log:
                        print(f"---- {node.name}: {log.name}\n{log.read()[-20000:]}", flush=True)

    def by_command(self, verb, arguments, strike):
        command = [*self.node.through, built("bin/stasis"), verb, "--json", "--embedded", self.job.name, *arguments]
        process = subprocess.Popen(command, env=self.node.own_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        strike.command = process
        out, err = process.communicate(timeout=SECONDS)
        if process.returncode == -signal.SIGKILL:
            return Outcome("lost", {})
        if process.returncode < 0 or not out:
            raise AssertionError(f"{command} ended with {process.returncode}: {out}{err}")
        return Outcome("succeeded" if process.returncode == 0 else "failed", json.loads(out))

    def carry_out(self, step, each, disturbed):
        verb, fields, arguments = self.request(step, each)
        usual = self.world.usual[step]
        begin = time.monotonic()
        with faults.Strike(self.world, self.job, each if disturbed else plan_of_nothing(each), usual) as strike:
            if each.via == "agent":
                outcome = self.by_agent(verb, fields)
            else:
                outcome = self.by_command(verb, arguments, strike)
        self.doomed |= disturbed and strike.struck and (each.kind, each.what) in LOST_DEVICE
        self.may_be_down = step == "checkpoint --stop" and outcome.state == "lost"
        if outcome.state == "succeeded":
            self.down = step == "checkpoint --stop"
            if not disturbed or each.kind == "none":
                self.world.usual[step] = (usual + time.monotonic() - begin) / 2
            if step == "migrate":
                self.job.at = self.other().name
        what = f"{each.kind} {each.what}".strip()
        self.say(f"{step} by {each.via}: {outcome.state}"
                 + (f"; {what}{'' if strike.struck or each.kind == 'none' else ' (too late)'}" if disturbed else "")
                 + (f"; {outcome.result.get('message')} ({outcome.result.get('left')})" if outcome.state == "failed" else ""))
        self.totals.verb(step, outcome.state, strike.struck or each.kind == "none", each if disturbed else None)
        return outcome

    def call(self, verb, **fields):
        """Undisturbed. A ghost whose command was killed may still be at it."""
        give_up = time.monotonic() + SECONDS
        while True:
            try:
                return self.agent.call(verb, job=self.job.name, **fields)
            except OperationFailed as failed:
                if "of this task is running" not in failed.result.get("message", "") or time.monotonic() > give_up:
                    raise
            time.sleep(0.05)  # nothing tells when a ghost is done for which nobody waits

    # ---- where the job is

    def resting(self, node):
        """The job as the agent tells it when nothing is under way with it; None: it does not know it."""
        told = node.agent.job(self.job.name)
        if told is None:
            return None
        if told.condition in UNDER_WAY or told.condition == MIXED and told.live:
            with contextlib.suppress(grpc.RpcError):  # it stays so
                told = node.agent.wait_for_job(self.job.name, lambda job: job.condition not in (*UNDER_WAY, MIXED), 60)
        return told

    def find(self):
        """Where it is after a verb: (node, what its agent tells). It lives once at most."""
        self.world.settle()
        live = self.job.live_on()
        if len(live) > 1:
            raise AssertionError(f"{self.job.name} lives twice: {live}")
        told = {name: self.resting(node) for name, node in self.world.nodes.nodes.items()}
        theirs = [name for name, job in told.items() if job is not None and job.condition != MIGRATED]
        if live:
            (at, _), = live.items()
        elif len(theirs) == 1:
            at = theirs[0]
        else:
            raise AssertionError(f"{self.job.name} lives nowhere and is told of by {theirs}: {told}")
        self.job.at = at
        for name, job in told.items():
            if name != at and job is not None and job.condition != MIGRATED:
                raise AssertionError(f"{self.job.name} is on {at}, and could be brought back on {name}: {job}")
        return told[at]

    def bring_back(self, each):
        """It runs and gets on, whatever the verb has left it in. How: a word for the totals."""
        how = "ran on"
        if each.what == "ghosts":
            # Nobody has written down that it does not run any more; whoever asks for something is told.
            self.find()
            self.try_resume()
        for _ in range(6):
            told = self.find()
            self.say(f"on {self.job.at}: {told.text}")
            if told.condition == RUNNING:
                try:
                    self.job.get_on()
                    self.check_processes(told)
                    return how
                except NotRunning:
                    self.await_news(told)
                    continue
            if told.condition == EXITED and told.exit_code == 0:
                return "had ended"
            if told.condition in (PAUSED, STRANDED, IN_DOUBT, MIXED) and how == "ran on":
                how = "resumed"
                self.try_resume()
                continue
            self.down |= self.may_be_down and told.condition == CHECKPOINTED
            if not self.down and harmless(each) and not self.doomed:
                raise AssertionError(f"{self.job.name} did not live through {each.text()}: {told}")
            how = "brought back"
            self.restore(told)
        raise AssertionError(f"{self.job.name} is not to be brought back: {told}")

    def await_news(self, told):
        """Its agent may not have seen yet what has become of it."""
        with contextlib.suppress(grpc.RpcError):  # or has, and it stays so
            self.agent.wait_for_job(self.job.name, lambda job: job.revision > told.revision, 30)

    def try_resume(self):
        try:
            self.call("resume")
        except OperationFailed as failed:
            self.say(f"resume: {failed.result.get('code')} {failed.result.get('message')} ({failed.result.get('left')})")

    def check_processes(self, told):
        """There is one program of each task, and it is the one that the agent knows."""
        for rank in told.ranks:
            process = self.node.process(rank.task)
            if (rank.init_pid, rank.pid) != (process["init_pid"], process["pid"]):
                raise AssertionError(f"{rank} is told of, and there is {process}")
        mark = f"STASIS_TASK={self.node.run_dir}/tasks/".encode()
        inits = {rank.init_pid for rank in told.ranks}
        for node in self.world.nodes.nodes.values():
            for pid, command in node.processes().items():
                if command.split(" ")[0].endswith("stasis-init") and mark + self.job.name.encode() in environment(pid):
                    if pid not in inits:
                        raise AssertionError(f"there is another one of {self.job.name} on {node.name}: process {pid}: {command}")

    def restore(self, told):
        if told.live:
            self.call("cancel")
        try:
            self.call("restore")
        except OperationFailed as failed:
            self.say(f"restore: {failed}")
            raise
        self.doomed = self.down = False
        self.job.brought_back()

    # ---- the whole

    def one_round(self, each):
        if each.verb == "damage":
            if self.doomed:
                self.restore(self.find())
            return damage.Damage(self, each).carry_out()
        before = self.job.at
        for number, step in enumerate(plan.VERBS[each.verb]):
            outcome = self.carry_out(step, each, number == each.step)
            if outcome.brought_back:
                self.note_brought_back(each)
            if outcome.state != "succeeded":
                self.check_failure(step, each, outcome, before)
                break
        return self.bring_back(each)

    def note_brought_back(self, each):
        if harmless(each) and not self.doomed:
            raise AssertionError(f"{self.job.name} did not live through {each.text()}")
        self.find()
        self.doomed = False
        self.job.brought_back()
        self.totals.outcome("brought back by the verb")

    def check_failure(self, step, each, outcome, before):
        """What has failed says what it has left, and that is so."""
        if outcome.state == "lost" or not harmless(each) or self.doomed:
            return
        if "on that device already" in outcome.result.get("message", ""):
            return
        if each.kind == "none":
            raise AssertionError(f"undisturbed: {outcome}")
        # What was paused before.
        as_before = ("unchanged", "rolled-back", *(("paused",) if step == "resume" else ()))
        if outcome.result.get("left") not in as_before:
            raise AssertionError(f"{each.text()}: {outcome}")
        if outcome.result.get("left") == "unchanged" and self.job.at != before:
            raise AssertionError(f"{each.text()}: {outcome}, and it is on {self.job.at}")

    def check(self):
        """From the start to the audit."""
        self.job.start(strategy=self.run.strategy)
        self.call("checkpoint")
        self.say("runs, and has an image")
        for number, each in enumerate(self.run.rounds):
            self.say(f"{number}: {each.text()}")
            how = self.one_round(each)
            self.say(how)
            self.totals.outcome(how)
            if how == "had ended":
                break
        self.check_end()
        self.job.remove()
        found = self.world.findings()
        if found:
            raise AssertionError("left behind:\n" + "\n".join(found))

    def check_end(self):
        status, printed = self.job.finish()
        if status != 0 and self.doomed:
            self.say("finds out at its end that its device was lost")
            self.restore(self.find())
            status, printed = self.job.finish()
        # What its driver says when the device goes is no result of it.
        lines = [line for line in printed if not line.startswith("softgpu[")]
        expected = self.job.expected()
        if status != 0 or lines != expected:
            first = next((pair for pair in zip(lines, expected) if pair[0] != pair[1]), (len(lines), len(expected)))
            raise AssertionError(f"{self.job.name} ended with {status}; the first difference: {first}\n" + self.job.output()[-2000:])


def plan_of_nothing(each):
    return plan.dataclasses.replace(each, kind="none", what="")


class Totals:
    """What a campaign has done."""

    def __init__(self, seed):
        self.seed = seed
        self.began = time.monotonic()
        self.runs = collections.Counter()
        self.verbs = collections.defaultdict(collections.Counter)
        self.faults = collections.defaultdict(collections.Counter)
        self.outcomes = collections.Counter()
        self.failed = []

    def verb(self, step, state_, struck, each):
        self.verbs[step][state_] += 1
        if each is not None:
            self.faults[f"{each.kind} {each.what}".strip()]["struck" if struck else "too late"] += 1

    def damage(self, what, word):
        self.faults[f"damage {what}"][word] += 1

    def outcome(self, how):
        self.outcomes[how] += 1

    def as_json(self):
        return {"seed": self.seed, "seconds": round(time.monotonic() - self.began, 1), "runs": dict(self.runs),
                "verbs": {name: dict(counts) for name, counts in sorted(self.verbs.items())},
                "faults": {name: dict(counts) for name, counts in sorted(self.faults.items())},
                "rounds": dict(self.outcomes), "failed": self.failed}

    def table(self):
        told = self.as_json()
        yield f"seed {self.seed}, {told['seconds']} s: {sum(self.runs.values())} runs, {len(self.failed)} failed"
        for title in ("runs", "rounds"):
            yield f"  {title:10} " + ", ".join(f"{name} {count}" for name, count in sorted(told[title].items()))
        for title in ("verbs", "faults"):
            yield f"  {title}"
            for name, counts in told[title].items():
                yield f"    {name:22} {sum(counts.values()):5}   " + ", ".join(f"{word} {count}" for word, count in
                                                                                sorted(counts.items()))
        for failure in self.failed:
            yield f"  FAILED run {failure['run']}: {failure['why'].splitlines()[0]}"


class Campaign:
    def __init__(self, seed, keep_going=False):
        self.seed = seed
        self.totals = Totals(seed)
        self.keep_going = keep_going
        self.world = None

    def close(self):
        if self.world:
            self.world.__exit__(None, None, None)
        self.world = None

    def one(self, number):
        """Whether it went well. A failed one leaves its world behind, and another one begins."""
        run = plan.a_run(self.seed, number)
        print("\n".join(run.lines()), flush=True)
        self.totals.runs[run.job] += 1
        try:
            self.world = self.world or World().__enter__()
            Course(self.world, run, self.totals).check()
            return True
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            print(self.world.words() if self.world else "", flush=True)
            self.totals.failed.append({"run": number, "why": str(error) or repr(error)})
            self.close()
            return False

    def run(self, numbers, seconds):
        give_up = time.monotonic() + seconds
        try:
            for number in numbers:
                if not self.one(number) and not self.keep_going:
                    break
                if time.monotonic() > give_up:
                    break
        finally:
            self.close()
        print("\n".join(self.totals.table()), flush=True)
        return not self.totals.failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--only", type=int, action="append", help="this run; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="the run to begin with")
    parser.add_argument("--print", action="store_true", dest="tell", help="tell what would be done")
    parser.add_argument("--json", help="a file for the totals")
    parser.add_argument("--keep-going", action="store_true", help="after a run that has failed")
    return parser.parse_args()


def main():
    options = arguments()
    numbers = options.only or range(options.first, options.first + 100000)
    if options.tell:
        for number in numbers[:50]:
            print("\n".join(plan.a_run(options.seed, number).lines()))
        return 0
    campaign = Campaign(options.seed, options.keep_going)
    good = campaign.run(numbers, options.minutes * 60)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(campaign.totals.as_json(), file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
