"""A headless Chromium that a test looks through: what a page has become, and what it looks like. Told what to do by its DevTools
protocol over two pipes."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

from softgpu import die_with_parent


class Chromium:
    """`through`: the command that leads to where it is to run."""

    def __init__(self, through=(), size=(1400, 1500)):
        program = shutil.which("chromium")
        assert program, "chromium is not installed: scripts/setup.sh"
        self.through = list(through)
        self.size = size
        self.program = program
        self.number = 0
        self.said = []  # what pages have written to their console, and what they have failed by

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-chromium-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.answers, from_write = os.pipe()

        def prepare():
            die_with_parent()
            # As it wants them; first out of the way, where one is at the other's place.
            read_end, write_end = os.dup(to_read), os.dup(from_write)
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)

        self.process = subprocess.Popen(
            [*self.through, self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}",
             f"--window-size={self.size[0]},{self.size[1]}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=prepare,
            close_fds=False)
        os.close(to_read)
        os.close(from_write)
        self.rest = b""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.to)
        os.close(self.answers)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 20)
            assert more, "chromium has ended"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        if message.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(message["params"]["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.said.append(message["params"]["entry"]["text"])

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.note(answer)

    def open(self, address):
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, expression):
        """What it is worth in the page; of a promise, what it becomes."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=240):
        """Until the expression is true in the page; it is looked at when the page changes. What it was worth then."""
        return self.run(f"""new Promise((found, lost) => {{
          let observer = null;
          const look = () => {{
            const value = ({condition});
            if (!value) return false;
            if (observer) observer.disconnect();
            found(value);
            return true;
          }};
          if (look()) return;
          observer = new MutationObserver(look);
          observer.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
          document.addEventListener("readystatechange", look);
          setTimeout(() => lost(new Error("not within {seconds} s: " + {json.dumps(condition)} + "\\n" +
                                          document.body.innerText.slice(0, 3000))), {seconds * 1000});
        }})""")

    def markup(self):
        return self.run("document.documentElement.outerHTML")

    def screenshot(self, path):
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))


__all__ = ["Chromium"]
