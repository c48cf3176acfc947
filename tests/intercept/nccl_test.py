#!/usr/bin/env python3
"""NCCL in one process: a program whose ranks are paused anywhere ends as if nothing had been, and what cannot be carried is
refused by name while the program goes on."""

import os
import random
import subprocess
import tempfile
import threading
import unittest

from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
DEVICES = 4
STRATEGIES = (RECONSTRUCT, DRIVER_CHECKPOINT)


class Ranks:
    """nccl_ranks, and its lines as they come."""

    def __init__(self, case, how, ranks, rounds, seed=1, **extra):
        self.process = subprocess.Popen([built("tests/programs/nccl_ranks"), how, str(ranks), str(rounds), str(seed)],
                                        env=case.node.env(**extra), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        self.lines = []

    def begin(self):
        """Its rounds: now whoever is to disturb them is there."""
        self.process.stdin.close()

    def read_line(self):
        self.lines.append(self.process.stdout.readline())
        assert self.lines[-1], f"the program has ended: {self.lines}"

    def read_until(self, start):
        self.begin()
        while not self.lines or not self.lines[-1].startswith(start):
            self.read_line()

    def end(self):
        """The lines of the ranks."""
        self.begin()
        self.lines += self.process.stdout.readlines()
        assert self.process.wait(timeout=60) == 0, self.lines
        return [line for line in self.lines if line.startswith("rank")]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Steps:
    """nccl_steps: each step is answered by a line that starts with it."""

    def __init__(self, case, **extra):
        self.process = subprocess.Popen([built("tests/programs/nccl_steps")], env=case.node.env(**extra), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        case.addCleanup(self.close)
        self.answers = {}
        assert self.process.stdout.readline() == "ready\n"

    def send(self, *steps):
        self.process.stdin.write("".join(step + "\n" for step in steps))
        self.process.stdin.flush()

    def answer(self, step):
        """The next answer to this step; those of others may come before."""
        while not self.answers.get(step):
            line = self.process.stdout.readline()
            assert line, "the program has ended"
            words = line.split()
            known = " ".join(words[:2]) if words[1:] and words[1] in "01" and not words[0].startswith("abort-") else words[0]
            self.answers.setdefault(known, []).append(line[len(known):].strip())
        return self.answers[step].pop(0)

    def main(self, step):
        self.send(step)
        return self.answer(step)

    def rank(self, number, step):
        return self.main(f"{step} {number}")

    def both(self, step):
        """The step of both ranks at the same time."""
        self.send(f"{step} 0", f"{step} 1")
        return [self.answer(f"{step} 0"), self.answer(f"{step} 1")]

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class NcclTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", str(DEVICES), "--memory", "512MiB"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def managed(self, folder):
        return {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_TASK": folder, "STASIS_DRIVER": self.driver}

    # ---- ranks at work

    def disturbed(self, how, ranks, rounds, strategy, seed, placements=lambda _: ()):
        """What the ranks end with, and how often they were paused."""
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="stasis-task-") as folder:
            hurry = os.path.join(folder, "hurry")
            program = Ranks(self, how, ranks, rounds, **self.managed(folder), PACE_UNTIL=hurry)
            pauses = 0
            with wait_for_task(folder, program.process.pid) as task:
                program.read_line()  # it knows its devices now
                program.begin()
                try:
                    while True:
                        extents = task.pause(strategy)
                        task.unpause(extents, self.driver, placements(pauses))
                        pauses += 1
                        if pauses == 1:
                            with open(hurry, "x", encoding="ascii"):
                                pass
                        threading.Event().wait(chance.random() * 0.02)
                except ConnectionError:
                    pass
                except TaskError as error:
                    self.assertIn("the process is ending", str(error))
            return program.end(), pauses

    def undisturbed(self, how, ranks, rounds):
        return Ranks(self, how, ranks, rounds).end()

    def check_disturbed(self, how, ranks, rounds, placements=lambda _: (), strategies=STRATEGIES):
        expected = self.undisturbed(how, ranks, rounds)
        for strategy in strategies:
            for seed in range(5 if FULL else 1):
                with self.subTest(how=how, ranks=ranks, strategy=strategy, seed=seed):
                    result, pauses = self.disturbed(how, ranks, rounds, strategy, seed, placements)
                    self.assertEqual(result, expected)
                    self.assertGreater(pauses, 0)

    def test_a_thread_for_each_rank(self):
        for ranks in (1, 2, 4):
            self.check_disturbed("threads", ranks, 150)

    def test_one_thread_for_all_ranks(self):
        self.check_disturbed("group", 4, 500)

    def test_communicators_that_come_and_go(self):
        self.check_disturbed("churn", 3, 60)

    def test_on_other_devices_each_time(self):
        def turned(pause):
            return [(device, (device + pause + 1) % DEVICES) for device in range(DEVICES)]
        self.check_disturbed("threads", 4, 150, turned, [RECONSTRUCT])
        self.check_disturbed("churn", 4, 60, turned, [RECONSTRUCT])

    # ---- step by step

    def steps(self):
        """nccl_steps as a task, and the connection to it."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        program = Steps(self, **self.managed(folder))
        return program, self.enterContext(wait_for_task(folder, program.process.pid))

    def two_ranks(self, how="init"):
        program, task = self.steps()
        program.both("open")
        if how == "init-all":
            self.assertEqual(program.main("init-all"), "ncclSuccess")
        else:
            self.assertEqual(program.main("id"), "ncclSuccess")
            self.assertEqual(program.both(how), ["ncclSuccess"] * 2)
        return program, task

    def pause_and_resume(self, task, strategy=RECONSTRUCT, placements=()):
        task.unpause(task.pause(strategy), self.driver, placements)

    def check_works(self, program):
        program.both("fill")
        self.assertEqual(program.both("reduce"), ["ncclSuccess"] * 2)
        self.assertEqual(program.both("value"), ["3", "3"])

    def refusal(self, task, deadline_ms=20000):
        """What a pause has against the program, which then goes on."""
        with self.assertRaises(TaskError) as raised:
            task.quiesce(deadline_ms)
        task.go_on()
        return raised.exception

    def quiesce_meanwhile(self, task):
        quiesce = threading.Thread(target=task.quiesce)
        quiesce.start()
        return quiesce

    def check_missing(self, task, call):
        error = self.refusal(task, deadline_ms=2000)
        self.assertEqual(error.code, "TIMEOUT")
        missing = [blocker for _, blocker in error.blockers]
        self.assertIn(call, missing)
        self.assertIn(f"NCCL: {missing[0]} is missing", str(error))

    def test_a_missing_partner_is_named_and_the_program_goes_on(self):
        program, task = self.two_ranks()
        self.assertEqual(program.rank(0, "reduce"), "ncclSuccess")
        self.check_missing(task, "ncclAllReduce #1 of rank 1")
        self.assertEqual(program.rank(1, "reduce"), "ncclSuccess")
        self.assertEqual(program.both("value"), ["3", "3"])
        self.pause_and_resume(task)
        self.assertEqual(program.rank(1, "send"), "ncclSuccess")
        self.check_missing(task, "ncclRecv #1 of rank 0 from rank 1")
        program.both("group-start")
        self.check_missing(task, "ncclGroupEnd")
        self.assertEqual(program.rank(0, "receive"), "ncclSuccess")
        program.both("group-end")
        self.pause_and_resume(task)
        self.check_works(program)
        self.assertEqual(program.both("destroy"), ["ncclSuccess"] * 2)
        self.assertEqual(program.end(), 0)

    def test_a_pause_waits_for_the_partner(self):
        program, task = self.two_ranks()
        self.assertEqual(program.rank(0, "reduce"), "ncclSuccess")
        answer = self.quiesce_meanwhile(task)
        program.send("reduce 1")
        answer.join()
        extents = task.handover()
        task.release(RECONSTRUCT)
        task.unpause(extents, self.driver)
        self.assertEqual(program.answer("reduce 1"), "ncclSuccess")
        self.assertEqual(program.both("value"), ["3", "3"])
        self.assertEqual(program.end(), 0)

    def test_creation_waits_inside_for_the_other_rank(self):
        for how in ("init", "init-polite"):
            with self.subTest(how=how):
                program, task = self.steps()
                program.both("open")
                self.assertEqual(program.main("id"), "ncclSuccess")
                self.check_missing(task, "ncclCommInitRank with an id of ncclGetUniqueId")
                program.send(f"{how} 0")
                answer = self.quiesce_meanwhile(task)
                program.send(f"{how} 1")
                answer.join()
                extents = task.handover()
                task.release(RECONSTRUCT)
                task.unpause(extents, self.driver)
                self.assertEqual([program.answer(f"{how} {r}") for r in (0, 1)], ["ncclSuccess"] * 2)
                self.check_works(program)
                self.assertEqual(program.end(), 0)

    def test_everything_of_a_communicator_comes_back(self):
        for how in ("init", "init-all", "init-polite"):
            for strategy in STRATEGIES:
                with self.subTest(how=how, strategy=strategy):
                    program, task = self.two_ranks(how)
                    polite = "-polite" if how == "init-polite" else ""
                    self.assertEqual(program.both("split" + polite), ["ncclSuccess"] * 2)
                    self.assertEqual(program.both("wait-child"), ["ncclSuccess"] * 2)
                    for step in ("register", "window" + polite, "operator"):
                        self.assertEqual(program.both(step), ["ncclSuccess"] * 2, step)
                    before = [program.main("handles"), program.both("facts")]
                    for pause in range(4):
                        placements = [(d, (d + pause) % DEVICES) for d in range(DEVICES)] if strategy == RECONSTRUCT else ()
                        self.pause_and_resume(task, strategy, placements)
                        self.check_works(program)
                        self.assertEqual([program.main("handles"), program.both("facts")], before)
                        program.both("fill")
                        self.assertIn(program.both("reduce-child"), [["ncclSuccess"] * 2, ["ncclInProgress"] * 2])
                        self.assertEqual(program.both("value"), ["3", "3"])
                        self.assertEqual(program.both("floats"), ["ncclSuccess 3.000000"] * 2)
                    for step in ("drop-window", "deregister", "drop-operator", "destroy-child", "destroy"):
                        self.assertEqual(program.both(step), ["ncclSuccess"] * 2, step)
                    self.pause_and_resume(task, strategy)
                    self.assertEqual(program.end(), 0)

    def test_memory_of_nccl_comes_back(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                program, task = self.steps()
                self.assertEqual(program.both("open-shared"), ["ncclSuccess"] * 2)
                self.assertEqual(program.main("init-all"), "ncclSuccess")
                self.assertEqual(program.both("register"), ["ncclSuccess"] * 2)
                self.pause_and_resume(task, strategy)
                self.assertEqual(program.both("reduce"), ["ncclSuccess"] * 2)
                self.assertEqual(program.both("value"), ["3", "3"])
                self.assertEqual(program.both("deregister"), ["ncclSuccess"] * 2)
                self.assertEqual(program.both("destroy"), ["ncclSuccess"] * 2)
                self.assertEqual(program.both("close-shared"), ["ncclSuccess"] * 2)
                self.pause_and_resume(task, strategy)
                self.assertEqual(program.end(), 0)

    def test_what_has_ended_stays_so(self):
        program, task = self.two_ranks()
        self.assertEqual(program.both("finalize"), ["ncclSuccess"] * 2)
        facts = program.both("facts")
        self.pause_and_resume(task)
        self.assertEqual(program.both("facts"), facts)
        self.assertEqual(program.both("async"), ["ncclSuccess ncclSuccess"] * 2)
        self.assertEqual(program.both("destroy"), ["ncclSuccess"] * 2)
        self.pause_and_resume(task)
        self.assertEqual(program.main("id"), "ncclSuccess")
        self.assertEqual(program.both("init"), ["ncclSuccess"] * 2)
        self.check_works(program)
        self.assertEqual(program.end(), 0)

    def test_an_abort_ends_what_a_pause_waits_for(self):
        program, task = self.two_ranks()
        self.assertEqual(program.rank(0, "reduce"), "ncclSuccess")
        program.send("sync 0")
        self.check_missing(task, "ncclAllReduce #1 of rank 1")
        self.assertEqual(program.main("abort-0"), "ncclSuccess")
        program.answer("sync 0")
        # Rank 1 alone is of no use, and nothing more is made of it.
        self.pause_and_resume(task)
        self.assertEqual(program.main("abort-1"), "ncclSuccess")
        self.assertEqual(program.main("id"), "ncclSuccess")
        self.assertEqual(program.both("init"), ["ncclSuccess"] * 2)
        self.pause_and_resume(task)
        self.check_works(program)
        self.assertEqual(program.end(), 0)

    def test_operations_in_graphs_are_refused_as_long_as_there_are_graphs(self):
        program, task = self.two_ranks()
        self.assertEqual(program.both("capture"), ["ncclSuccess"] * 2)
        for _ in range(2):
            error = self.refusal(task)
            self.assertEqual((error.code, "ncclAllReduce captured into a graph" in str(error)), ("UNSUPPORTED", True), error)
            program.both("fill")
            self.assertEqual(program.both("launch"), ["cudaSuccess"] * 2)
            self.assertEqual(program.both("value"), ["3", "3"])
        program.rank(0, "drop-graph")
        self.assertEqual(self.refusal(task).code, "UNSUPPORTED")
        program.rank(1, "drop-graph")
        self.pause_and_resume(task)
        self.check_works(program)
        self.assertEqual(program.end(), 0)

    def test_a_revoked_communicator_is_refused(self):
        program, task = self.two_ranks()
        if program.both("revoke") != ["ncclSuccess"] * 2:
            self.fail("the library does not revoke")
        error = self.refusal(task)
        self.assertEqual((error.code, "ncclCommRevoke" in str(error)), ("UNSUPPORTED", True), error)
        self.assertEqual(program.both("abort"), ["ncclSuccess"] * 2)
        self.pause_and_resume(task)
        self.assertEqual(program.end(), 0)

    def test_communicators_between_processes_come_back(self):
        programs = [self.steps() for _ in range(2)]
        tasks = [task for _, task in programs]
        first, second = programs[0][0], programs[1][0]
        self.assertEqual(first.main("id"), "ncclSuccess")
        second.send("take-id " + first.main("show-id"))
        second.answer("take-id")
        for r, (program, _) in enumerate(programs):
            program.rank(r, "open")
        first.send("init 0")
        error = self.refusal(tasks[0], deadline_ms=2000)
        self.assertEqual((error.code, "ncclCommInitRank" in str(error)), ("TIMEOUT", True), error)
        second.send("init 1")
        for r, (program, _) in enumerate(programs):
            self.assertEqual(program.answer(f"init {r}"), "ncclSuccess")
        for strategy in STRATEGIES:
            self.pause_and_resume_together(tasks, strategy)
            for r, (program, _) in enumerate(programs):
                program.rank(r, "fill")
                self.assertEqual(program.rank(r, "reduce"), "ncclSuccess")
            for r, (program, _) in enumerate(programs):
                self.assertEqual(program.rank(r, "value"), "3")
        for r, (program, _) in enumerate(programs):
            program.send(f"destroy {r}")
        for r, (program, task) in enumerate(programs):
            self.assertEqual(program.answer(f"destroy {r}"), "ncclSuccess")
            self.pause_and_resume(task)
            self.assertEqual(program.end(), 0)

    def pause_and_resume_together(self, tasks, strategy):
        for rank, task in enumerate(tasks):
            report = task.shut()
            self.assertEqual([(r["size"], r["rank"], r["made_by"]) for r in report["ranks"]], [(2, rank, "ncclCommInitRank")])
        for task in tasks:
            task.drain()
        held = []
        for task in tasks:
            task.give_up()
            held.append(task.handover())
        for task in tasks:
            task.release(strategy)
        for task, extents in zip(tasks, held):
            task.attach(self.driver)
            task.import_extents(extents)
            task.rebuild()
            for extent in extents:
                extent.close()
        comms = [task.comms() for task in tasks]
        self.assertEqual([[(c["size"], c["ranks"], len(c["id"])) for c in each] for each in comms], [[(2, [0], 128)], [(2, [1], 0)]])
        ids = [(comms[0][0]["comm"], comms[0][0]["id"])]
        # One alone does not come to an end, and can try again.
        with self.assertRaises(TaskError) as raised:
            tasks[0].rejoin(ids, deadline_ms=200)
        self.assertEqual((raised.exception.code, tasks[0].hello()["state"]), ("TIMEOUT", "quiesced"), raised.exception)
        comms = tasks[0].comms()
        ids = [(comms[0]["comm"], comms[0]["id"])]
        joins = [threading.Thread(target=task.rejoin, args=[ids]) for task in tasks]
        for join in joins:
            join.start()
        for join in joins:
            join.join()
        for task in tasks:
            task.resume()

    def test_nothing_is_left_behind(self):
        program, task = self.two_ranks()
        for step in ("split", "register", "window", "operator"):
            self.assertEqual(program.both(step), ["ncclSuccess"] * 2, step)

        def held():
            folder = f"/proc/{program.process.pid}"
            return (len(os.listdir(f"{folder}/fd")), len(os.listdir(f"{folder}/task")), task.status()["records"],
                    [device["memory_used"] for device in self.node.devices()])

        def resident():
            with open(f"/proc/{program.process.pid}/statm", encoding="ascii") as sizes:
                return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        for strategy in STRATEGIES:
            for _ in range(3):
                self.pause_and_resume(task, strategy)
            self.check_works(program)
            before, memory = held(), resident()
            for _ in range(100 if FULL else 20):
                self.pause_and_resume(task, strategy)
            self.check_works(program)
            self.assertEqual(held(), before)
            self.assertLess(resident() - memory, 8 << 20)
        self.assertEqual(program.end(), 0)


if __name__ == "__main__":
    unittest.main()
