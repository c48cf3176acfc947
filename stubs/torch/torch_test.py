#!/usr/bin/env python3
"""PyTorch's own caching allocator as a task on a software device: what it has given out is what is active."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "intercept"))
import active_test  # noqa: E402  pylint: disable=wrong-import-position


class TorchTest(active_test.ActiveTest):

    def test_what_the_allocator_has_given_out_is_all_that_is_needed(self):
        program, task = self.start("torch", name="../../bin/torch_allocator")
        spoiled = 0
        for _ in range(6):
            self.assertEqual(program.ask("step 100"), [])
            live = active_test.merged(program.live())
            task.quiesce()
            extents = task.handover()
            active = task.active()
            self.assertEqual(active_test.merged(active), live)
            task.release()
            spoiled += active_test.spoil_all_but(self.node, active, extents)
            task.unpause(extents, self.driver)
            self.assertEqual(program.ask("check"), [])
        self.assertEqual(task.status()["ignored_notes"], 0)
        self.assertGreater(spoiled, active_test.MIB)


if __name__ == "__main__":
    del active_test.ActiveTest
    unittest.main()
