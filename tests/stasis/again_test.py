"""Runs that are ended by an image on a signal, and that are started again: `stasis run --checkpoint-on`, `--again`, `--rm`."""

import json
import os
import signal
import subprocess
import unittest

from softgpu import die_with_parent
from stasis_job import Site, VerbFailed, built

STEPS = 150
CHECKPOINTED = 124
STATE = 4  # exit code of what is not possible in the state that a task is in


class Again(unittest.TestCase):
    def setUp(self):
        self.site = Site("--gpus", "2")
        self.addCleanup(self.site.__exit__, None, None, None)
        self.site.__enter__()

    def command(self, *options, program=None):
        program = program or [built("samples/ddp_train"), "--steps", str(STEPS), "--log-every", "1", "--pace-ms", "500"]
        return [built("bin/stasis"), "run", "--embedded", "--device", "soft", "--name", "t", *options, "--", *program]

    def start(self, *options, **extra):
        """It rests between its steps until self.site.hurry()."""
        run = subprocess.Popen(self.command("--checkpoint-on", "TERM,USR1", *options, **extra), env=self.site.env(**self.site.rest()),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=die_with_parent)
        self.addCleanup(lambda: (run.kill(), run.communicate()))
        return run

    def until(self, stream, text):
        """What was read, to the end of the line that has it."""
        read = ""
        while text not in read:
            line = stream.readline()
            self.assertTrue(line, f"ended without {text!r}: {read}")
            read += line
        return read

    def end(self, run, how):
        """(exit code, the rest of its output, the rest of what it says)"""
        run.send_signal(how)
        output, errors = run.communicate(timeout=120)
        return run.returncode, output, errors

    def ended_by_image(self, *options):
        """What such a run has printed."""
        run = self.start(*options)
        before = self.until(run.stdout, "step 3 ")
        code, rest, errors = self.end(run, signal.SIGTERM)
        self.assertEqual(code, CHECKPOINTED, errors)
        return before + rest

    def go_on(self, *options):
        self.site.hurry()
        result = subprocess.run(self.command("--again", *options), env=self.site.env(**self.site.rest()), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def plain(self, *options):
        run = self.command("--rm", *options)
        return subprocess.run(run, env=self.site.env(PACE_UNTIL="/"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              timeout=120, check=True).stdout

    def refused(self, **extra):
        result = subprocess.run(self.command("--again", **extra), env=self.site.env(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, STATE)
        return result.stderr

    def test_goes_on_on_another_device(self):
        before = self.ended_by_image("--gpus", "0")
        after = self.go_on("--rm", "--gpus", "1")
        self.assertEqual(before + after, self.plain())
        self.assertEqual(self.site.tasks(), [])

    def test_job_of_ranks(self):
        before = self.ended_by_image("--ranks", "2")
        after = self.go_on("--rm", "--ranks", "2")
        self.assertEqual(sorted((before + after).splitlines()), sorted(self.plain("--ranks", "2").splitlines()))
        self.assertEqual(self.site.jobs(), [])

    def test_told_again_while_it_is_restored(self):
        """Then the image that there is counts."""
        before = self.ended_by_image()
        run = self.start("--again")
        self.until(run.stderr, "restore processes")
        code, output, errors = self.end(run, signal.SIGUSR1)
        self.assertEqual(code, CHECKPOINTED, errors)
        self.assertEqual(before + output + self.go_on("--rm"), self.plain())

    def test_gives_up_what_else_is_done(self):
        """Which would take for ever, and after that the time that is left may not do."""
        run = self.start()
        before = self.until(run.stdout, "step 3 ")
        other = subprocess.Popen([built("bin/stasis"), "checkpoint", "--embedded", "--wait-low", "1h", "t"], env=self.site.env(),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=die_with_parent)
        self.addCleanup(lambda: (other.kill(), other.communicate()))
        self.until(other.stderr, "stasis: ")
        code, rest, errors = self.end(run, signal.SIGTERM)
        self.assertEqual(code, CHECKPOINTED, errors)
        self.assertEqual(other.wait(60), 9)  # cancelled
        self.assertEqual(before + rest + self.go_on("--rm"), self.plain())

    def test_what_is_not_it_is_refused(self):
        run = self.start()
        self.until(run.stdout, "step 3 ")
        self.assertIn("t is running", self.refused())
        self.assertEqual(self.end(run, signal.SIGTERM)[0], CHECKPOINTED)
        self.assertIn("another program", self.refused(program=["/bin/true"]))

    def test_takes_the_place_of_a_record_without_an_image(self):
        self.site.ok("run", "--name", "t", "--device", "soft", "--", "/bin/sh", "-c", "exit 0")
        with self.assertRaises(VerbFailed):
            self.site.ok("run", "--name", "t", "--device", "soft", "--", "/bin/sh", "-c", "exit 0")
        answer = json.loads(subprocess.run([*self.command("--again", "--json", program=["/bin/sh", "-c", "exit 0"])],
                                           env=self.site.env(), stdout=subprocess.PIPE, check=True).stdout)
        self.assertIn("begins anew", " ".join(answer["notes"]))

    def test_unlisted_signals_are_the_programs(self):
        script = "trap 'exit 8' USR2; echo begun; while :; do sleep 0.1; done"
        run = self.start(program=["/bin/sh", "-c", script])
        self.until(run.stdout, "begun")
        self.assertEqual(self.end(run, signal.SIGUSR2)[0], 8)
        self.assertEqual(os.listdir(os.path.join(self.site.state, "tasks")), ["t"])


if __name__ == "__main__":
    unittest.main()
