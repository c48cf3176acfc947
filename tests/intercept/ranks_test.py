#!/usr/bin/env python3
"""NCCL over several processes: a job whose processes are paused together anywhere ends as if nothing had been, and what cannot
be carried, or be made again in time, is named while nothing is lost."""

import os
import random
import subprocess
import tempfile
import threading
import time
import unittest

from nccl_test import Ranks, Steps
from rank_cut import NoCut, Together
from softgpu import Node, built, die_with_parent
from task_client import DRIVER_CHECKPOINT, RECONSTRUCT, TaskError, wait_for_task

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
DEVICES = 4


class Part:
    """nccl_ranks with some of the ranks."""

    def __init__(self, case, how, ranks, rounds, first, count, folder):
        self.task_folder = case.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
        command = [built("tests/programs/nccl_ranks"), how, ranks, rounds, 1, first, count, folder]
        env = case.node.env(**case.managed(self.task_folder), PACE_UNTIL=os.path.join(folder, "hurry"))
        self.process = subprocess.Popen([str(word) for word in command], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=die_with_parent)
        case.addCleanup(self.close)

    def begin(self):
        """Its rounds: now whoever is to disturb them is there."""
        self.process.stdin.close()

    def end(self):
        lines = self.process.stdout.readlines()
        assert self.process.wait(timeout=60) == 0, lines
        return [line for line in lines if line.startswith("rank")]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class RanksTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.node = self.enterContext(Node("--gpus", str(DEVICES), "--memory", "512MiB"))
        self.driver = built("lib/softgpu/libcuda.so.1")

    def managed(self, folder):
        return {"LD_PRELOAD": built("lib/libstasis.so"), "STASIS_TASK": folder, "STASIS_DRIVER": self.driver}

    def together(self, tasks):
        job = Together(tasks)
        self.addCleanup(job.close)
        return job

    def move(self, job, strategy, placements=()):
        """Quiesced -> Running by way of a device that has forgotten everything."""
        held = job.each(lambda task: task.handover())
        job.each(lambda task: task.release(strategy))

        def attach(task):
            extents = held[job.tasks.index(task)]
            task.attach(self.driver, placements)
            task.import_extents(extents)
            task.rebuild()
            for extent in extents:
                extent.close()
        job.each(attach)
        job.go_on()

    # ---- ranks at work

    def disturbed(self, how, sizes, rounds, seed, strategy):
        """What the ranks end with, and how often they were paused."""
        chance = random.Random(seed)
        ranks = sum(sizes)
        with tempfile.TemporaryDirectory(prefix="stasis-ids-") as ids:
            parts, first = [], 0
            for size in sizes:
                parts.append(Part(self, how, ranks, rounds, first, size, ids))
                first += size
            job = self.together([self.enterContext(wait_for_task(part.task_folder, part.process.pid)) for part in parts])
            for part in parts:
                part.begin()
            pauses = 0
            try:
                while True:
                    threading.Event().wait(chance.random() * 0.03)
                    job.quiesce()
                    if chance.random() < 0.5:
                        self.move(job, strategy, [(device, (device + pauses) % DEVICES) for device in range(DEVICES)]
                                  if strategy == RECONSTRUCT else ())
                    else:
                        job.go_on()
                    pauses += 1
                    if pauses == 1:
                        with open(os.path.join(ids, "hurry"), "x", encoding="ascii"):
                            pass
            except ConnectionError:
                pass
            except TaskError as error:
                self.assertIn("the process is ending", str(error))
            except NoCut as error:
                self.assertTrue(any(part.process.poll() is not None for part in parts), error)
            for task in job.tasks:
                task.close()  # undoes what was begun as one of them ended
            return [line for part in parts for line in part.end()], pauses

    def check_disturbed(self, how, sizes, rounds, strategies=(RECONSTRUCT, DRIVER_CHECKPOINT)):
        expected = Ranks(self, how, sum(sizes), rounds).end()
        for strategy in strategies:
            for seed in range(5 if FULL else 1):
                with self.subTest(how=how, sizes=sizes, strategy=strategy, seed=seed):
                    result, pauses = self.disturbed(how, sizes, rounds, seed, strategy)
                    self.assertEqual(result, expected)
                    self.assertGreater(pauses, 0)

    def test_a_process_for_each_rank(self):
        self.check_disturbed("threads", [1, 1], 150)
        self.check_disturbed("threads", [1, 1, 1, 1], 80, [RECONSTRUCT])

    def test_processes_with_several_ranks(self):
        self.check_disturbed("threads", [1, 3], 100)
        self.check_disturbed("threads", [2, 2], 100, [RECONSTRUCT])

    def test_communicators_that_come_and_go(self):
        self.check_disturbed("churn", [1, 1, 1], 40)
        self.check_disturbed("churn", [2, 1], 40, [RECONSTRUCT])

    # ---- step by step

    def two(self, init="init"):
        """A process for each of two ranks, with a communicator of them."""
        programs, tasks = [], []
        for r in range(2):
            folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-task-"))
            programs.append(Steps(self, **self.managed(folder)))
            tasks.append(self.enterContext(wait_for_task(folder, programs[r].process.pid)))
            programs[r].rank(r, "open")
        self.share_id(programs)
        if init is not None:
            self.assertEqual(self.both(programs, init), ["ncclSuccess"] * 2)
        return programs, self.together(tasks)

    def share_id(self, programs):
        self.assertEqual(programs[0].main("id"), "ncclSuccess")
        programs[1].send("take-id " + programs[0].main("show-id"))
        programs[1].answer("take-id")

    def both(self, programs, step):
        for r, program in enumerate(programs):
            program.send(f"{step} {r}")
        return [program.answer(f"{step} {r}") for r, program in enumerate(programs)]

    def check_works(self, programs):
        self.both(programs, "fill")
        self.assertEqual(self.both(programs, "reduce"), ["ncclSuccess"] * 2)
        self.assertEqual(self.both(programs, "value"), ["3", "3"])

    def end(self, programs):
        for program in programs:
            self.assertEqual(program.end(), 0)

    def test_everything_of_a_communicator_comes_back(self):
        for init in ("init", "init-polite"):
            with self.subTest(init=init):
                programs, job = self.two(init)
                polite = "-polite" if init == "init-polite" else ""
                for step in ("split" + polite, "wait-child", "register", "window" + polite, "operator"):
                    self.assertEqual(self.both(programs, step), ["ncclSuccess"] * 2, step)
                before = self.both(programs, "facts")
                for _ in range(3):
                    job.quiesce()
                    self.move(job, RECONSTRUCT)
                    self.check_works(programs)
                    self.assertEqual(self.both(programs, "facts"), before)
                    self.both(programs, "fill")
                    self.assertIn(self.both(programs, "reduce-child"), [["ncclSuccess"] * 2, ["ncclInProgress"] * 2])
                    self.assertEqual(self.both(programs, "value"), ["3", "3"])
                    self.assertEqual(self.both(programs, "floats"), ["ncclSuccess 3.000000"] * 2)
                for step in ("drop-window", "deregister", "drop-operator", "destroy-child", "destroy"):
                    self.assertEqual(self.both(programs, step), ["ncclSuccess"] * 2, step)
                job.quiesce()
                job.go_on()
                self.end(programs)

    def test_the_rank_that_is_behind_is_let_through(self):
        programs, job = self.two()
        self.assertEqual(programs[0].rank(0, "reduce"), "ncclSuccess")
        with self.assertRaisesRegex(NoCut, "collective #1 of rank 1"):
            job.find_cut(deadline_ms=2000)
        job.each(lambda task: task.resume())
        found = threading.Thread(target=job.quiesce)
        found.start()
        programs[1].send("reduce 1")
        found.join()
        job.go_on()
        self.assertEqual(programs[1].answer("reduce 1"), "ncclSuccess")
        self.assertEqual(self.both(programs, "value"), ["3", "3"])
        self.end(programs)

    def test_creation_waits_inside_for_the_other_process(self):
        for init in ("init", "init-polite"):
            with self.subTest(init=init):
                programs, job = self.two(init=None)
                with self.assertRaisesRegex(NoCut, "an id of ncclGetUniqueId"):
                    job.find_cut(deadline_ms=2000)
                job.each(lambda task: task.resume())
                programs[0].send(f"{init} 0")
                found = threading.Thread(target=job.quiesce)
                found.start()
                programs[1].send(f"{init} 1")
                found.join()
                job.go_on()
                self.assertEqual([programs[r].answer(f"{init} {r}") for r in (0, 1)], ["ncclSuccess"] * 2)
                self.check_works(programs)
                self.end(programs)

    def test_an_id_that_only_others_use_is_not_waited_for(self):
        programs, job = self.two(init=None)
        # Both ranks are in the second process: the first has only made the id.
        for r in range(2):
            programs[1].send(f"open {r}")
            programs[1].answer(f"open {r}")
        self.assertEqual(programs[1].both("init"), ["ncclSuccess"] * 2)
        job.quiesce()
        job.go_on()
        self.assertEqual(programs[1].both("reduce"), ["ncclSuccess"] * 2)
        self.end(programs)

    def test_who_does_not_come_is_named_in_time_and_all_stay_paused(self):
        programs, job = self.two()
        for init in ("init", None):
            if init is None:
                self.assertEqual(self.both(programs, "split"), ["ncclSuccess"] * 2)
            job.quiesce()
            first, second = job.tasks
            start = time.monotonic()
            with self.assertRaises(TaskError) as raised:
                first.rejoin(job.ids(), 500)
            self.assertLess(time.monotonic() - start, 30)
            self.assertEqual(raised.exception.code, "TIMEOUT")
            self.assertIn("rank 0 of 2 was not made again in time: not all of ranks 1, in other processes, came",
                          str(raised.exception))
            self.assertEqual([task.hello()["state"] for task in (first, second)], ["quiesced"] * 2)
            job.go_on()
            self.check_works(programs)
        self.end(programs)

    def test_what_one_process_has_ended_is_ended(self):
        # The error of an abort may come to the other process before the pause, or not.
        for step, answers in (("abort", ("ncclRemoteError", "ncclInvalidUsage")), ("destroy", ("ncclInvalidUsage",))):
            with self.subTest(step=step):
                programs, job = self.two()
                self.assertEqual(programs[1].rank(1, step), "ncclSuccess")
                job.quiesce()
                self.assertEqual(job.ids(), [])
                job.go_on()
                self.assertIn(programs[0].rank(0, "reduce"), answers)
                self.assertEqual(programs[0].rank(0, "facts").split()[3:5], ["2", "0"])
                self.assertEqual(programs[0].rank(0, "destroy"), "ncclSuccess")
                self.share_id(programs)
                self.assertEqual(self.both(programs, "init"), ["ncclSuccess"] * 2)
                self.check_works(programs)
                self.end(programs)

    def test_a_process_that_waits_in_the_end_of_a_communicator_is_followed(self):
        for step in ("finalize", "destroy"):
            programs, job = self.two()
            programs[0].send(f"{step} 0")
            found = threading.Thread(target=job.quiesce)
            found.start()
            programs[1].send(f"{step} 1")
            found.join()
            job.go_on()
            self.assertEqual([programs[r].answer(f"{step} {r}") for r in (0, 1)], ["ncclSuccess"] * 2)
            self.end(programs)

    def test_without_a_ghost_they_wait_for_the_next_one(self):
        programs, job = self.two()
        folders = [os.path.dirname(os.path.dirname(task.socket.getpeername())) for task in job.tasks]
        job.quiesce()
        for task in job.tasks:
            task.close()
        job = self.together([self.enterContext(wait_for_task(folder, program.process.pid))
                             for folder, program in zip(folders, programs)])
        self.assertEqual([task.hello()["state"] for task in job.tasks], ["quiesced"] * 2)
        job.go_on()
        self.check_works(programs)
        self.end(programs)

    def test_nothing_is_left_behind(self):
        programs, job = self.two()
        for step in ("split", "register", "window", "operator"):
            self.assertEqual(self.both(programs, step), ["ncclSuccess"] * 2, step)

        def held():
            folders = [f"/proc/{program.process.pid}" for program in programs]
            return ([len(os.listdir(f"{folder}/{what}")) for folder in folders for what in ("fd", "task")],
                    [task.status()["records"] for task in job.tasks],
                    [device["memory_used"] for device in self.node.devices()])

        for _ in range(2):
            job.quiesce()
            self.move(job, RECONSTRUCT)
        self.check_works(programs)
        before = held()
        for _ in range(50 if FULL else 10):
            job.quiesce()
            job.ids()  # of which nothing is made
            self.move(job, RECONSTRUCT)
        self.check_works(programs)
        self.assertEqual(held(), before)
        self.end(programs)


if __name__ == "__main__":
    unittest.main()
