"""One task through the verbs, as a user would call them: answers, residency, moves, restores under changed conditions."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import unittest

import hung
from softgpu import die_with_parent
from stasis_job import Job, Site, built

MIB = 1 << 20


class Lifecycle(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = Site("--gpus", "2", "--memory", "512MiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def start(self, name, *program, **extra):
        return self.site.start(name, built(program[0]), *program[1:], options=["--strategy", self.strategy], **extra)

    def stubborn(self, mode, name="job"):
        """A program that goes on once `self.tell()` has been called."""
        self.command = os.path.join(self.site.folder.name, "command", "go")
        os.makedirs(os.path.dirname(self.command), exist_ok=True)
        if os.path.exists(self.command):
            os.remove(self.command)
        job = self.start(name, "tests/programs/stubborn", mode, self.command)
        job.wait_for_output("spinning" if mode == "spin" else "ready")
        return job

    def tell(self):
        with open(self.command, "x", encoding="utf-8"):
            pass

    def finish(self, job, expected):
        self.tell()
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output().splitlines()[-1], expected)

    def result_undisturbed(self):
        """What `stubborn plain` ends with."""
        value = 0x01010101
        for _ in range(1001):
            value = (value * 1664525 + 1013904223) % 2**32
        return f"result {value}"

    def memory(self):
        return [device["memory_used"] for device in self.site.node.devices()]

    # The counter is the smallest program there is, and it is asked over a socket that it keeps listening on.
    def ask_counter(self, port):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"inc\n")
            return int(connection.makefile().readline())

    def test_counter_counts_on_after_kill_and_restore(self):
        job = self.start("counter", "samples/counter", "--port", "0")
        job.wait_for_output("\n")
        port = int(job.output().split()[-1].rpartition(":")[2])
        self.assertEqual([self.ask_counter(port) for _ in range(3)], [1, 2, 3])
        job.verb("checkpoint")
        self.assertEqual(self.ask_counter(port), 4)
        job.kill()
        job.verb("restore", "--detach")
        self.assertEqual(self.ask_counter(port), 4, "the restored counter goes on from the checkpoint")
        job.verb("pause")
        job.verb("resume")
        self.assertEqual(self.ask_counter(port), 5)

    def test_residency_is_what_the_device_shows(self):
        job = self.stubborn("plain")
        before = self.memory()[0]
        self.assertGreater(before, 0)
        held = {}
        for residency in ("device", "host", "disk"):
            job.verb("pause", "--residency", residency)
            held[residency] = self.memory()[0]
            job.verb("resume")
            self.assertEqual(self.memory()[0], before, residency)
        self.assertGreater(held["device"], 0)
        self.assertEqual(held["host"], 0)
        self.assertEqual(held["disk"], 0)
        self.finish(job, self.result_undisturbed())

    def test_only_active_memory_is_kept(self):
        """A program whose allocator tells what is in use ends as undisturbed, whatever became of the rest of its memory."""
        program = [built("samples/mlp_train"), "--steps", "150"]
        undisturbed = self.site.node.run(*program, timeout=300)
        self.assertEqual(undisturbed.returncode, 0, undisturbed.stderr)
        job = self.start("mlp", "samples/mlp_train", *program[1:], "--pace-ms", "1000", **self.site.rest())
        job.wait_for_output("\nstep 5")
        answers = [job.verb("checkpoint", "--wait-low", "20s", "--snapshot", place) for place in ("device", "host", "off")]
        self.assertEqual([answer["snapshot"] for answer in answers], ["device", "host", "none"])
        for residency in ("device", "host", "disk"):
            answers.append(job.verb("pause", "--wait-low", "20s", "--residency", residency))
            job.verb("checkpoint")
            job.verb("resume")
        for answer in answers:
            self.assertTrue(answer["at_low"], answer)
            self.assertLess(answer["active_bytes"], answer["high_bytes"])
            self.assertLess(answer["active_bytes"], answer["device_bytes"] / 3)
        self.assertGreater(job.verb("migrate", "--gpus", "1,0")["device_bytes"], 0)
        last = job.verb("checkpoint", "--stop")
        self.assertLess(last["added_bytes"], last["logical_bytes"] / 4)
        job.wait()
        job.verb("restore", "--detach", "--gpus", "0,1")
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(job.output(), undisturbed.stdout)

    def test_verbs_in_the_wrong_state_answer_clearly(self):
        job = self.stubborn("plain")
        for verb in (["resume"], ["migrate", "--gpus", "0,1"], ["restore", "--detach"]):
            status, answer = job.refused(*verb)
            self.assertIn(answer["code"], ("FAILED_PRECONDITION", "ALREADY_EXISTS", "NOT_FOUND"), answer)
            self.assertEqual(answer["left"], "unchanged", answer)
        job.verb("pause")
        status, answer = job.refused("pause")
        self.assertEqual((answer["code"], answer["left"]), ("FAILED_PRECONDITION", "unchanged"))
        self.assertIn("paused", answer["message"])
        job.verb("resume")
        status, answer = job.refused("resume")
        self.assertEqual(answer["code"], "FAILED_PRECONDITION")
        job.verb("checkpoint")
        status, answer = job.refused("restore", "--detach")
        self.assertEqual(answer["code"], "ALREADY_EXISTS", "the task is alive")
        job.kill()
        job.verb("restore", "--detach")
        status, answer = job.refused("restore", "--detach")
        self.assertEqual(answer["code"], "ALREADY_EXISTS", "restored twice")
        self.finish(job, self.result_undisturbed())
        status, answer = job.refused("pause")
        self.assertNotEqual(status, 0)

    def test_restore_on_another_device(self):
        job = self.stubborn("plain")
        before = self.memory()
        self.assertEqual(before[1], 0)
        job.verb("checkpoint", "--stop")
        job.wait()
        self.assertEqual(self.site.memory_in_the_end(), [0, 0])
        job.verb("restore", "--detach", "--gpus", "1,0")
        self.assertEqual(self.memory(), [0, before[0]])
        self.finish(job, self.result_undisturbed())

    def test_a_task_in_the_foreground_is_stopped_and_restored(self):
        """`run` says that a checkpoint has ended its task, and `restore` prints what follows, not what was printed."""
        command = os.path.join(self.site.folder.name, "go")
        program = [built("tests/programs/stubborn"), "plain", command]
        with hung.started([built("bin/stasis"), "run", "--name", "front", "--device", "soft", "--strategy", self.strategy, "--",
                           *program], env=self.site.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as run:
            self.assertEqual(run.stdout.readline(), "ready\n")
            self.site.ok("checkpoint", "front", "--stop")
            self.assertEqual(run.wait(60), 124, run.stderr.read())
        with hung.started([built("bin/stasis"), "restore", "front"], env=self.site.env(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as restore:
            Job(self.site, "front").wait_for_restore(restore)
            with open(command, "x", encoding="utf-8"):
                pass
            self.assertEqual(restore.communicate(timeout=60)[0], self.result_undisturbed() + "\n")
            self.assertEqual(restore.returncode, 0)

    def test_restore_after_the_log_has_grown(self):
        job = self.stubborn("plain")
        job.verb("checkpoint")
        self.finish(job, self.result_undisturbed())
        longer = job.output()
        answer = job.verb("restore", "--detach")
        self.assertTrue(any("output.log" in note for note in answer["notes"]), answer)
        os.remove(self.command)
        self.tell()
        self.assertEqual(job.wait(), 0)
        self.assertEqual(job.output(), longer, "the same end once more")
        aside = [name for name in os.listdir(os.path.dirname(job.path(""))) if name.startswith("output.log.")]
        self.assertEqual(len(aside), 1, aside)
        with open(job.path(aside[0]), encoding="utf-8") as tail:
            self.assertEqual("ready\n" + tail.read(), longer)

    def test_restore_after_the_run_folder_was_lost(self):
        job = self.stubborn("plain")
        job.verb("checkpoint", "--stop")
        job.wait()
        job.wait_for_ghost_to_leave()  # it takes its own files away
        shutil.rmtree(self.site.run_dir)
        job.verb("restore", "--detach")
        job.verb("pause", "--residency", "host")
        job.verb("resume")
        self.finish(job, self.result_undisturbed())

    def test_restore_on_a_node_with_more_and_with_less_memory(self):
        job = self.start("holder", "tests/programs/holder", "64", "4")
        job.wait_for_output("ready")
        image = job.verb("checkpoint", "--stop")
        job.wait()
        self.site.node.restart("--gpus", "2", "--memory", "32MiB")
        status, answer = job.refused("restore", "--detach")
        self.assertEqual(answer["code"], "RESOURCE_EXHAUSTED", answer)
        self.assertEqual(self.site.memory_in_the_end(), [0, 0], "a refused restore holds nothing")
        self.assertFalse(job.alive())
        self.site.node.restart("--gpus", "2", "--memory", "2GiB")
        answer = job.verb("restore", "--detach")
        self.assertEqual(answer["image"], image["image"])
        job.verb("cancel")
        job.wait()

    def test_restore_while_its_old_pids_are_in_use(self):
        first = self.stubborn("plain", "first")
        inside = first.process()["nspid"]
        first.verb("checkpoint", "--stop")
        first.wait()
        second = self.start("second", "samples/counter", "--port", "0")
        second.wait_for_output("\n")
        self.assertEqual(second.process()["nspid"], inside)
        first.verb("restore", "--detach")
        self.finish(first, self.result_undisturbed())
        second.verb("cancel")

    def test_a_kernel_that_waits_for_the_host_passes_the_deadline(self):
        job = self.stubborn("spin")
        for verb in ("pause", "checkpoint"):
            status, answer = job.refused(verb, "--deadline", "3s")
            self.assertEqual(answer["code"], "TIMEOUT", answer)
            self.assertEqual(answer["left"], "rolled-back")
            calls = {blocker["call"]: blocker for blocker in answer["blockers"]}
            waiting = [call for call in calls if "Synchronize" in call]
            self.assertEqual(len(waiting), 1, answer)
            self.assertTrue(any("cudaDeviceSynchronize" in frame or "main" in frame for frame in calls[waiting[0]]["stack"]),
                            answer)
        self.finish(job, "result 42")

    def test_a_task_that_is_stopped_is_named_as_such(self):
        job = self.stubborn("plain")
        pid = job.process()["pid"]
        os.kill(pid, signal.SIGSTOP)
        hung.await_state(pid, "T")
        status, answer = job.refused("pause", "--deadline", "2s")
        self.assertEqual(answer["left"], "unchanged", answer)
        self.assertIn("stopped", answer["message"])
        os.kill(pid, signal.SIGCONT)
        job.verb("pause")
        job.verb("resume")
        self.finish(job, self.result_undisturbed())

    def test_what_cannot_be_carried_is_refused_by_name(self):
        cases = {"managed": ("cuMemAllocManaged", "unchanged")}
        if self.strategy == "reconstruct":
            # It can be seen only once the program stands still.
            cases["memory-graph"] = ("cuGraphAddMemAllocNode", "rolled-back")
        for mode, (call, left) in cases.items():
            with self.subTest(mode):
                job = self.stubborn(mode, mode)
                for verb in ("pause", "checkpoint"):
                    status, answer = job.refused(verb)
                    self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", left), answer)
                    self.assertIn(call, answer["message"])
                self.finish(job, self.result_undisturbed())

    def test_a_program_that_ends_while_its_image_is_made_has_ended(self):
        """It stands still for the driver, and may yet come to its end without it: that is no failure of CRIU."""
        job = self.stubborn("plain")
        self.refused_as_it_ended(job, f"""
  kill -9 {job.process()["pid"]}
  while kill -0 {job.process()["pid"]} 2>/dev/null; do :; done""")

    def test_no_image_is_made_of_what_a_program_has_left(self):
        """Who has only not been waited for yet can be dumped, and what waits for it."""
        for options in ((), ("--stop",)):
            job = self.stubborn("plain", "job" + "".join(options))
            init, pid = (job.process()[who] for who in ("init_pid", "pid"))
            self.refused_as_it_ended(job, f"""
  kill -STOP {init}
  until grep -q 'State:.T' /proc/{init}/status; do :; done
  kill -9 {pid}
  until grep -q 'State:.Z' /proc/{pid}/status; do :; done""", *options)
            self.assertEqual(self.site.image_names(job.name), [])
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGCONT)
            self.assertEqual(job.wait(), -signal.SIGKILL)

    def refused_as_it_ended(self, job, end, *options):
        """A checkpoint for which `end` runs before CRIU does."""
        criu = os.path.join(self.site.folder.name, f"criu-of-{job.name}")
        with open(criu, "w", encoding="utf-8") as script:
            script.write(f"""#!/bin/sh
if [ "$1" = dump ]; then{end}
fi
exec "{os.environ["STASIS_CRIU"]}" "$@"
""")
        os.chmod(criu, 0o755)
        _, answer = job.refused("checkpoint", *options, STASIS_CRIU=criu)
        self.assertEqual(answer["code"], "PEER_DIED", answer)
        self.assertIn("has ended while its image was made", answer["message"])

    def test_what_was_stopped_while_its_image_was_made_goes_on_when_it_is_restored(self):
        """Nobody can continue it there: whoever has stopped it knows other processes."""
        for who in ("init_pid", "pid"):
            job = self.stubborn("plain", f"stopped-{who.replace('_', '-')}")
            stopped = job.process()[who]
            criu = os.path.join(self.site.folder.name, f"criu-of-a-stopped-{who}")
            with open(criu, "w", encoding="utf-8") as script:
                script.write(f"""#!/bin/sh
if [ "$1" = dump ]; then
  kill -STOP {stopped}
  until grep -q 'State:.T' /proc/{stopped}/status; do :; done
fi
exec "{os.environ["STASIS_CRIU"]}" "$@"
""")
            os.chmod(criu, 0o755)
            job.verb("checkpoint", "--stop", STASIS_CRIU=criu)
            job.wait_for_ghost_to_leave()
            job.verb("restore", "--detach")
            self.finish(job, self.result_undisturbed())

    def test_a_broken_context_is_not_checkpointed(self):
        job = self.stubborn("broken")
        status, answer = job.refused("checkpoint")
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", answer["message"])
        self.finish(job, "still cudaErrorIllegalAddress")

    def test_a_paused_task_can_be_ended(self):
        for residency in ("device", "host", "disk"):
            job = self.stubborn("plain", f"end-{residency}")
            job.verb("pause", "--residency", residency)
            job.verb("cancel")
            job.wait()
            self.assertFalse(job.alive())
            self.assertEqual(self.site.memory_in_the_end(), [0, 0], residency)


class LifecycleByDriverCheckpoint(Lifecycle):
    strategy = "driver-checkpoint"


ANSWERS = """
import os, socket, sys
os.mkdir(sys.argv[1])
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1] + "/listener")
    listener.listen()
    print("listening", flush=True)
    with listener.accept()[0] as client:
        client.sendall(b"answer")
"""


class FoldersOfSockets(unittest.TestCase):
    def test_a_folder_that_has_gone_with_the_program_is_made_again(self):
        """As when one process is killed and the others clean up: loaders of PyTorch do."""
        with Site("--gpus", "1", "--memory", "64MiB") as site:
            folder = os.path.join(site.folder.name, "above", "pymp")
            os.mkdir(os.path.dirname(folder))
            job = site.start("job", sys.executable, "-c", ANSWERS, folder)
            job.wait_for_output("listening")
            job.verb("checkpoint", "--stop")
            job.wait()
            shutil.rmtree(os.path.dirname(folder))
            job.verb("restore", "--detach")
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.path.join(folder, "listener"))
                self.assertEqual(client.recv(16), b"answer")
            self.assertEqual(job.wait(), 0, job.output())


if __name__ == "__main__":
    unittest.main()
