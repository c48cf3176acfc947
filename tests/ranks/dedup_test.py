"""One image of a job of many ranks: what all of them have leaves the devices once, is written once and read once."""

import os
import random
import unittest

from stasis_ranks import RankSite, built

MIB = 2**20
RANKS = 4
CHUNK = 64 << 10
# 8 MiB of weights and momentum, and as much of gradients, of which those of the layers that are still to come in a step are zero
# and those of one layer are each rank's own, as is half a MiB of activations.
MODEL = ["--width", "256", "--layers", "16", "--batch", "4", "--rows", "1024", "--lr", "0.001"]
OF_A_LAYER = 256 * 256 * 8
STATE = 14 * 256 * 256 * 8
OWN = OF_A_LAYER + MIB
STEPS = 12


def command(*options):
    return [built("samples/ddp_train"), *MODEL, *options]


class Dedup(unittest.TestCase):
    def setUp(self):
        self.site = self.enterContext(RankSite("--gpus", str(RANKS), "--memory", "256MiB"))

    def enterContext(self, context):  # unittest has it from Python 3.11 on
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def start(self, name, ranks, *options):
        """It rests between its steps until self.site.hurry()."""
        job = self.site.start_ranks(name, ranks, *command("--pace-ms", "2000", *options), **self.site.rest())
        job.ranks[0].wait_for_output("step 2 ")
        return job

    def end(self, job):
        job.verb("cancel")
        job.wait()

    def checkpoint_in_a_store_of_its_own(self, ranks, *options):
        """Of a job that goes on for ever: the answer."""
        with RankSite(beside=self.site) as site:
            job = site.start_ranks("job", ranks, *command("--pace-ms", "50", "--steps", "1000000"))
            job.ranks[0].wait_for_output("step 2 ")
            answer = job.verb("checkpoint", *options)
            self.end(job)
            self.assertEqual(site.images("verify")["damages"], [])
            return answer

    def test_what_all_have_leaves_the_devices_once_and_is_written_once(self):
        one, four = (self.checkpoint_in_a_store_of_its_own(ranks, "--device-hash", "on") for ranks in (1, RANKS))
        self.assertGreater(four["active_bytes"], RANKS * STATE)
        self.assertLess(four["copied_bytes"], 2 * STATE + RANKS * OWN, (one, four))
        self.assertGreater(four["other_ranks_bytes"], (RANKS - 1) * (STATE - OWN), four)
        print(f"copied {one['copied_bytes'] / MIB:.1f}, {four['copied_bytes'] / MIB:.1f} MiB; "
              f"written {one['added_bytes'] / MIB:.1f}, {four['added_bytes'] / MIB:.1f} MiB")

    def test_it_is_written_once_where_the_host_hashes_too(self):
        four = self.checkpoint_in_a_store_of_its_own(RANKS, "--device-hash", "off")
        self.assertEqual(four["hashed_on_device_bytes"], 0)
        self.assertGreater(four["other_ranks_bytes"], (RANKS - 1) * (STATE - OWN), four)

    def test_a_restore_reads_once_and_ends_as_if_nothing_had_been(self):
        expected = self.site.node.run(*command("--steps", str(STEPS), "--reference", "--ranks", str(RANKS)))
        self.assertEqual(expected.returncode, 0, expected.stderr)
        job = self.start("job", RANKS, "--steps", str(STEPS))
        saved = job.verb("checkpoint", "--stop")
        job.wait()
        restored = job.verb("restore", "--detach")
        self.site.hurry()
        self.assertLess(restored["read_bytes"], 2 * STATE + RANKS * OWN, restored)
        self.assertGreater(restored["fanned_out_bytes"], (RANKS - 1) * (STATE - OWN), restored)
        for rank in restored["ranks"]:
            self.assertGreater(rank["read_bytes"], STATE // 10, "the ranks take turns")
        self.assertEqual(job.wait(), 0)
        self.assertEqual(job.lines(), sorted(expected.stdout.splitlines()))
        self.assertGreater(saved["active_bytes"], RANKS * STATE)

    def test_garbage_collectors_beside_take_nothing_that_is_promised(self):
        job = self.start("job", RANKS, "--steps", "1000000")
        for _ in range(3):
            verb = job.start_verb("checkpoint")
            while verb.poll() is None:
                self.site.collect()
            out, err = verb.communicate()
            self.assertEqual(verb.returncode, 0, (out, err))
        self.site.collect()
        self.assertEqual(self.site.images("verify")["damages"], [])
        self.end(job)
        job.verb("restore", "--detach")
        self.end(job)

    def test_damage_of_what_all_share_is_named_and_nobody_comes_back(self):
        job = self.start("job", RANKS, "--steps", "1000000")
        job.verb("checkpoint", "--stop")
        job.wait()
        packs = os.path.join(self.site.state, "store", "packs")
        pack = max((name for name in os.listdir(packs) if name.endswith(".pack")),
                   key=lambda name: os.path.getsize(os.path.join(packs, name)))
        with open(os.path.join(packs, pack), "r+b") as file:
            size = os.path.getsize(file.name)
            # Device memory is first in it.
            for at in range(4096, size // 2, CHUNK):
                file.seek(at)
                file.write(random.randbytes(64))
        status, answer = job.call("restore", "--detach")
        self.assertNotEqual(status, 0)
        self.assertEqual(answer["code"], "CORRUPT", answer)
        self.assertIn(pack, answer["message"])
        self.assertFalse(any(rank.alive() for rank in job.ranks))
        self.assertEqual(self.site.memory_in_the_end(), [0] * RANKS)


if __name__ == "__main__":
    unittest.main()
