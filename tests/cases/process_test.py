#!/usr/bin/env python3
"""The processes of a task and CRIU: what cannot be dumped, what an earlier dump has left, what the target lacks."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import softgpu
from cases import FULL, STRATEGIES, SiteCase
from softgpu import built
from stasis_job import Site

CC = os.environ.get("STASIS_CC", "cc")


class Dumped(SiteCase):

    def restored(self, job, *options):
        job.kill()
        job.verb("restore", "--detach", *options)

    def test_what_criu_does_not_carry_is_refused_before_anything_is_touched(self):
        kinds = {"io_uring": "io_uring is in use", "userfaultfd": "userfaultfd is in use",
                 "mptcp": "a socket of protocol MPTCP is open", "/dev/fuse": "the device /dev/fuse is open"}
        for number, (what, named) in enumerate(kinds.items()):
            for where in ("here", "child") if FULL else (("here", "child")[number % 2],):
                with self.subTest(what, where=where):
                    go = self.new_file()
                    job = self.start("uncarried", what, where, go)
                    with open(job.path("ghost.log"), "a+", encoding="utf-8") as log:
                        log.seek(0, os.SEEK_END)
                        for options in ((), ("--stop",)):
                            _, answer = job.refused("checkpoint", *options)
                            self.assertEqual((answer["code"], answer["left"]), ("UNSUPPORTED", "unchanged"), answer)
                            self.assertIn(named, answer["message"])
                            self.assertRegex(answer["message"], r"process \d+ \(.*\), descriptor \d+")
                            self.assertIn("without", answer["remedy"])
                        self.assertNotRegex(log.read(), r"\bstep ")
                    job.verb("pause")  # writes no image, and has nothing against it
                    job.verb("resume")
                    self.touch(go)
                    self.finish(job, "ready\nend\n")

    def test_a_dump_after_one_that_was_interrupted(self):
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("family", go)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("family", go, strategy=strategy)
                self.interrupt_ghost(job)
                self.interrupt_criu(job)
                before = self.shared_files()
                image = job.verb("checkpoint")["image"]
                self.restored(job)
                self.assertEqual(self.shared_files(), before)
                self.assertEqual(self.site.image_names(job.name), [f"{image}.image"])
                job.verb("checkpoint", "--stop")
                job.wait()
                job.verb("restore", "--detach")
                self.touch(go)
                self.finish(job, expected)

    @staticmethod
    def shared_files():
        return sorted(name for name in os.listdir("/dev/shm") if "stasis-test" in name or "link" in name)

    def interrupt_ghost(self, job):
        _, answer = job.refused("checkpoint", STASIS_GHOST_FAULT="dump-inside:kill")
        self.assertEqual(answer["code"], "PEER_DIED", answer)
        job.wait_for_ghost_to_leave()

    def interrupt_criu(self, job):
        """CRIU fails in the middle of what it writes."""
        criu = self.new_file("criu")
        with open(criu, "w", encoding="utf-8") as script:
            script.write(f"""#!/bin/sh
if [ "$1" = dump ]; then
  trap '' XFSZ
  ulimit -f 200
fi
exec "{os.environ["STASIS_CRIU"]}" "$@"
""")
        os.chmod(criu, 0o755)
        _, answer = job.refused("checkpoint", STASIS_CRIU=criu)
        self.assertEqual(answer["left"], "rolled-back", answer)
        job.wait_for_ghost_to_leave()

    def test_a_process_of_many_threads(self):
        count, times = 200, 25 if FULL else 2
        go = self.new_file()
        self.touch(go)
        expected = self.undisturbed("threads", count, go)
        go = self.new_file()
        job = self.start("threads", count, go)
        job.verb("checkpoint")
        # The numbers are taken by somebody else of the same machine, who began just as this one did.
        other = self.start("threads", count, self.new_file())
        self.assertEqual(other.process()["nspid"], job.process()["nspid"])
        for _ in range(times):
            self.restored(job)
        other.verb("cancel")
        self.touch(go)
        self.finish(job, expected)


class Devices(SiteCase):
    node = ("--gpus", "1", "--memory", "64MiB")

    def test_success_is_not_told_where_there_is_no_device(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                self.touch(go)
                expected = self.undisturbed("pieces", 4, go)
                go = self.new_file()
                job = self.start("pieces", 4, go, strategy=strategy)
                job.verb("checkpoint", "--stop")
                job.wait()
                self.site.node.stop_daemon()
                for _ in range(2):
                    _, answer = job.refused("restore", "--detach")
                    self.assertRegex(answer["message"], "(?i)device|driver", answer)
                    self.assertFalse(job.alive())
                self.site.node.start_daemon()
                self.assertEqual(self.site.node.smi("fault", "--gpu", "0", "--kind", "fell-off-bus").returncode, 0)
                _, answer = job.refused("restore", "--detach")
                self.assertFalse(job.alive())
                self.site.node.restart(*self.node)
                job.verb("restore", "--detach")
                self.touch(go)
                self.finish(job, expected)

    def test_nothing_of_the_driver_is_open_when_criu_looks(self):
        file, device = tempfile.mkstemp(prefix="nvidia-stasis-test-", dir="/dev")
        os.close(file)
        self.addCleanup(os.unlink, device)
        nvml = built("tests/nvml/libnvidia-ml.so.1")
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                go = self.new_file()
                job = self.start("nvml", "constructor", nvml, go, strategy=strategy, STASIS_FAKE_DEVICE=device)
                seen = self.checkpoint_and_look(job)
                self.assertIn(f"/proc/{job.process()['pid']}/fd", seen)
                for link in re.findall(r"-> (.*)", seen):
                    self.assertNotRegex(link, r"^/dev/(nvidia|dri)|dmabuf|softgpu|^socket:|\[eventfd|\.sock")
                self.touch(go)
                self.finish(job, "ready\nend\n")
        go = self.new_file()
        job = self.start("nvml", "parent", nvml, go, STASIS_FAKE_DEVICE=device)
        _, answer = job.refused("checkpoint")
        self.assertIn(f"NVML holds {device} open", answer["message"])
        self.touch(go)
        self.finish(job, "ready\nend\n")

    def test_a_device_file_that_is_something_else_at_the_target(self):
        file, device = tempfile.mkstemp(prefix="nvidia-stasis-test-", dir="/dev")
        os.close(file)
        self.addCleanup(lambda: os.path.lexists(device) and os.unlink(device))
        targets = {"a dangling link": lambda: os.symlink("nowhere", device), "another file": lambda: self.touch(device),
                   "a link to a device": lambda: os.symlink("full", device), "nothing": lambda: None}
        for strategy in STRATEGIES:
            go = self.new_file()
            job = self.start("nvml", "constructor", built("tests/nvml/libnvidia-ml.so.1"), go, strategy=strategy,
                             STASIS_FAKE_DEVICE=device)
            job.verb("checkpoint", "--stop")
            job.wait()
            for what, make in targets.items():
                with self.subTest(strategy, target=what):
                    os.unlink(device)
                    make()
                    job.verb("restore", "--detach")
                    is_there = os.path.exists(device)
                    self.assertEqual(self.opened(job).count(os.path.realpath(device)), 1 if is_there else 0)
                if what != "nothing":
                    job.kill()
            self.touch(go)
            self.assertEqual(job.wait(), 0, job.output())
            self.assertRegex(job.output(), r"^ready\nstasis.* NVML cannot be initialised again: .*\nend\n$")
            self.touch(device)

    @staticmethod
    def opened(job):
        folder = f"/proc/{job.process()['pid']}/fd"
        return [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]

    def checkpoint_and_look(self, job):
        """What all processes of the task have open when CRIU is started."""
        criu, seen = self.new_file("criu"), self.new_file("seen")
        pids = [job.process()["init_pid"], job.process()["pid"]]
        with open(criu, "w", encoding="utf-8") as script:
            script.write(f"""#!/bin/sh
if [ "$1" = dump ]; then ls -l {" ".join(f"/proc/{pid}/fd" for pid in pids)} >{seen}; fi
exec "{os.environ["STASIS_CRIU"]}" "$@"
""")
        os.chmod(criu, 0o755)
        job.verb("checkpoint", STASIS_CRIU=criu)
        with open(seen, encoding="utf-8") as file:
            return file.read()


class OtherLibraries(SiteCase):
    """At the target a library is another one than it was."""

    def test_of_the_program(self):
        library = self.new_file("library.so")
        first, second = self.make_library(5, "aa"), self.make_library(6, "bb")
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                shutil.copy(first, library)
                go = self.new_file()
                job = self.start("library", library, go, strategy=strategy)
                job.verb("checkpoint", "--stop")
                job.wait()
                os.unlink(library)
                shutil.copy(second, library)
                self.assert_named(job, library, "aa", "bb")
                os.unlink(library)
                shutil.copy2(first, library)
                job.verb("restore", "--detach")
                self.touch(go)
                self.finish(job, "ready\nend\n")

    def make_library(self, answer, build_id):
        path = self.new_file("made.so")
        source = f"int answer(void) {{ return {answer}; }}\n"
        subprocess.run([CC, "-shared", "-fPIC", f"-Wl,--build-id=0x{build_id * 4}", "-x", "c", "-", "-o", path], input=source,
                       text=True, check=True)
        return path

    def assert_named(self, job, path, before, now):
        _, answer = job.refused("restore", "--detach")
        self.assertEqual(answer["left"], "unchanged", answer)
        for text in (path, before, now):
            self.assertIn(text, answer["message"])
        self.assertNotIn("criu", answer["message"].lower())

    def test_of_the_driver(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="stasis-installed-", dir=softgpu.BUILD))
        for path in ("bin/stasis", "bin/stasis-init", "bin/stasis-ghost", "bin/softgpud", "bin/softgpu-smi", "lib/libstasis.so"):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            os.link(os.path.realpath(built(path)), os.path.join(folder, path))
        driver = os.path.join(folder, "lib", "softgpu", "libcuda.so.1")
        os.makedirs(os.path.dirname(driver))
        original = built("lib/softgpu/libcuda.so.1")
        self.addCleanup(setattr, softgpu, "BUILD", softgpu.BUILD)
        softgpu.BUILD = folder
        for strategy in STRATEGIES:
            with self.subTest(strategy), Site("--gpus", "1", "--memory", "64MiB") as self.site:
                if os.path.exists(driver):
                    os.unlink(driver)
                shutil.copy2(original, driver)
                go = self.new_file()
                job = self.start("pieces", 4, go, strategy=strategy)
                job.verb("checkpoint", "--stop")
                job.wait()
                before, now = self.replace_build_id(driver)
                if strategy == "driver-checkpoint":
                    self.assert_named(job, driver, before, now)
                    os.unlink(driver)
                    shutil.copy2(original, driver)
                job.verb("restore", "--detach")
                self.touch(go)
                self.assertEqual(job.wait(), 0, job.output())
                self.assertRegex(job.output(), r"^ready\npieces [0-9a-f]{64}\nend\n$")

    @staticmethod
    def replace_build_id(path):
        """Another build of the same: (its build id before, now)."""
        notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
        before = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]
        with open(path, "rb") as file:
            data = file.read()
        now = before[:-4] + ("0000" if before[-4:] != "0000" else "1111")
        replaced = data.replace(bytes.fromhex(before), bytes.fromhex(now))
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(replaced)
        os.chmod(path, 0o755)
        return before, now


if __name__ == "__main__":
    unittest.main()
