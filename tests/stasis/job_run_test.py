"""Jobs of several ranks as a user starts and follows them: what each rank gets, their output, their ends, and their names."""

import json
import os
import re
import signal
import subprocess
import unittest

import hung
from softgpu import die_with_parent
from stasis_job import GIVE_UP_SECONDS, Job, Site, built

STASIS = built("bin/stasis")


class JobRun(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "2", "--memory", "1GiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def stasis(self, *arguments):
        """(exit status, standard output, standard error)."""
        result = subprocess.run([STASIS, *map(str, arguments)], env=self.site.env(), stdin=subprocess.DEVNULL, text=True,
                                capture_output=True, timeout=GIVE_UP_SECONDS, check=False, preexec_fn=die_with_parent)
        return result.returncode, result.stdout, result.stderr

    def run_job(self, script, *options, ranks=2):
        return self.stasis("run", "--name", "job", "--device", "soft", "--ranks", ranks, *options, "--", "sh", "-c", script)

    def nothing_is_left(self):
        self.assertEqual(self.site.jobs(), [])
        self.assertEqual(self.site.tasks(), [])
        for folder in ("jobs", "tasks"):
            path = os.path.join(self.site.state, folder)
            self.assertEqual(os.listdir(path) if os.path.isdir(path) else [], [])

    def test_each_rank_gets_the_environment_of_torchrun(self):
        names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT".split()
        status, out, err = self.run_job("echo " + " ".join("$" + name for name in names), "--master-port", "4711", ranks=3)
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()), [f"[{rank}] {rank} {rank} 3 3 0 127.0.0.1 4711" for rank in range(3)])

    def test_a_free_port_is_found(self):
        status, out, err = self.run_job("echo $MASTER_PORT")
        self.assertEqual(status, 0, err)
        ports = {line.split()[1] for line in out.splitlines()}
        self.assertEqual(len(ports), 1)
        self.assertGreater(int(ports.pop()), 1023)

    def test_lines_stay_whole(self):
        _, out, err = self.run_job("for i in $(seq 200); do printf a$RANK; printf 'b\\n'; done; printf end", ranks=3)
        lines = out.splitlines()
        self.assertEqual(len(lines), 603, err)
        for rank in range(3):
            self.assertEqual([line for line in lines if line.startswith(f"[{rank}]")],
                             [f"[{rank}] a{rank}b"] * 200 + [f"[{rank}] end"])

    def test_the_first_rank_that_fails_ends_the_others(self):
        status, out, err = self.run_job("[ $RANK = 1 ] && exit 7; trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done", ranks=3)
        self.assertEqual(status, 7)
        self.assertIn("rank 1 of job exited with 7", err)
        job, = self.site.jobs()
        self.assertEqual((job["state"], job["failed_rank"], job["exit_code"]), ("exited", 1, 7))

    def test_ranks_that_do_not_hear_are_killed_after_the_grace(self):
        status, _, err = self.run_job("trap '' TERM; [ $RANK = 0 ] && kill -9 $$; while :; do sleep 0.05; done", "--grace", "300ms")
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertIn("rank 0 of job was ended by signal 9", err)
        self.assertFalse(self.site.jobs()[0]["live"])

    def test_json_is_one_document(self):
        # Rank 1 fails only once the other is deaf to what ends it then.
        deaf = os.path.join(self.site.folder.name, "deaf")
        status, out, _ = self.run_job(f"trap '' TERM; [ $RANK = 1 ] || : > {deaf}; while [ ! -e {deaf} ]; do sleep 0.05; done; "
                                      "echo text; exit $RANK", "--json", ranks=2)
        answer = json.loads(out)
        self.assertEqual((status, answer["exit_code"], answer["failed_rank"], answer["job"]), (1, 1, 1, "job"))
        self.assertEqual([rank["exit_code"] for rank in answer["ranks"]], [0, 1])
        outputs = json.loads(self.stasis("logs", "--json", "job")[1])["ranks"]
        self.assertEqual([rank["output"] for rank in outputs], ["text\n", "text\n"])

    def test_a_signal_reaches_all_ranks(self):
        # Deaf to what ends a rank when another one has come to its end before it.
        command = [STASIS, "run", "--device", "soft", "--ranks", "2", "--grace", "60s", "--", "sh", "-c",
                   "trap '' TERM; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done"]
        with hung.started(command, env=self.site.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, preexec_fn=die_with_parent) as run:
            for _ in range(2):
                self.assertRegex(run.stdout.readline(), r"\[[01]\] ready")
            run.send_signal(signal.SIGINT)
            rest = run.stdout.read()
            self.assertEqual(run.wait(GIVE_UP_SECONDS), 5)
        self.assertEqual(sorted(rest.splitlines()), ["[0] int", "[1] int"])

    def test_a_detached_job_in_ps_and_logs_until_it_is_removed(self):
        status, out, err = self.run_job("echo rank $RANK; [ $RANK = 0 ] || exec sleep 1000", "--detach", "--gpus", "1,0")
        self.assertEqual((status, out), (0, "job\n"), err)
        for rank in range(2):
            Job(self.site, f"job.{rank}").wait_for_output(f"rank {rank}\n")
        shown = self.stasis("ps", "job")[1]
        self.assertEqual([line.split()[0] for line in shown.splitlines()], ["NAME", "job", "job.0", "job.1"])
        self.assertNotIn("job.0", self.stasis("ps")[1])
        self.assertIn("job.0", self.stasis("ps", "--ranks")[1])
        job, = self.site.jobs()
        self.assertTrue(job["live"])
        self.assertEqual([rank["gpus"] for rank in job["ranks"]], [[1, 0], [1, 0]])
        self.assertEqual(self.site.tasks(), [])
        status, _, err = self.stasis("rm", "job")
        self.assertEqual(status, 4)
        self.assertIn("stasis cancel job", err)
        os.kill(job["ranks"][1]["pid"], signal.SIGKILL)
        self.assertEqual(self.stasis("logs", "-f", "job")[1], "[0] rank 0\n[1] rank 1\n")
        self.assertEqual(self.stasis("logs", "job.1")[1], "rank 1\n")
        self.assertEqual(self.stasis("rm", "job")[0], 0)
        self.nothing_is_left()

    def test_verbs_are_for_all_ranks(self):
        self.run_job("exec sleep 1000", "--detach")
        for verb in ("pause", "resume", "checkpoint", "restore", "cancel", "rm"):
            status, _, err = self.stasis(verb, "job.1")
            self.assertEqual(status, 4, verb)
            self.assertIn("rank 1 of the job job", err)
            self.assertIn(f"stasis {verb} job", err)

    def test_names_are_taken_once(self):
        self.assertEqual(self.run_job("true")[0], 0)
        for command in (["--ranks", "2", "--name", "job"], ["--name", "job"], ["--name", "job.1"], ["--name", "job.5"]):
            status, _, err = self.stasis("run", "--device", "soft", *command, "--", "true")
            self.assertEqual(status, 4, err)
            self.assertIn("job", err)
        self.assertEqual(self.stasis("run", "--device", "soft", "--name", "other", "--", "true")[0], 0)
        self.assertEqual(self.stasis("run", "--device", "soft", "--ranks", "2", "--name", "other", "--", "true")[0], 4)

    def test_all_ranks_or_none(self):
        broken = os.path.join(self.site.folder.name, "broken")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("#!/no/such/interpreter\n")
        os.chmod(broken, 0o755)
        status, _, err = self.stasis("run", "--device", "soft", "--ranks", "3", "--", broken)
        self.assertEqual(status, 126, err)
        self.nothing_is_left()

    def nodes(self, *nodes):
        path = os.path.join(self.site.folder.name, "nodes.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(nodes, file)
        return path

    def test_ranks_on_nodes(self):
        here = {"name": "a", "ranks": 1, "address": "127.0.0.7"}
        there = {"name": "b", "ranks": 2, "through": ["nsenter", "-t", str(os.getpid()), "-m", "-u", "--"]}
        status, out, err = self.stasis("run", "--device", "soft", "--nodes", self.nodes(here, there), "--", "sh", "-c",
                                       "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $(pwd)")
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()),
                         [f"[{i}] {i} {text} 127.0.0.7 {os.getcwd()}" for i, text in enumerate(("0 1 0", "0 2 1", "1 2 1"))])
        job, = self.site.jobs()
        self.assertEqual([rank["node"] for rank in job["ranks"]], ["a", "b", "b"])

    def test_what_is_wrong_with_nodes(self):
        good = {"name": "a", "ranks": 2}
        for nodes, ranks, text in (
                ([good], 3, "--ranks 3"),
                ([{**good, "through": ["no-such-program"]}], 2, "no-such-program"),
                ([{**good, "gpus": [5, 6]}], 2, "node a"),
                ([{**good, "through": ["nsenter", "-t", "2147483647", "-m", "--"]}], 2, "node a"),
                ([good, {**good, "name": "b", "through": ["false"]}], 4, "rank 2"),
                ([good, good], 4, "twice")):
            status, _, err = self.stasis("run", "--device", "soft", "--ranks", ranks, "--nodes", self.nodes(*nodes), "--", "true")
            self.assertNotEqual(status, 0, nodes)
            self.assertIn(text, err)
        self.assertNotEqual(self.stasis("run", "--device", "soft", "--nodes", "/no/such/file", "--", "true")[0], 0)
        self.nothing_is_left()

    def test_programs_on_devices(self):
        program = built("samples/mlp_train")
        status, out, err = self.stasis("run", "--device", "soft", "--ranks", "2", "--", program, "--steps", "3")
        self.assertEqual(status, 0, err)
        alone = self.site.node.run(program, "--steps", "3")
        for rank in range(2):
            lines = [re.sub(r"^\[\d\] ", "", line) for line in out.splitlines() if line.startswith(f"[{rank}]")]
            self.assertEqual(lines, alone.stdout.splitlines())
        self.assertNotIn("unmanaged", err)


if __name__ == "__main__":
    unittest.main()
