"""The driver's own checkpoint fails at each of its steps, for each of two processes: the task goes on as if nothing had been asked,
or is held and comes back when it is asked again."""

import os
import shutil
import tempfile
import unittest

import stasis_job
from softgpu import BUILD, built

NOT_READY, NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN = 600, 801, 2, 999
TRAIN = ["--steps", "120", "--batch", "2", "--context", "16", "--layers", "1", "--width", "16", "--log-every", "1", "--pace-ms", "500"]
PROCESSES = 2


def faulty_build(folder):
    """The build with the faulty driver in the place of the software device's, under a name as NVIDIA's has. The programs of stasis
    look beside themselves."""
    shutil.copytree(BUILD, folder, symlinks=True, copy_function=os.symlink,
                    ignore=lambda at, names: ["CMakeFiles"] + [n for n in names if at == BUILD and n not in ("bin", "lib", "samples")])
    for program in ("stasis", "stasis-init", "stasis-ghost"):
        os.unlink(os.path.join(folder, "bin", program))
        shutil.copy(built("bin/" + program), os.path.join(folder, "bin", program))
    driver = os.path.join(folder, "lib", "softgpu", "libcuda.so.580.65.06")
    shutil.copy(built("tests/hardware/libfaulty_cuda.so"), driver)
    os.unlink(os.path.join(os.path.dirname(driver), "libcuda.so.1"))
    os.symlink(os.path.basename(driver), os.path.join(os.path.dirname(driver), "libcuda.so.1"))


class DriverFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="driver-faults-"))
        build = os.path.join(cls.folder, "build")
        faulty_build(build)
        cls.orders = os.path.join(cls.folder, "orders")
        for name in ("FAULTY_DRIVER_REAL", "FAULTY_DRIVER_ORDERS"):
            cls.addClassCleanup(os.environ.pop, name, None)
        os.environ["FAULTY_DRIVER_REAL"] = built("lib/softgpu/libcuda.so.1")
        os.environ["FAULTY_DRIVER_ORDERS"] = cls.orders
        cls.build = build

    def setUp(self):
        # `stasis` and its programs are those beside the faulty driver.
        import softgpu  # pylint: disable=import-outside-toplevel
        self.addCleanup(setattr, softgpu, "BUILD", softgpu.BUILD)
        softgpu.BUILD = self.build
        self.site = self.enterContext(stasis_job.Site("--gpus", "2", "--memory", "256MiB"))

    def order(self, step, count, result):
        with open(self.orders, "w", encoding="utf-8") as file:
            file.write(f"{step} {count} {result}")

    def obeyed(self):
        """The call that was ordered to fail has been made."""
        return os.path.getsize(self.orders) == 0

    def start(self):
        """Two processes that train, each with its own seed. With a driver named as NVIDIA's the strategy is driver-checkpoint."""
        train = [os.path.join(self.build, "samples", "gpt_train"), *TRAIN, "--seed"]
        self.undisturbed = [self.site.node.run(*train, seed, PACE_UNTIL="/").stdout.splitlines() for seed in ("1", "2")]
        train = " ".join(train)
        job = self.site.start("pair", "/bin/sh", "-c", f"{train} 1 & {train} 2; wait", **self.site.rest())
        for lines in self.undisturbed:
            job.wait_for_output(next(line for line in lines if line.startswith("step 1 ")))
        return job

    def check_places(self, places):
        """What is written down for processes that begin to use devices from now on: where each is, and what is there."""
        uuids = [device["uuid"].removeprefix("GPU-").replace("-", "") for device in self.site.node.devices()]
        with open(os.path.join(self.site.run_dir, "tasks", "pair", "placements"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "".join(f"{uuid} {place} {uuids[place]}\n" for uuid, place in zip(uuids, places)))

    def finish(self, job):
        """What both have printed is what they print when nothing disturbs them."""
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output()[-2000:])
        self.assertEqual(sorted(job.output().splitlines()), sorted(sum(self.undisturbed, [])))
        self.assertEqual(self.site.memory_in_the_end(), [0, 0])

    def check_refused(self, answer, step, left):
        self.assertIn("cuCheckpointProcess" + step, answer["message"], answer)
        self.assertEqual(answer["left"], left, answer)
        self.assertTrue(self.obeyed())

    def test_a_pause_that_fails_leaves_the_task_running(self):
        job = self.start()
        for step, result in (("GetState", UNKNOWN), ("Lock", NOT_READY), ("Checkpoint", NOT_SUPPORTED)):
            for count in range(1, PROCESSES + 1):
                with self.subTest(step=step, process=count):
                    self.order(step, count, result)
                    _, answer = job.refused("pause")
                    self.check_refused(answer, step, "rolled-back")
                    job.verb("pause")
                    job.verb("resume")
        self.finish(job)

    def test_a_resume_that_fails_leaves_the_task_paused(self):
        job = self.start()
        for step, result in (("GetState", UNKNOWN), ("Restore", OUT_OF_MEMORY), ("Unlock", UNKNOWN)):
            for count in range(1, PROCESSES + 1):
                with self.subTest(step=step, process=count):
                    job.verb("pause")
                    self.order(step, count, result)
                    _, answer = job.refused("resume")
                    self.check_refused(answer, step, "paused")
                    job.verb("resume")
        self.finish(job)

    def test_a_checkpoint_and_a_move_that_fail_on_the_way_back_hold_or_undo(self):
        job = self.start()
        for verb, arguments in (("checkpoint", ()), ("migrate", ("--gpus", "1"))):
            for count in range(1, PROCESSES + 1):
                with self.subTest(verb=verb, process=count):
                    self.order("Restore", count, OUT_OF_MEMORY)
                    status, answer, _ = self.site.call(verb, "pair", *arguments)
                    self.assertTrue(self.obeyed(), answer)
                    self.assertNotEqual(status, 0, answer)
                    self.assertIn(answer["left"], ("rolled-back", "paused"), answer)
                    if answer["left"] == "paused":
                        job.verb("resume")
        job.verb("migrate", "--gpus", "1")
        self.check_places([1, 0])
        self.finish(job)


if __name__ == "__main__":
    unittest.main()
