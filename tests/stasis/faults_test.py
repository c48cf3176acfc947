"""What the world does to a checkpoint: no room on disk, what CRIU cannot carry, a device that is lost, a task that ends."""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import unittest

from stasis_job import Site, built


IN_OPEN = 0x20
EVENT_BYTES = 16  # of one without a name


@contextlib.contextmanager
def inotify_on(path):
    """A descriptor that becomes readable when somebody opens `path`."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_CLOEXEC)
    try:
        if events < 0 or libc.inotify_add_watch(events, os.fsencode(path), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), path)
        yield events
    finally:
        os.close(events)


class Faults(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.site = Site("--gpus", "2", "--memory", "512MiB")
        self.site.__enter__()
        self.addCleanup(self.site.__exit__, None, None, None)

    def start(self, name, *program):
        return self.site.start(name, built(program[0]), *map(str, program[1:]), options=["--strategy", self.strategy])

    def holder(self, name="holder", mib=64):
        job = self.start(name, "tests/programs/holder", mib, "8")
        job.wait_for_output("ready")
        return job

    def end(self, job):
        """The program ends by itself, as it does undisturbed."""
        os.kill(job.process()["pid"], signal.SIGTERM)
        self.assertEqual(job.wait(), 0, job.output())
        self.assertRegex(job.output(), r"^ready\nturns \d+\n$")

    @contextlib.contextmanager
    def small_disk(self, size):
        """The state folder on a disk of its own; gives what makes it larger."""
        os.makedirs(self.site.state, 0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", self.site.state], check=True)
        try:
            yield lambda larger: subprocess.run(["mount", "-o", f"remount,size={larger}", self.site.state], check=True)
        finally:
            subprocess.run(["umount", "-l", self.site.state], check=True)

    def used(self):
        info = os.statvfs(self.site.state)
        return (info.f_blocks - info.f_bfree) * info.f_frsize

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_no_room_on_disk(self):
        with self.small_disk("40m") as enlarge:
            small, large = self.holder("small", 8), self.holder("large", 64)
            first = small.verb("checkpoint")
            small.wait_for_ghost_to_leave()
            before = self.used()
            for options in ([], ["--snapshot", "off"], ["--snapshot", "host"], ["--stop"]):
                with self.subTest(options):
                    _, answer = large.refused("checkpoint", *options)
                    self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
                    self.assertIn(self.site.state, answer["message"])
                    self.assertIn("stasis images gc", answer["remedy"])
                    large.wait_for_ghost_to_leave()
                    self.assertEqual(self.site.image_names("large"), [], "half an image is left")
                    self.assertLess(abs(self.used() - before), 1 << 20, "the space is given back")
            self.assertEqual(self.site.images("verify")["damages"], [])
            enlarge("256m")
            second = large.verb("checkpoint")
            self.assertEqual(self.site.images("verify")["images"], 2)
            for job, image in ((small, first), (large, second)):
                job.kill()
                self.assertEqual(job.verb("restore", "--detach")["image"], image["image"])
                self.end(job)
                job.wait_for_ghost_to_leave()

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_no_room_for_a_pause_on_disk(self):
        with self.small_disk("40m"):
            job = self.holder()
            before = self.used()
            _, answer = job.refused("pause", "--residency", "disk")
            self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
            self.assertIn(self.site.state, answer["message"])
            self.assertLess(abs(self.used() - before), 1 << 20)
            job.verb("pause", "--residency", "host")
            job.verb("resume")
            self.end(job)
            job.wait_for_ghost_to_leave()

    def test_a_snapshot_goes_where_there_is_room(self):
        job = self.holder(mib=272)  # more than half of a device
        _, answer = job.refused("checkpoint", "--snapshot", "device")
        self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
        self.assertIn("--snapshot auto", answer["remedy"])
        _, answer = job.refused("checkpoint", "--snapshot", "host", "--snapshot-host-share", "0")
        self.assertEqual((answer["code"], answer["left"]), ("RESOURCE_EXHAUSTED", "rolled-back"), answer)
        self.assertEqual(self.site.image_names(job.name), [])
        self.assertEqual(job.verb("checkpoint")["snapshot"], "host")
        self.assertEqual(job.verb("checkpoint", "--snapshot-host-share", "0")["snapshot"], "none")
        self.assertEqual(job.verb("checkpoint", "--snapshot", "off")["snapshot"], "none")
        job.kill()
        job.verb("restore", "--detach")
        self.end(job)

    def test_checkpoints_and_collections_at_once(self):
        jobs = [self.holder("left"), self.holder("right")]
        images = [job.verb("checkpoint")["image"] for job in jobs]

        def verbs(*arguments):
            return subprocess.Popen([built("bin/stasis"), *arguments, "--json"], env=self.site.env(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

        for _ in range(3):
            # What the collectors have to remove while others write.
            for job, image in zip(jobs, images):
                self.site.images("rm", f"{job.name}/{image}")
            running = [verbs("checkpoint", job.name) for job in jobs] + [verbs("images", "gc") for _ in range(2)]
            answers = [(process.communicate(timeout=120)[0], process.returncode) for process in running]
            for output, status in answers[:2]:
                self.assertEqual(status, 0, output)
            images = [json.loads(output)["image"] for output, _ in answers[:2]]
            # Two collectors at once: one of them may be told so.
            self.assertTrue(any(status == 0 for _, status in answers[2:]), answers)
            for output, status in answers[2:]:
                self.assertTrue(status == 0 or json.loads(output)["code"] == "FAILED_PRECONDITION", output)
            self.assertEqual(self.site.images("verify")["damages"], [])
        for job in jobs:
            job.kill()
            job.verb("restore", "--detach")
            self.end(job)

    def test_an_image_of_version_1_is_refused_by_name(self):
        job = self.holder("old", 8)
        os.makedirs(os.path.join(self.site.state, "images", "old", "000007"))
        job.kill()
        for target in ("old", "old/000007"):
            status, answer, _ = self.site.call("restore", target, "--detach")
            self.assertEqual((status, answer["code"]), (6, "UNSUPPORTED"), answer)
            self.assertIn("000007", answer["message"])
            self.assertIn("version 1", answer["message"])

    def test_a_folder_that_criu_would_make_in_the_task_s_own(self):
        """CRIU makes `proc.crtools` in the working folder of a task's first process, as another dump may just do there."""
        here = os.path.join(self.site.folder.name, "here")
        os.makedirs(os.path.join(here, "proc.crtools"))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(here)
        job = self.holder()
        job.verb("checkpoint", "--stop")
        job.wait()
        job.verb("restore", "--detach")
        self.end(job)

    def test_a_ghost_on_its_way_out_is_waited_for(self):
        """It has taken its socket away and still has its lock; the verb must not fail because of it."""
        job = self.holder()
        job.verb("checkpoint")
        job.wait_for_ghost_to_leave()
        path = os.path.join(self.site.run_dir, "tasks", job.name, "ghost.sock.lock")
        with open(path, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            verb = subprocess.Popen([built("bin/stasis"), "pause", "--json", job.name], env=self.site.env(),
                                    stdout=subprocess.PIPE, text=True)
            self.wait_for_second_look(path, verb)
        output, _ = verb.communicate(timeout=60)
        self.assertEqual(verb.returncode, 0, output)
        job.verb("resume")
        self.end(job)

    @staticmethod
    def wait_for_second_look(path, verb):
        """Until the file has been opened twice, so that it was locked the first time; or the verb has ended."""
        end = os.pidfd_open(verb.pid)
        try:
            with inotify_on(path) as events:
                opened = 0
                while opened < 2 and end not in select.select([events, end], [], [])[0]:
                    opened += len(os.read(events, 4096)) // EVENT_BYTES
        finally:
            os.close(end)

    def test_a_connection_to_the_outside_is_named(self):
        job = self.start("counter", "samples/counter", "--port", "0")
        job.wait_for_output("\n")
        port = int(job.output().split()[-1].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            lines = connection.makefile("rw")
            lines.write("inc\n")
            lines.flush()
            self.assertEqual(lines.readline(), "1\n")
            _, answer = job.refused("checkpoint")
            self.assertEqual(answer["code"], "UNSUPPORTED", answer)
            self.assertIn("TCP", answer["message"])
            self.assertIn(str(job.process()["pid"]), answer["message"])
            lines.write("inc\n")
            lines.flush()
            self.assertEqual(lines.readline(), "2\n", "the program runs on, its connection too")
        self.assertEqual(self.site.image_names(job.name), [])

    def test_a_device_that_is_lost_while_its_task_is_paused(self):
        job = self.holder()
        job.verb("checkpoint")
        job.verb("pause", "--residency", "host")
        self.assertEqual(self.site.node.smi("fault", "--gpu", "0", "--kind", "fell-off-bus").returncode, 0)
        _, answer = job.refused("resume")
        self.assertEqual(answer["left"], "paused", answer)
        if self.strategy == "reconstruct":
            job.verb("resume", "--gpus", "1,0")
        else:
            job.verb("cancel")
            job.wait()
            job.verb("restore", "--detach", "--gpus", "1,0")
        self.end(job)

    def test_a_device_that_is_lost_under_a_running_task(self):
        job = self.holder()
        first = job.verb("checkpoint")
        self.assertEqual(self.site.node.smi("fault", "--gpu", "0", "--kind", "fell-off-bus").returncode, 0)
        self.assertNotEqual(job.wait(), 0, "the program itself sees that its device is gone")
        answer = job.verb("restore", "--detach", "--gpus", "1,0")
        self.assertEqual(answer["image"], first["image"])
        self.end(job)

    def test_a_task_that_is_killed_while_paused_leaves_nothing(self):
        for residency in ("device", "host", "disk"):
            job = self.holder(f"killed-{residency}")
            job.verb("pause", "--residency", residency)
            job.kill()
            job.wait_for_ghost_to_leave()
            job.verb("rm")
            self.assertEqual(self.site.memory_in_the_end(), [0, 0], residency)


class FaultsByDriverCheckpoint(Faults):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
