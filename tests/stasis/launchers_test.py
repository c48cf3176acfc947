"""Launchers of ranks as one task: what supervises the ranks goes into the image with them, and with all that they tell each
other by."""

import importlib.util
import os
import shutil
import sys
import unittest

from rank_launcher import free_port
from stasis_job import Site, built

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs")
RANKS = 2
STEPS = 1000 if FULL else 300
# What mpirun tells its processes, in the words of torchrun.
AS_TORCHRUN = ("export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE "
               "MASTER_ADDR=127.0.0.1; exec \"$@\"")


class Launchers(unittest.TestCase):
    def setUp(self):
        self.site = self.enterContext(Site("--gpus", "2", "--memory", "512MiB"))

    def program(self):
        return [built("samples/ddp_train"), "--steps", str(STEPS), "--log-every", str(STEPS // 8), "--pace-ms", "200"]

    def undisturbed(self, command, **extra):
        result = self.site.node.run(*command, timeout=300, PACE_UNTIL="/", **extra)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sorted(result.stdout.splitlines())

    def check(self, *command, **extra):
        expected = self.undisturbed(command, **extra)
        job = self.site.start("ranks", *command, **extra, **self.site.rest())
        job.wait_for_output("step")
        for _ in range(5 if FULL else 1):
            job.verb("pause")
            job.verb("resume")
            job.verb("checkpoint")
            self.assertTrue(job.alive(), "the program was too quick")
            job.kill()
            job.verb("restore", "--detach", "--gpus", "1,0")
            job.verb("checkpoint", "--stop")
            job.wait()
            job.verb("restore", "--detach", "--gpus", "0,1")
        self.assertTrue(job.alive(), "the program was too quick")
        self.site.hurry()
        self.assertEqual(job.wait(), 0, job.output())
        self.assertEqual(sorted(job.output().splitlines()), expected)

    def test_an_agent_with_a_store(self):
        self.check(sys.executable, os.path.join(PROGRAMS, "launcher.py"), str(RANKS), *self.program())

    def test_mpirun(self):
        self.assertTrue(shutil.which("mpirun"), "openmpi-bin is missing: scripts/setup.sh")
        self.check("mpirun", "--mca", "orte_tmpdir_base", self.site.folder.name, "--allow-run-as-root", "--oversubscribe", "-n",
                   str(RANKS), "sh", "-c", AS_TORCHRUN, "sh", *self.program(), MASTER_PORT=free_port())

    # torch is too much to install for this alone.
    if importlib.util.find_spec("torch"):

        def test_torchrun(self):
            self.check(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port",
                       str(free_port()), "--no-python", *self.program())


if __name__ == "__main__":
    unittest.main()
