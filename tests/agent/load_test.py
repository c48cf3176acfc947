"""An agent under load (`scripts/bench.sh agent` tells how long its calls take). STASIS_TEST_FULL=1: all of it; else a tenth."""

import os
import unittest

from agent_load import AgentSite, run_load, start_tasks

FULL = os.environ.get("STASIS_TEST_FULL") == "1"
TASKS, STREAMS, RATE, SECONDS = (200, 1000, 500, 60) if FULL else (20, 100, 200, 4)
CHANGES = 1 if FULL else 2
# What a process may grow by while it is used, in KiB: arenas of malloc, not what is kept for each call.
SLACK_KIB = 8 << 10


class LoadTest(unittest.TestCase):
    def test_many_tasks_streams_and_calls(self):
        with AgentSite("--memory", "4GiB") as site:
            names = start_tasks(site, TASKS)
            figures = run_load(site, names[:10], STREAMS, RATE, SECONDS, CHANGES)
        print(figures)
        self.assertEqual(figures["errors"], {})
        self.assertEqual(figures["stream_errors"], {})
        self.assertEqual(figures["jobs"], TASKS)
        calls = sum(figures[kind]["count"] for kind in ("list", "find", "info", "operations"))
        self.assertEqual(calls, RATE * SECONDS)
        self.assertEqual(figures["changes"], CHANGES * SECONDS)
        # Each stream is told all jobs as they are, that it is all, and then what changes.
        self.assertGreater(figures["events"], STREAMS * (TASKS + 1))
        memory = figures["memory"]
        self.assertLess(memory["end"], memory["early"] + SLACK_KIB, memory)


if __name__ == "__main__":
    unittest.main()
