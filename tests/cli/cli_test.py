"""`stasis` as a user meets it, with real processes: starting, following, signals, records, refusals, and JSON."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import unittest

from site_of_tests import SECONDS, STASIS, Site
from softgpu import built

COUNTER = built("samples/counter")
NOBODY = 65534


class SiteTest(unittest.TestCase):
    user = None

    def setUp(self):
        self.site = Site(self.user)
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def sh(self, script, *options, **extra):
        return self.site.call("run", *options, "--", "/bin/sh", "-c", script, **extra)


class Running(SiteTest):
    def test_output_and_exit_code_are_the_programs(self):
        code, out, err = self.sh("echo out; echo err >&2; exit 7")
        self.assertEqual((code, out), (7, "out\nerr\n"), err)
        self.assertIn("software device", err)
        self.assertEqual(self.site.task("sh-1", "output.log"), "out\nerr\n")
        self.assertEqual(self.site.task("sh-1", "exit.json")["exit_code"], 7)
        self.assertEqual(self.site.listed("sh-1")["state"], "exited")

    def test_a_program_ended_by_a_signal(self):
        code, _, err = self.sh("kill -9 $$")
        self.assertEqual(code, 128 + signal.SIGKILL)
        self.assertIn("signal 9", err)
        self.assertEqual(self.site.task("sh-1", "exit.json")["signal"], signal.SIGKILL)
        self.assertEqual(self.site.listed("sh-1")["state"], "killed")

    def test_lines_come_as_they_are_written(self):
        fifo = os.path.join(self.site.work, "fifo")
        os.mkfifo(fifo)
        if self.user is not None:
            os.chown(fifo, self.user, self.user)
        run = self.site.start("run", "--", "/bin/sh", "-c", f"echo first; read word <{fifo}; echo $word")
        self.assertEqual(run.line(), "first\n")
        with open(fifo, "w", encoding="utf-8") as out:
            out.write("second\n")
        self.assertEqual(run.line(), "second\n")
        self.assertEqual(run.finish()[0], 0)

    def test_large_output_is_complete(self):
        code, out, _ = self.sh("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
        self.assertEqual(code, 0)
        self.assertEqual(out, "".join(f"line {i}\n" for i in range(20000)))

    def test_signals_reach_the_program(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            name = signal.Signals(number).name[3:]
            run = self.site.start("run", "--", "/bin/sh", "-c",
                                  f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 1000 & wait; done")
            self.assertEqual(run.line(), "ready\n")
            run.signal(number)
            code, out, err = run.finish()
            self.assertEqual((code, out), (9, f"got {name}\n"), err)

    def test_a_signal_that_ends_the_program(self):
        run = self.site.start("run", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.finish()[0], 128 + signal.SIGTERM)

    def test_whole_pipelines_get_the_signal(self):
        run = self.site.start("run", "--", "/bin/sh", "-c", "echo ready; sleep 1000 | sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        run.signal(signal.SIGINT)
        self.assertEqual(run.finish()[0], 128 + signal.SIGINT)

    def test_the_terminal_may_close(self):
        run = self.site.start("run", "--name", "stays", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        run.signal(signal.SIGHUP)
        run.finish()
        self.assertEqual(self.site.listed("stays")["state"], "running")

    def test_a_reader_that_goes_away_does_not_end_the_task(self):
        run = self.site.start("run", "--", "/bin/sh", "-c", "trap 'echo more; exit 4' TERM; echo ready; while :; do sleep 1000 & wait; done")
        self.assertEqual(run.line(), "ready\n")
        run.process.stdout.close()
        run.signal(signal.SIGTERM)
        self.assertEqual(run.process.wait(SECONDS), 4)
        run.process.stderr.close()
        self.assertIn("more", self.site.task("sh-1", "output.log"))

    def test_environment_and_standard_input(self):
        code, out, _ = self.sh("echo $A-$B; cat; echo $STASIS_GPUS; basename $STASIS_TASK; echo ${LD_PRELOAD##*/}; pwd",
                               "--env", "A=1", "-e", "B=x y", "--gpus", "0", "--name", "t", STASIS_GPUS="5")
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines(), ["1-x y", "0", "t", "libstasis.so", self.site.work])

    def test_no_gpus_of_somebody_else(self):
        self.assertEqual(self.sh("echo [$STASIS_GPUS]", STASIS_GPUS="5")[1], "[]\n")

    def test_orphans_do_not_outlive_or_block_the_task(self):
        code, out, _ = self.sh("(sleep 0; echo grandchild) & echo parent; wait")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.split()), ["grandchild", "parent"])

    def test_inherited_descriptors_stay_out(self):
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        result = subprocess.run([STASIS, "run", "--", "/bin/sh", "-c", "ls /proc/self/fd | wc -l"], env=self.site.env(),
                                pass_fds=[write_end], stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True,
                                timeout=SECONDS)
        os.close(read_end)
        os.close(write_end)
        # 0 to 2 and the folder that ls reads.
        self.assertEqual(result.stdout, "4\n")

    def test_detached(self):
        code, out, _ = self.site.call("run", "--detach", "--", COUNTER)
        self.assertEqual((code, out), (0, "counter-1\n"))
        logs = self.site.start("logs", "-f", "counter-1")
        self.assertRegex(logs.line(), "listening on 127.0.0.1:[0-9]+\n")
        entry = self.site.listed("counter-1")
        self.assertEqual(entry["state"], "running")
        self.assertTrue(entry["managed"])
        process = self.site.task("counter-1", "process.json")
        self.assertEqual(entry["pid"], process["pid"])
        with open(f"/proc/{process['pid']}/status", encoding="utf-8") as status:
            nspid = re.search(r"^NSpid:\s+(.*)$", status.read(), re.M).group(1).split()
        self.assertEqual([int(nspid[0]), int(nspid[-1])], [process["pid"], process["nspid"]])
        os.kill(process["pid"], signal.SIGKILL)
        self.assertEqual(logs.finish()[0], 0)
        self.assertEqual(self.site.listed("counter-1")["state"], "killed")

    def test_what_cannot_be_started(self):
        self.assertEqual(self.site.call("run", "--", "/nonexistent")[0], 127)
        self.assertEqual(self.site.call("run", "--", "no-such-program-anywhere")[0], 127)
        plain = os.path.join(self.site.work, "plain")
        with open(plain, "w", encoding="utf-8") as file:
            file.write("text")
        os.chmod(plain, 0o644)
        self.assertEqual(self.site.call("run", "--", plain)[0], 126)
        os.chmod(plain, 0o755)
        with open(plain, "wb") as file:
            file.write(b"\x7fELF rubbish")
        code, _, err = self.site.call("run", "--", plain)
        self.assertEqual(code, 126, err)
        self.assertEqual(self.site.json("ps", "--all")[1]["tasks"], [], "nothing is left of tasks that never began")

    def test_unmanaged_programs_are_named(self):
        code, _, err = self.site.call("run", "--", "/bin/true")
        self.assertEqual(code, 0)
        self.assertIn("unmanaged", err)
        static = built("bin/stasis-init")
        _, _, err = self.site.call("run", "--", static)
        self.assertIn("unmanaged", err)
        self.assertIn("statically linked", err)

    def test_json_at_the_end(self):
        code, document = self.site.json("run", "--", "/bin/sh", "-c", "echo hidden; exit 5")
        self.assertEqual(code, 5)
        self.assertTrue(document["ok"])
        self.assertEqual((document["exit_code"], document["state"], document["device"]), (5, "exited", "soft"))
        with open(document["log"], encoding="utf-8") as log:
            self.assertEqual(log.read(), "hidden\n")
        code, document = self.site.json("run", "--", "/bin/sh", "-c", "kill -6 $$")
        self.assertEqual((code, document["signal"]), (134, 6))


class Unprivileged(Running):
    """The same as a user without any capability, where the test has root to begin with."""

    user = NOBODY if os.geteuid() == 0 else None

    def test_what_is_missing_is_said(self):
        code, out, err = self.sh("echo $$")
        self.assertEqual(code, 0)
        self.assertGreater(int(out), 2, "no PID namespace")
        self.assertIn("CAP_SYS_ADMIN", err)
        self.assertFalse(self.site.task("sh-1", "task.json")["pid_namespace"])

    def test_inherited_descriptors_stay_out(self):
        read_end, write_end = os.pipe()
        script = "ls /proc/self/fd | wc -l"
        run = self.site.start("run", "--", "/bin/sh", "-c", script)
        os.close(read_end)
        os.close(write_end)
        self.assertEqual(run.finish()[1], "4\n")


@unittest.skipUnless(os.geteuid() == 0, "needs root: a PID namespace is made")
class Namespaces(SiteTest):
    def test_pid_and_time_namespace_and_session(self):
        script = "readlink /proc/$PPID/ns/pid; echo $$"
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c", "echo $$; exec sleep 1000")
        self.assertEqual(run.line(), "2\n", script)
        process = self.site.task("t", "process.json")
        for space in ("pid", "time"):
            self.assertNotEqual(os.readlink(f"/proc/{process['pid']}/ns/{space}"), os.readlink(f"/proc/self/ns/{space}"))
        self.assertEqual(os.readlink(f"/proc/{process['pid']}/ns/mnt"), os.readlink("/proc/self/ns/mnt"))
        self.assertEqual(os.getsid(process["pid"]), process["init_pid"])
        self.assertEqual(os.getpgid(process["pid"]), process["pid"])
        os.kill(process["init_pid"], signal.SIGTERM)
        self.assertEqual(run.finish()[0], 128 + signal.SIGTERM)

    def test_init_holds_nothing_but_the_log(self):
        # The shell itself stays: a program that starts has files of its loader open for a moment.
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c", "sleep 1000 & echo ready; wait")
        self.assertEqual(run.line(), "ready\n")
        init = self.site.task("t", "process.json")["init_pid"]
        log = os.path.join(self.site.state, "tasks", "t", "output.log")
        for pid in (init, self.site.task("t", "process.json")["pid"]):
            self.assertEqual(self.open_in_the_end(pid, 3), {"0": "/dev/null", "1": log, "2": log})
        run.signal(signal.SIGTERM)
        run.finish()

    @staticmethod
    def open_in_the_end(pid, count):
        """Links of its descriptors once they are no more than that: the first process still lets go of its launcher when the
        program runs."""
        give_up = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(FileNotFoundError):
                files = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
                if len(files) <= count or time.monotonic() > give_up:
                    return files

    def test_orphans_end_with_the_task(self):
        fifo = os.path.join(self.site.work, "fifo")
        os.mkfifo(fifo)
        # The reader is left behind; the end of the namespace ends it, and opening for writing finds nobody.
        code, _, err = self.sh(f"setsid sh -c 'exec 3<>{fifo}; echo ready >&3; exec sleep 1000' & read word <{fifo}; exit 0")
        self.assertEqual(code, 0, err)
        with self.assertRaises(OSError):
            os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)

    def test_killed_from_outside(self):
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        os.kill(self.site.task("t", "process.json")["init_pid"], signal.SIGKILL)
        self.assertEqual(run.finish()[0], 128 + signal.SIGKILL)
        self.assertEqual(self.site.listed("t")["state"], "killed")


class Records(SiteTest):
    def test_names(self):
        self.assertEqual(self.sh("true", "--name", "mine")[0], 0)
        code, _, err = self.sh("true", "--name", "mine")
        self.assertEqual(code, 4)
        self.assertIn("stasis rm mine", err)
        self.assertEqual(self.site.call("rm", "mine")[0], 0)
        self.assertIsNone(self.site.listed("mine"))
        self.assertEqual(self.sh("true", "--name", "mine")[0], 0)
        self.assertEqual(self.sh("true", "--name", "../x")[0], 2)
        self.sh("true")
        self.sh("true")
        self.assertIsNotNone(self.site.listed("sh-2"))

    def test_two_at_once_for_one_name(self):
        runs = [self.site.start("run", "--name", "one", "--", "/bin/sh", "-c", "echo ran") for _ in range(4)]
        codes = sorted(run.finish()[0] for run in runs)
        self.assertEqual(codes, [0, 4, 4, 4])

    def test_a_running_task_is_not_removed(self):
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        code, document = self.site.json("rm", "t")
        self.assertEqual((code, document["code"]), (4, "FAILED_PRECONDITION"))
        self.assertIn("cancel", document["remedy"])
        run.signal(signal.SIGTERM)
        run.finish()
        self.assertEqual(self.site.json("rm", "t")[0], 0)
        self.assertFalse(os.path.exists(os.path.join(self.site.state, "tasks", "t")))

    def test_ps_shows_the_living_and_all(self):
        self.sh("true", "--name", "gone")
        run = self.site.start("run", "--name", "here", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        self.assertEqual([task["name"] for task in self.site.json("ps")[1]["tasks"]], ["here"])
        self.assertEqual([task["name"] for task in self.site.json("ps", "--all")[1]["tasks"]], ["gone", "here"])
        _, table, _ = self.site.call("ps", "--all")
        self.assertEqual(len(table.splitlines()), 3)
        self.assertIn("exited (0)", table)
        run.signal(signal.SIGTERM)
        run.finish()

    def test_logs(self):
        self.sh("echo one; echo two", "--name", "t")
        self.assertEqual(self.site.call("logs", "t")[1], "one\ntwo\n")
        self.assertEqual(self.site.call("logs", "-f", "t")[1], "one\ntwo\n")
        self.assertEqual(self.site.json("logs", "t")[1]["output"], "one\ntwo\n")

    def test_leaving_the_log_leaves_the_task(self):
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        logs = self.site.start("logs", "-f", "t")
        self.assertEqual(logs.line(), "ready\n")
        logs.signal(signal.SIGINT)
        self.assertEqual(logs.finish()[0], 128 + signal.SIGINT)
        self.assertEqual(self.site.listed("t")["state"], "running")
        run.signal(signal.SIGTERM)
        run.finish()

    def test_a_log_that_nobody_reads_is_left(self):
        fifo = os.path.join(self.site.work, "fifo")
        os.mkfifo(fifo)
        run = self.site.start("run", "--name", "t", "--", "/bin/sh", "-c",
                              f"echo ready; read word <{fifo}; echo more; exec sleep 1000")
        self.assertEqual(run.line(), "ready\n")
        logs = self.site.start("logs", "-f", "t")
        self.assertEqual(logs.line(), "ready\n")
        logs.process.stdout.close()
        with open(fifo, "w", encoding="utf-8") as out:
            out.write("go\n")
        self.assertEqual(logs.process.wait(SECONDS), 0)
        logs.process.stderr.close()
        run.signal(signal.SIGTERM)
        run.finish()

    def test_damaged_records(self):
        self.sh("true", "--name", "t")
        path = os.path.join(self.site.state, "tasks", "t", "exit.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{")
        if self.site.agent:  # has read it when it was whole
            self.site.stop_agent()
            self.site.start_agent()
        code, document = self.site.json("ps", "--all")
        self.assertEqual((code, document["tasks"]), (0, []))
        self.assertIn("exit.json", document["notes"][0])
        self.assertEqual(self.site.json("logs", "t")[0], 11)


class Refusals(SiteTest):
    VERBS = (["pause", "t"], ["resume", "t"], ["checkpoint", "t"], ["restore", "t"], ["migrate", "t", "--gpus", "0"],
             ["cancel", "t"], ["logs", "t"], ["rm", "t"])

    def test_a_run_folder_that_others_can_write(self):
        run = os.path.join(self.site.folder, "run")
        before = os.stat(run).st_mode if os.path.isdir(run) else 0o700
        os.makedirs(run, mode=0o700, exist_ok=True)
        os.chmod(run, 0o777)
        code, document = self.site.json("ps")
        self.assertEqual((code != 0, document["code"]), (True, "PERMISSION_DENIED"), document)
        self.assertIn("STASIS_RUN_DIR", document["remedy"])
        os.chmod(run, before & 0o7777)
        self.assertEqual(self.site.json("ps")[0], 0)

    def test_no_such_task(self):
        for verb in self.VERBS:
            code, document = self.site.json(*verb)
            self.assertEqual((code, document["code"], document["ok"]), (3, "NOT_FOUND", False), verb)
            self.assertEqual((document["verb"], document["exit_code"]), (verb[0], 3))
            code, out, err = self.site.call(*verb)
            self.assertEqual((code, out), (3, ""))
            self.assertIn("no task t", err)

    def test_a_task_that_has_ended(self):
        self.sh("true", "--name", "t")
        for verb in (["pause", "t"], ["resume", "t"], ["checkpoint", "t"], ["migrate", "t", "--gpus", "0"], ["cancel", "t"]):
            code, document = self.site.json(*verb)
            self.assertEqual((code, document["code"]), (4, "FAILED_PRECONDITION"), verb)
            self.assertIn("exited", document["message"])

    def test_usage(self):
        for arguments in ([], ["fly"], ["run"], ["run", "--"], ["run", "--gpus", "a", "--", "true"], ["pause"],
                          ["pause", "t", "--residency", "x"], ["migrate", "t"], ["pause", "../t"], ["restore", "t/../x"]):
            code, out, err = self.site.call(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertTrue(err.startswith("stasis: "), err)
        code, document = self.site.json("pause")
        self.assertEqual((code, document["code"]), (2, "INVALID_ARGUMENT"))

    def test_a_gpu_that_is_not_there(self):
        code, document = self.site.json("run", "--gpus", "0,7", "--", "/bin/true")
        self.assertEqual((code, document["code"]), (2, "INVALID_ARGUMENT"))
        self.assertIn("GPU 7", document["message"])

    def test_no_nvidia_driver(self):
        code, document = self.site.json("run", "--device", "nvidia", "--", "/bin/true")
        self.assertEqual(code, 1)
        self.assertIn("NVIDIA", document["message"])

    def test_no_device_at_all(self):
        nowhere = os.path.join(self.site.folder, "nowhere.sock")
        code, document = self.site.json("run", "--", "/bin/true", SOFTGPU_SOCKET=nowhere)
        self.assertEqual(code, 1)
        self.assertIn("CUDA_ERROR_NO_DEVICE", document["message"])

    def test_state_folder_that_cannot_be_made(self):
        code, document = self.site.json("run", "--embedded", "--", "/bin/true", STASIS_STATE_DIR="/proc/stasis")
        self.assertIn(code, (3, 7))
        self.assertIn("/proc/stasis", document["message"])


class Doctor(SiteTest):
    def test_run_works_here(self):
        code, document = self.site.json("doctor")
        findings = {finding["name"]: finding for finding in document["findings"]}
        self.assertEqual(code, 0, findings)
        self.assertTrue(document["works"]["run"])
        self.assertTrue(findings["software device"]["ok"])
        for finding in findings.values():
            self.assertTrue(finding["ok"] or finding["remedy"], finding)
        code, out, _ = self.site.call("doctor")
        self.assertEqual(code, 0)
        for name in findings:
            self.assertIn(name, out)

    def test_what_is_missing_is_said(self):
        code, document = self.site.json("doctor", STASIS_STATE_DIR="/proc/stasis", STASIS_CRIU="/nonexistent")
        findings = {finding["name"]: finding for finding in document["findings"]}
        self.assertEqual(code, 1)
        self.assertFalse(document["works"]["run"])
        self.assertIn("STASIS_STATE_DIR", findings["state folder"]["remedy"])
        self.assertFalse(findings["criu"]["ok"])

    def test_a_user_namespace_will_do(self):
        """It is said to, and it does."""
        namespace = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "slave"]
        if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("no user namespace can be made here")
        verbs = ("doctor", "run --detach --name inside -- /usr/bin/sleep 600", "checkpoint --stop inside", "restore --detach inside",
                 "cancel --grace 1ms inside")
        script = " && ".join(f"{built('bin/stasis')} {verb}" for verb in verbs)
        done = subprocess.run([*namespace, "sh", "-c", script], env=self.site.env(), check=False, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "criu check +looks good, without TCP connections")
        self.assertRegex(done.stdout, "checkpoint, restore +works")

    def test_no_device(self):
        code, document = self.site.json("doctor", SOFTGPU_SOCKET=os.path.join(self.site.folder, "nowhere.sock"))
        self.assertEqual(code, 1)
        self.assertFalse({finding["name"]: finding for finding in document["findings"]}["device"]["ok"])


if __name__ == "__main__":
    unittest.main()
