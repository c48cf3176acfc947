"""Images that are exported, imported under other folders or another name, and restored there."""

import os
import shutil
import signal
import subprocess
import unittest

from softgpu import die_with_parent
from stasis_job import Job, Site, built


@unittest.skipUnless(os.geteuid() == 0, "needs root: checkpoints are made")
class Moved(unittest.TestCase):
    strategy = "reconstruct"

    def setUp(self):
        self.here = Site("--gpus", "1", "--memory", "512MiB")
        self.here.__enter__()
        self.addCleanup(self.here.__exit__, None, None, None)
        self.there = Site(beside=self.here)
        self.there.__enter__()
        self.addCleanup(self.there.__exit__, None, None, None)
        self.exported = os.path.join(self.there.folder.name, "job.stasis")
        # Outlives the folders of the first site.
        self.go = os.path.join(self.there.folder.name, "go")

    def start(self):
        job = self.here.start("job", built("tests/programs/stubborn"), "plain", self.go,
                              options=["--strategy", self.strategy])
        job.wait_for_output("ready")
        return job

    def result(self):
        """What `stubborn plain` ends with when nobody disturbs it."""
        value = 0x01010101
        for _ in range(1001):
            value = (value * 1664525 + 1013904223) % 2**32
        return f"result {value}"

    def tell(self):
        with open(self.go, "x", encoding="utf-8"):
            pass

    def assert_finished(self, job, before):
        self.assertEqual(job.wait(), 0, job.output())
        output = job.output()
        self.assertTrue(output.startswith(before), output)
        self.assertEqual(output.splitlines()[-1], self.result())
        return output

    def test_on_another_site_with_nothing_left_of_the_first(self):
        job = self.start()
        before = job.output()
        job.verb("checkpoint", "--stop")
        job.wait()
        job.wait_for_ghost_to_leave()  # it takes its own files away
        self.here.images("export", "job", self.exported)
        shutil.rmtree(self.here.state)
        shutil.rmtree(self.here.run_dir)
        self.assertEqual(self.there.images("import", self.exported)["image"], "job/000001")
        shown = self.there.images("show", "job")
        self.assertTrue(shown["restorable"], [need for need in shown["needs"] if need["met"] is False])
        self.there.ok("restore", "job", "--detach")
        moved = Job(self.there, "job")
        # It hears its ghost in its new place, and can be checkpointed there again.
        moved.verb("pause", "--residency", "host")
        moved.verb("resume")
        moved.verb("checkpoint", "--stop")
        moved.wait()
        self.assertEqual([i["id"] for i in self.there.images("ls", "job")["images"]], ["000001", "000002"])
        self.there.ok("restore", "job", "--detach")
        self.tell()
        self.assert_finished(moved, before)
        self.assertEqual(moved.read_json("exit.json")["exit_code"], 0)
        self.assertFalse(os.path.exists(self.here.state), "nothing is written where it was")
        self.assertEqual(self.there.images("verify")["damages"], [])
        os.mkdir(self.here.state)

    def test_a_copy_beside_the_task_that_runs(self):
        job = self.start()
        before = job.output()
        job.verb("checkpoint")
        self.here.images("export", "job/000001", self.exported)
        self.assertEqual(self.here.images("import", self.exported, "--as", "copy")["image"], "copy/000001")
        self.here.ok("restore", "copy", "--detach")
        copy = Job(self.here, "copy")
        for task in (copy, job):
            task.verb("pause")
            task.verb("resume")
        self.tell()
        self.assertEqual(self.assert_finished(job, before), self.assert_finished(copy, before))
        self.assertNotEqual(copy.process()["init_pid"], job.process()["init_pid"])
        self.here.ok("rm", "copy")
        self.assertEqual([i["image"] for i in self.here.images("ls")["images"]], ["job/000001"])

    def test_in_the_foreground_only_what_is_new_is_printed(self):
        job = self.start()
        before = job.output()
        job.verb("checkpoint", "--stop")
        job.wait()
        self.here.images("export", "job", self.exported)
        self.there.images("import", self.exported)
        restore = subprocess.Popen([built("bin/stasis"), "restore", "job"], env=self.there.env(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=die_with_parent)
        moved = Job(self.there, "job")
        moved.wait_for_restore(restore)
        self.tell()
        out, err = restore.communicate(timeout=300)
        self.assertEqual(restore.returncode, 0, err)
        self.assertEqual(before + out, moved.output())
        self.assertEqual(out.splitlines()[-1], self.result())
        self.assertEqual(job.output(), before, "the log of the first site is untouched")

    def test_what_ends_it_is_told_in_its_new_place(self):
        job = self.start()
        job.verb("checkpoint", "--stop")
        job.wait()
        self.here.images("export", "job", self.exported)
        self.there.images("import", self.exported, "--as", "other")
        self.there.ok("restore", "other", "--detach")
        moved = Job(self.there, "other")
        os.kill(moved.process()["pid"], signal.SIGKILL)
        self.assertEqual(moved.wait(), -signal.SIGKILL)
        self.assertEqual(moved.read_json("exit.json")["signal"], signal.SIGKILL)
        self.assertFalse(os.path.exists(job.path("exit.json")))


class MovedByDriverCheckpoint(Moved):
    strategy = "driver-checkpoint"


if __name__ == "__main__":
    unittest.main()
