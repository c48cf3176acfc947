"""The campaign of faults for as long as a test may take, and what it rests on: decisions that a seed has again, and audits that
find what is left."""

import os
import subprocess
import time
import unittest

from campaign import Campaign, World
from softgpu import die_with_parent
import plan

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
SEED = int(os.environ.get("STASIS_TEST_SEED", "1"))
MINUTES = 20 if FULL else 1.25


class Plan(unittest.TestCase):
    def test_a_seed_decides_the_same_again(self):
        self.assertEqual([plan.a_run(7, number) for number in range(50)], [plan.a_run(7, number) for number in range(50)])
        self.assertNotEqual([plan.a_run(7, number) for number in range(50)], [plan.a_run(8, number) for number in range(50)])

    def test_a_run_does_not_depend_on_those_before(self):
        alone = plan.a_run(7, 40)
        self.assertEqual([plan.a_run(7, number) for number in range(41)][-1], alone)

    def test_all_there_is_happens(self):
        rounds = [each for number in range(300) for each in plan.a_run(1, number).rounds]
        happens = {(each.kind, each.what) for each in rounds}
        wanted = {(kind, what) for kind, whats in {**plan.STRIKES, "damage": plan.DAMAGES}.items() for what in whats}
        self.assertEqual(happens, wanted | {("none", "")})
        self.assertEqual({each.verb for each in rounds}, {*plan.VERBS, "damage"})
        self.assertEqual({plan.a_run(1, number).job for number in range(len(plan.JOBS))}, set(plan.JOBS))


class Audits(unittest.TestCase):
    def setUp(self):
        self.world = World().__enter__()
        self.addCleanup(self.world.__exit__, None, None, None)
        self.node, self.audit = self.world.nodes["left"], self.world.audits[0]

    def test_each_finds_what_is_left(self):
        self.assertEqual(self.audit.findings(), [])
        self.audit.seconds = 0.5  # what is found stays
        sleep = subprocess.Popen([*self.node.through, "sleep", "600"], preexec_fn=die_with_parent)
        self.addCleanup(sleep.wait)
        self.addCleanup(sleep.kill)
        give_up = time.monotonic() + 60
        while self.node.processes().get(sleep.pid) != "sleep 600":
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.01)  # nothing tells when it has come into the node
        for place in (self.node.state, self.node.run_dir):
            with open(os.path.join(self.node.path(place), "left.tmp"), "wb"):
                pass
        self.node.run("mount", "--bind", "/usr", "/mnt")
        self.node.run("/usr/bin/python3", "-c", "import ctypes; nft = ctypes.CDLL('libnftables.so.1'); "
                      "nft.nft_ctx_new.restype = ctypes.c_void_p; context = ctypes.c_void_p(nft.nft_ctx_new(0)); "
                      "nft.nft_run_cmd_from_buffer(context, b'add table inet left')")
        store = self.node.path(os.path.join(self.node.state, "store"))
        os.makedirs(os.path.join(store, "images", "x"))
        for path in ("format", "images/x/000001.image"):
            with open(os.path.join(store, path), "wb") as file:
                file.write(b"damaged")
        found = "\n".join(self.audit.findings())
        for word in (f"process {sleep.pid}", "left.tmp is left in the run", "/mnt is mounted", "table inet left", "images gc"):
            self.assertIn(word, found)
        self.assertEqual(sorted(finding.split(" ")[0] for finding in self.audit.state_files()),
                         ["left.tmp", "store/images/x/000001.image"])


class Chaos(unittest.TestCase):
    def test_jobs_live_through_it_and_nothing_is_left(self):
        campaign = Campaign(SEED)
        self.assertTrue(campaign.run(range(1000000), MINUTES * 60), "\n".join(campaign.totals.table()))


if __name__ == "__main__":
    unittest.main()
