"""Steps of a real Slurm under Stasis: the option of srun and sbatch, and what becomes of a step when Slurm takes its job away."""

import unittest

import slurm_lab
from slurm_lab import SlurmLab
from stasis_job import Site, built

GPUS = 2  # of each node; the nodes share the software devices


class SlurmCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = cls.enterClassContext(Site("--gpus", str(GPUS)))
        plugin = f"required {built('lib/stasis_spank.so')} {built('bin/stasis-step')}"
        cls.lab = cls.enterClassContext(SlurmLab(nodes=2, gpus=GPUS, plugins=[plugin]))

    @classmethod
    def enterClassContext(cls, context):
        value = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        return value

    def srun(self, *arguments, **extra):
        return self.lab.run("srun", *arguments, env=self.site.env(), **extra)


class Option(SlurmCase):
    def test_a_step_is_a_task(self):
        result = self.srun("--stasis", "-n1", "--gres=gpu:1", built("samples/vector"), "--rounds", "2")
        plain = self.site.node.run(built("samples/vector"), "--rounds", "2")
        lines = [line for line in result.stdout.splitlines() if "device time" not in line]
        self.assertEqual(lines, [line for line in plain.stdout.splitlines() if "device time" not in line])
        self.assertIn("task slurm-", result.stderr)

    def test_the_exit_code_is_the_programs(self):
        result = self.srun("--stasis", "-n1", "sh", "-c", "exit 7", check=False)
        self.assertEqual(result.returncode, 7)

    def test_several_programs_are_refused(self):
        self.lab.write("programs", "0 echo a\n1 echo b\n")
        result = self.srun("--stasis", "-n2", "--multi-prog", self.lab.path("programs"), check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        self.assertIn("--multi-prog does not go with --stasis", result.stderr)

    def test_without_the_option_nothing_is_different(self):
        result = self.srun("-n1", "env")
        self.assertNotIn("STASIS_STEP", result.stdout)
        self.assertEqual(result.stderr, "")


def tearDownModule():
    left = slurm_lab.processes()
    assert not left, f"still there after everything has been ended: {left}"


if __name__ == "__main__":
    slurm_lab.own_namespaces()
    unittest.main()
