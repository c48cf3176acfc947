"""Tasks that are ranks of a job, led by a coordinator that does as the test says: what they ask, what they do when one of them
fails, and what becomes of them when nobody answers any more."""

import os
import time
import unittest

from rank_ghosts import Ranks, make_ranks
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
BACK = ["join", "joined"]  # what all ask on the way back once communicators were given up
ORDER = {
    "pause": ["cut", "drained", "held"],
    "resume": ["revived", "join", "joined"],
    "checkpoint": ["cut", "drained", "dumped", "revived", "join", "joined", "saved", "committed"],
    "stop": ["cut", "drained", "dumped", "saved", "committed"],
    "checkpoint-held": ["dumped", "saved", "committed"],
    "migrate": ["cut", "drained", "revived", "join", "joined"],
    "migrate-held": ["held"],
    "restore": ["loaded", "revived", "join", "joined"],
}


def expected_result():
    value = 0x01010101
    for _ in range(1001):
        value = (value * 1664525 + 1013904223) % 2**32
    return f"ready\nresult {value}\n"


class Coordinated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site("--gpus", "2", "--memory", "256MiB")
        cls.site.__enter__()
        cls.addClassCleanup(cls.site.__exit__, None, None, None)
        cls.count = 0

    def start(self):
        type(self).count += 1
        self.commands, jobs = [], []
        for rank in range(2):
            command = os.path.join(self.site.folder.name, f"command-{self.count}-{rank}", "go")
            os.makedirs(os.path.dirname(command))
            self.commands.append(command)
            jobs.append(self.site.start(f"job-{self.count}.{rank}", built("tests/programs/stubborn"), "plain", command))
        for job in jobs:
            job.wait_for_output("ready")
        make_ranks(jobs)
        ranks = Ranks(jobs)
        self.addCleanup(self.end, ranks)
        return ranks

    def end(self, ranks):
        for rank in ranks:
            if rank.job.alive():
                rank.lose()
                rank.connect()
                rank.call("cancel", grace_ms=0)
        ranks.close()

    def finish(self, ranks):
        """The programs end as if nothing had been."""
        for command in self.commands:
            with open(command, "x", encoding="utf-8"):
                pass
        for rank in ranks:
            self.assertEqual(rank.job.wait(), 0, rank.job.output())
            self.assertEqual(rank.job.output(), expected_result())
        ranks.close()

    def must(self, ranks, verb, **fields):
        results = ranks.run(verb, **fields)
        for rank, result in zip(ranks, results):
            self.assertTrue(result and result["ok"], f"{result}\n{rank.log()}")
        return results

    def asked(self, ranks, verb):
        for rank in ranks:
            self.assertEqual(rank.asked, ORDER[verb], rank.log())

    def states(self, ranks):
        ranks.connect()
        return [rank.status()["state"] for rank in ranks]

    def resume(self, ranks):
        """What the next coordinator does with what it finds."""
        states = self.states(ranks)
        if "in-doubt" not in states and "paused" not in states:
            return
        choice = "give-up" if "paused" in states else "go-on"
        if "running" in states:
            self.assertEqual(choice, "go-on", states)
        ranks.failure, ranks.back = None, set()
        for rank, state in zip(ranks, states):
            if state == "running":
                rank.result = {"ok": True}
            else:
                rank.ask("resume", **({"in_doubt": choice} if state == "in-doubt" else {}))
        for rank, result in zip(ranks, ranks.finish()):
            self.assertTrue(result["ok"], f"{states}: {result}\n{rank.log()}")

    # ---- what is asked

    def test_a_rank_is_not_moved_without_the_others(self):
        ranks = self.start()
        ranks.connect()
        for verb in ("pause", "resume", "checkpoint", "restore", "cancel"):
            result = ranks[1].call(verb, job=False)
            self.assertEqual((result["code"], result["left"]), ("FAILED_PRECONDITION", "unchanged"), result)
            self.assertIn("rank 1 of the 2 of job job", result["message"])
            self.assertIn(f"stasis {verb} job", result["remedy"])
        ranks[1].about = {"name": "other", "rank": 1, "ranks": 2}
        self.assertEqual(ranks[1].call("pause")["code"], "FAILED_PRECONDITION")
        ranks[1].about = {"name": "job", "rank": 1, "ranks": 2}
        status = ranks[1].status()
        self.assertEqual((status["job"], status["phase"]), (ranks[1].about, "running"))
        self.finish(ranks)

    def test_every_verb_asks_in_its_order(self):
        ranks = self.start()
        self.must(ranks, "pause")
        self.asked(ranks, "pause")
        self.assertEqual([rank.status()["phase"] for rank in ranks], ["held", "held"])
        self.must(ranks, "checkpoint")
        self.asked(ranks, "checkpoint-held")
        self.must(ranks, "migrate", gpus=[1, 0])
        self.asked(ranks, "migrate-held")
        self.must(ranks, "resume")
        self.asked(ranks, "resume")
        self.must(ranks, "migrate", gpus=[0, 1])
        self.asked(ranks, "migrate")
        self.must(ranks, "pause", pause_protocol="timeout")
        for rank in ranks:
            self.assertEqual(rank.asked, ORDER["pause"])
        self.must(ranks, "resume")
        self.must(ranks, "checkpoint")
        self.asked(ranks, "checkpoint")
        images = [result["image"] for result in self.must(ranks, "checkpoint", stop=True)]
        self.asked(ranks, "stop")
        for rank in ranks:
            rank.job.wait()
        self.must(ranks, "restore", each={rank.rank: {"image": image} for rank, image in zip(ranks, images)})
        self.asked(ranks, "restore")
        self.finish(ranks)

    # ---- failures

    def test_a_failure_told_at_any_question_takes_all_back(self):
        ranks = self.start()
        for verb, points in (("pause", ORDER["pause"]), ("checkpoint", ORDER["checkpoint"][:-2])):
            for point in points:
                with self.subTest(verb=verb, point=point):
                    ranks.begin(verb)
                    ranks.until(point)
                    ranks.refuse("TIMEOUT", "rank 9: too late")
                    results = ranks.finish()
                    given_up = point not in ("cut", "drained")
                    for rank, result in zip(ranks, results):
                        self.assertEqual((result["code"], result["left"]), ("TIMEOUT", "rolled-back"), result)
                        self.assertIn("rank 9: too late", result["message"])
                        self.assertEqual(rank.failures, [])
                        self.assertEqual(rank.asked[-2:], BACK if given_up else rank.asked[-2:])
                        self.assertEqual("join" in rank.asked, given_up)
                    self.assertEqual(self.states(ranks), ["running", "running"])
                    self.assertEqual([self.site.image_names(rank.job.name) for rank in ranks], [[], []])
        self.finish(ranks)

    def test_an_image_that_is_not_the_job_s_is_removed(self):
        ranks = self.start()
        for point in ("saved", "committed"):
            ranks.begin("checkpoint")
            ranks.until(point)
            ranks.refuse()
            for result in ranks.finish():
                self.assertEqual((result["code"], result["left"]), ("TIMEOUT", "rolled-back"), result)
            self.assertEqual([self.site.image_names(rank.job.name) for rank in ranks], [[], []])
            ranks.begin("checkpoint", stop=True)
            ranks.until(point)
            ranks.refuse()
            for rank, result in zip(ranks, ranks.finish()):
                self.assertEqual((result["code"], result["left"]), ("TIMEOUT", "rolled-back"), result)
                self.assertEqual(rank.asked[-2:], BACK)
            self.assertEqual([self.site.image_names(rank.job.name) for rank in ranks], [[], []])
        self.finish(ranks)

    def test_what_fails_in_one_rank_fails_in_all(self):
        points = ["quiesce-after", "give-up-before", "hand-over-after", "freeze-before"]
        for point in points if FULL else points[1:3]:
            with self.subTest(point):
                ranks = self.start()
                ranks.connect({0: f"{point}:fail"})
                results = ranks.run("pause")
                self.assertEqual(ranks[0].failures, [("INTERNAL", f"fault point {point}")])
                self.assertIn(f"rank 0: fault point {point}", results[1]["message"])
                self.assertEqual([result["left"] for result in results], ["rolled-back"] * 2, results)
                self.assertEqual(self.states(ranks), ["running", "running"])
                self.must(ranks, "pause")
                self.must(ranks, "resume")
                self.finish(ranks)

    def test_communicators_that_cannot_be_made_again_leave_the_job_paused(self):
        ranks = self.start()
        ranks.begin("pause")
        ranks.until("held")
        ranks.refuse()
        ranks.until("join")
        for rank in ranks:
            rank.refuse("TIMEOUT", "rank 9 is missing")
        for result in ranks.finish():
            self.assertEqual((result["code"], result["left"]), ("TIMEOUT", "paused"), result)
        self.resume(ranks)
        self.finish(ranks)

    def test_a_rank_that_ends_is_told_at_once(self):
        for point in ("drained", "held"):
            with self.subTest(point):
                ranks = self.start()
                ranks.begin("pause")
                ranks.until(point)
                ranks[1].job.kill()
                self.assertTrue(ranks[1].take())
                self.assertEqual(ranks[1].failures, [("PEER_DIED", "the task has ended")])
                results = ranks.finish()
                # Its communicators cannot be made without the other one, if it had any.
                left = "rolled-back" if point == "drained" else "paused"
                self.assertEqual([result["left"] for result in results], [left, "lost"], results)
                self.assertIn("rank 1: the task has ended", results[0]["message"])
                if left == "paused":
                    self.assertTrue(ranks[0].call("cancel", grace_ms=0)["ok"])
                    ranks.close()
                    continue
                with open(self.commands[0], "x", encoding="utf-8"):
                    pass
                self.assertEqual(ranks[0].job.wait(), 0)
                self.assertEqual(ranks[0].job.output(), expected_result())
                ranks.close()

    def test_an_operation_is_given_up_by_all(self):
        ranks = self.start()
        ranks.begin("pause")
        ranks.until("drained")
        other = Ranks([ranks[0].job, ranks[1].job])
        other[0].connect()
        self.assertTrue(other[0].call("cancel", job=False, what="operation")["ok"])
        other.close()
        self.assertTrue(ranks[0].take())
        self.assertEqual(ranks[0].failures[0][0], "CANCELLED")
        results = ranks.finish()
        self.assertEqual([(result["code"], result["left"]) for result in results], [("CANCELLED", "rolled-back")] * 2)
        self.finish(ranks)

    # ---- nobody answers

    def lost_at(self, ranks, verb, point, told=(), **fields):
        """The coordinator goes away while all wait there; `told`: those that still heard that they are to go on."""
        ranks.begin(verb, **fields)
        ranks.until(point)
        for rank in told:
            ranks[rank].answer()
        ranks.lose()
        for rank in ranks:
            self.wait_until_done(rank)

    def wait_until_done(self, rank):
        rank.connect()
        while rank.status()["operation"]:
            time.sleep(0.01)  # only the client that asked for it is told

    def test_lost_before_the_vote_the_program_runs_on(self):
        ranks = self.start()
        self.lost_at(ranks, "pause", "cut")
        self.assertEqual(self.states(ranks), ["running", "running"])
        self.finish(ranks)

    def test_in_doubt(self):
        ranks = self.start()
        self.lost_at(ranks, "pause", "drained")
        self.assertEqual(self.states(ranks), ["in-doubt", "in-doubt"])
        self.assertEqual([rank.status()["phase"] for rank in ranks], ["drained"] * 2)
        shown = {task["name"]: task for task in self.site.tasks()}
        self.assertEqual(shown[ranks[0].job.name]["state"], "in-doubt", shown)
        for verb, fields in (("pause", {}), ("checkpoint", {}), ("resume", {}),
                             ("resume", {"in_doubt": "go-on", "gpus": [1, 0]})):
            result = ranks[0].call(verb, **fields)
            self.assertFalse(result["ok"], result)
            self.assertEqual(result["left"], "unchanged")
        self.assertEqual(self.states(ranks), ["in-doubt", "in-doubt"])
        self.resume(ranks)
        for rank in ranks:
            self.assertEqual(rank.asked, [])
        self.assertEqual(ranks[0].call("resume", in_doubt="go-on")["code"], "FAILED_PRECONDITION")
        self.must(ranks, "pause")
        self.must(ranks, "resume")
        self.finish(ranks)

    def test_in_doubt_while_others_have_given_up(self):
        for verb in ("pause", "checkpoint"):
            with self.subTest(verb):
                ranks = self.start()
                self.lost_at(ranks, verb, "drained", told=[0])
                self.assertEqual(self.states(ranks), ["paused", "in-doubt"])
                self.resume(ranks)
                for rank in ranks:
                    self.assertEqual(rank.asked, ORDER["resume"])
                self.finish(ranks)

    def test_in_doubt_and_ended(self):
        ranks = self.start()
        self.lost_at(ranks, "pause", "drained")
        result = ranks[0].call("cancel", grace_ms=0)
        self.assertTrue(result["ok"], result)
        self.assertFalse(ranks[0].job.alive())
        ranks[1].job.kill()
        ranks.close()
        self.assertEqual(ranks[1].job.read_json("status.json")["state"], "ended")

    def test_in_doubt_with_another_ghost(self):
        ranks = self.start()
        self.lost_at(ranks, "pause", "drained")
        for rank in ranks:
            rank.ghost.kill()
            rank.ghost.wait()
            rank.lose()
        self.assertEqual(self.states(ranks), ["in-doubt", "in-doubt"])
        self.resume(ranks)
        self.finish(ranks)

    def test_lost_afterwards_the_job_is_paused(self):
        for verb, point in (("pause", "held"), ("checkpoint", "dumped"), ("checkpoint", "join")):
            with self.subTest(verb=verb, point=point):
                ranks = self.start()
                self.lost_at(ranks, verb, point)
                self.assertEqual(self.states(ranks), ["paused", "paused"])
                self.assertEqual([self.site.image_names(rank.job.name) for rank in ranks], [[], []])
                self.lost_at(ranks, "resume", "revived")
                self.assertEqual(self.states(ranks), ["paused", "paused"])
                self.resume(ranks)
                self.finish(ranks)

    def test_lost_when_all_are_there_the_job_runs_on(self):
        ranks = self.start()
        self.lost_at(ranks, "checkpoint", "joined")
        self.assertEqual(self.states(ranks), ["running", "running"])
        self.must(ranks, "pause")
        self.lost_at(ranks, "resume", "joined")
        self.assertEqual(self.states(ranks), ["running", "running"])
        self.finish(ranks)

    def test_lost_at_the_commit(self):
        ranks = self.start()
        self.lost_at(ranks, "checkpoint", "saved")
        self.assertEqual([self.site.image_names(rank.job.name) for rank in ranks], [[], []])
        self.lost_at(ranks, "checkpoint", "committed")
        self.assertEqual(self.states(ranks), ["running", "running"])
        self.assertEqual([len(self.site.image_names(rank.job.name)) for rank in ranks], [1, 1])
        self.lost_at(ranks, "checkpoint", "committed", stop=True)
        self.assertEqual(self.states(ranks), ["paused", "paused"])
        self.assertEqual([len(self.site.image_names(rank.job.name)) for rank in ranks], [2, 2])
        self.resume(ranks)
        self.finish(ranks)

    def test_a_restore_that_nobody_leads_is_abandoned(self):
        ranks = self.start()
        self.must(ranks, "checkpoint", stop=True)
        for rank in ranks:
            rank.job.wait()
        for point in ("loaded", "revived", "join"):
            self.lost_at(ranks, "restore", point)
            self.assertEqual([rank.job.alive() for rank in ranks], [False, False], point)
        self.lost_at(ranks, "restore", "joined")
        self.assertEqual(self.states(ranks), ["running", "running"])
        self.finish(ranks)

    # ---- ghosts that die

    def test_a_ghost_that_is_killed_costs_no_rank(self):
        points = ["quiesce-after", "vote-drained-before", "vote-drained-after", "give-up-before", "give-up-after",
                  "hand-over-after", "release-after", "freeze-after", "vote-held-before", "vote-held-after"]
        for point in points if FULL else points[1::3]:
            with self.subTest(point):
                ranks = self.start()
                ranks.connect({0: f"{point}:kill"})
                ranks.begin("pause")
                ranks.finish()
                self.assertIsNone(ranks[0].result, "the ghost was not killed")
                ranks[0].ghost.wait()
                self.resume(ranks)
                self.must(ranks, "pause")
                self.must(ranks, "resume")
                self.finish(ranks)

    def test_a_ghost_that_is_killed_on_the_way_up(self):
        points = ["attach-after", "vote-revived-before", "vote-revived-after", "rejoin-inside", "rejoin-after",
                  "vote-joined-before", "vote-joined-after", "reopen-before", "vote-saved-after", "commit-after"]
        for point in points if FULL else points[1::3]:
            with self.subTest(point):
                ranks = self.start()
                ranks.connect({0: f"{point}:kill"})
                ranks.begin("checkpoint")
                ranks.finish()
                self.assertIsNone(ranks[0].result, "the ghost was not killed")
                ranks[0].ghost.wait()
                self.resume(ranks)
                self.must(ranks, "pause")
                self.must(ranks, "resume")
                self.finish(ranks)

    def test_a_task_whose_image_counts_ends_all_the_same(self):
        for point in ("vote-committed-after", "end-task-before") if FULL else ("vote-committed-after",):
            with self.subTest(point):
                ranks = self.start()
                ranks.connect({0: f"{point}:kill"})
                results = ranks.run("checkpoint", stop=True)
                self.assertIsNone(results[0], "the ghost was not killed")
                self.assertTrue(results[1]["ok"], results)
                ranks[0].ghost.wait()
                ranks[0].job.wait()
                ranks[0].job.wait_for_ghost_to_leave()
                status = ranks[0].job.read_json("status.json")
                self.assertEqual((status["state"], status["ended_by"]), ("ended", "checkpoint"))
                self.must(ranks, "restore", each={0: {"image": status["last_image"]}, 1: {"image": results[1]["image"]}})
                self.finish(ranks)


if __name__ == "__main__":
    unittest.main()
