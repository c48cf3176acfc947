"""The page of stasis-schedd in a browser: what happens to a cluster is on it as it does, and what others have written is text."""

import os
import unittest

from agents import AgentNodes
from chromium import Chromium
from moving_job import Sample
from schedd import Schedd, sched

DEVICES = ["--gpus", "4", "--memory", "256MiB"]
VECTOR = Sample("vector", "--rounds", "1000", "--elements", str(1 << 12), "--pace-ms", "1000")
MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
WEB_PORT = 8480


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = AgentNodes(s=["--gpus", "1"], a=DEVICES, b=DEVICES)
        cls.nodes.__enter__()
        cls.addClassCleanup(cls.nodes.__exit__, None, None, None)

    def setUp(self):
        place = self.nodes["s"].address
        self.schedd = self.enter(Schedd(self.nodes, "s", "--lease", "1h", "--node-timeout", "10s", "--checkpoint-interval", "0",
                                        "--web", f"{place}:{WEB_PORT}", "--web-clear"))
        for name in ("a", "b"):
            self.nodes[name].start_agent("--join", f"{place}:{Schedd.PORT}")
        for tenant, weight in (("vision", 2), ("speech", 1), ("robots", 1)):
            self.schedd.tenant(tenant, weight)
        self.schedd.wait(lambda: all(self.schedd.node(name) for name in ("a", "b")))
        self.hurry = []
        self.addCleanup(self.end_jobs)
        self.browser = self.enter(Chromium(self.nodes["s"].through))

    def enter(self, context):
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def end_jobs(self):
        for file in self.hurry:
            with open(file, "w", encoding="utf-8"):
                pass
        for name in ("a", "b"):
            self.nodes[name].end_jobs()
            self.nodes[name].stop_agent()

    def submit(self, name, tenant, gpus=1, priority=0):
        file = os.path.join(os.path.dirname(self.nodes.root), f"hurry-{name}")
        self.hurry.append(file)
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "SOFTGPU_SOCKET": self.nodes["a"].socket, "SOFTGPU_AUTOSTART": "0",
               "PACE_UNTIL": file}
        self.schedd.submit(name, VECTOR.command(), env, tenant=tenant, gpus=gpus, priority=priority)
        return file

    def run_job(self, name, *arguments, **fields):
        file = self.submit(name, *arguments, **fields)
        self.schedd.wait_for_state(name, "RUNNING")
        return file

    def state_on_page(self, job, state):
        row = f"[...document.querySelectorAll('#queue tr')].find((row) => row.cells[0].textContent === '{job}')"
        return f"({row})?.cells[2].textContent === '{state}'"

    def test_what_happens_is_on_the_page(self):
        hurry = self.run_job("resnet", "vision", 2)
        self.run_job("wav2vec", "speech", 2)
        self.run_job("detector", "vision", 2)
        page = self.browser
        page.open(f"http://{self.nodes['s'].address}:{WEB_PORT}/")
        page.wait("document.querySelectorAll('.cell.held').length === 6")
        self.assertEqual(page.run("document.querySelectorAll('.cell').length"), 8)
        page.wait("document.querySelector('#link').textContent === 'live'")
        page.wait("document.querySelectorAll('#tenants tr').length === 3")
        page.wait("document.querySelector('#summary').textContent.split('astraea').length === 2")
        page.wait("[...document.querySelectorAll('#queue tr')].every((row) => row.cells[11].textContent.endsWith('/s'))")
        # What happens from now on comes by itself.
        self.run_job("walker", "robots", 2)
        page.wait(self.state_on_page("walker", "running"))
        page.wait("document.querySelectorAll('.cell.held').length === 8")
        self.run_job("urgent", "robots", 2, priority=5)
        page.wait("document.querySelector('[data-phase=paused]')")
        page.wait("[...document.querySelectorAll('#queue tr')].some((row) => row.cells[2].textContent === 'paused')")
        with open(hurry, "w", encoding="utf-8"):
            pass
        self.submit("later", "speech", 4)
        page.wait(self.state_on_page("later", "pending"))
        # What an operator has written is text wherever it is shown.
        self.schedd.stub.Drain(sched.DrainRequest(node="b", reason=MARKUP), timeout=120)
        page.wait(f"document.querySelector('#nodes').textContent.includes({MARKUP!r})")
        page.wait(f"document.querySelector('#events').textContent.includes({MARKUP!r})")
        self.assertFalse(page.run("document.querySelector('img') || document.querySelector('body script')"))
        self.assertEqual(page.run("document.title"), "Stasis")
        self.assertNotIn("<img", page.markup())
        picture = os.environ.get("STASIS_TEST_SCREENSHOT")
        if picture:
            page.screenshot(picture)
        self.assertEqual(page.said, [])

    def test_a_scheduler_that_is_started_anew_is_shown_again(self):
        self.run_job("stays", "vision")
        page = self.browser
        page.open(f"http://{self.nodes['s'].address}:{WEB_PORT}/")
        page.wait("document.querySelector('#link').textContent === 'live'")
        self.schedd.kill()
        page.wait("document.querySelector('#link').textContent !== 'live'")
        self.schedd.start()
        page.wait("document.querySelector('#link').textContent === 'live'")
        self.schedd.wait_for_state("stays", "RUNNING")
        # What happens afterwards is told by the new one.
        here = self.schedd.job("stays").node
        self.schedd.stub.Drain(sched.DrainRequest(node=here), timeout=120)
        page.wait("document.querySelector('[data-mark=moved]')")
        page.wait("[...document.querySelectorAll('#nodes .badge')].some((badge) => badge.textContent === 'drained')")
        self.nodes[here].kill_agent()
        page.wait("[...document.querySelectorAll('#nodes .badge')].some((badge) => badge.textContent === 'unreachable')")


if __name__ == "__main__":
    unittest.main()
