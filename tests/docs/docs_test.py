#!/usr/bin/env python3
"""Documents: what they link to and name is there, and the references that the build makes leave nothing out."""

import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["STASIS_BUILD_DIR"])
DOCS = BUILD / "docs"

# What a document may name although no checkout has it: files of a running system, of a user, of a build.
NOT_OURS = re.compile(r"^(build/|tasks/|images/|jobs/|store/|ctl/|proc/|usr/|var/|etc/|run/|dev/|sys/|tmp/|bin/|lib/)")
MADE_BY_READERS = {"docs/measurements/", "scheduler/smallest.cc", "replay/log_callback_record.h", "intercept/hooks_log.cc"}
SUFFIXES = "cc|h|cu|py|sh|md|table|inc|proto|txt|cmake|service|sbatch|yaml|list"
# `folder/file.ext`, also as `a/b.{h,cc}` and `a/b.h` and `.cc`; patterns with * count where they match something.
NAMED = re.compile(rf"`([A-Za-z0-9_.*-]+(?:/[A-Za-z0-9_.*-]+)+(?:\.(?:{SUFFIXES})|/))`")


def pages():
    yield from sorted([*SOURCE.glob("*.md"), *SOURCE.glob("docs/**/*.md")])


def text_of(page):
    """Without what stands in fenced blocks: those are for shells and compilers."""
    return re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())


def anchors(page):
    """As GitHub makes them of headings."""
    found = set()
    for heading in re.findall(r"(?m)^#+ (.*)$", page.read_text()):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.add(words.replace(" ", "-"))
    return found


def broken_links(page):
    for target in re.findall(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.relative_to(SOURCE)}: [{target}] is not there"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{page.relative_to(SOURCE)}: [{target}] has no such heading"


def absent_files(page):
    for name in NAMED.findall(text_of(page)):
        if NOT_OURS.match(name) or name in MADE_BY_READERS:
            continue
        places = [page.parent, *(SOURCE / base for base in ("", "include", "scheduler", "softgpu", "softgpu/ptx"))]
        if not any(list(place.glob(name.rstrip("/"))) for place in places):
            yield f"{page.relative_to(SOURCE)}: `{name}` is not there"


def commands(program, path=()):
    """(words of a verb, the verb) of all that has no verbs below it."""
    path = (*path, program["name"])
    if not program["verbs"]:
        yield path, program
    for verb in program["verbs"]:
        yield from commands(verb, path)


class Documents(unittest.TestCase):
    def test_every_relative_link_leads_somewhere(self):
        self.assertEqual([], [problem for page in pages() for problem in broken_links(page)])

    def test_every_file_that_is_named_is_there(self):
        self.assertEqual([], [problem for page in pages() for problem in absent_files(page)])

    def test_every_page_is_in_the_index(self):
        index = (SOURCE / "docs" / "README.md").read_text()
        self.assertEqual([], [page.name for page in (SOURCE / "docs").glob("*.md") if page.name != "README.md" and f"({page.name})" not in index])

    def test_what_is_not_there_is_found(self):
        with tempfile.TemporaryDirectory(dir=SOURCE / "build") as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("# A page\n[a](nothing.md) [b](#no-where) [c](#a-page) `ghost/nothing.cc` `ghost/job.cc` `ghost/job_*.cc`\n")
            self.assertEqual(2, len(list(broken_links(page))), list(broken_links(page)))
            self.assertEqual(1, len(list(absent_files(page))), list(absent_files(page)))


class References(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = json.loads((DOCS / "cli-model.json").read_text())
        cls.page = (DOCS / "cli-reference.md").read_text()

    def test_every_verb_and_option_of_the_programs_is_in_reference_and_man_page(self):
        for program in self.programs:
            for path, verb in commands(program):
                section = 1 if path[0] == "stasis" else 8
                name = "-".join(path[:2]) if section == 1 else path[0]
                manual = gzip.decompress((DOCS / "man-packed" / f"man{section}" / f"{name}.{section}.gz").read_bytes()).decode()
                self.assertIn(" " + " ".join(path) + "\n", self.page)
                if path == ("stasis", "sim"):  # explains itself
                    continue
                for option in verb["options"]:
                    self.assertTrue(option["what"].strip(), (path, option))
                    for word in option["names"]:
                        self.assertIn(f"`{word}" if word == option["names"][0] else word, self.page)
                        self.assertIn("\\fB" + word.replace("-", "\\-") + "\\fR", manual, (path, word))

    def test_the_model_is_what_the_programs_say_themselves(self):
        for path, verb in (pair for program in self.programs for pair in commands(program)):
            text = subprocess.run([BUILD / "bin" / path[0], *path[1:], "--help"], capture_output=True, text=True, check=True).stdout
            if path == ("stasis", "sim"):
                continue
            listed = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", text))
            described = {name for option in verb["options"] for name in option["names"] if name.startswith("--")}
            self.assertEqual(listed, described, path)

    def test_what_has_no_text_does_not_become_a_page(self):
        program = json.loads((DOCS / "cli-model.json").read_text())
        program[0]["verbs"][0]["options"][0]["what"] = " "
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model.json"
            model.write_text(json.dumps(program))
            result = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / "gen" / "cli_reference.py", "--model", model, "--version", "1",
                                     "--out", folder], capture_output=True, text=True, check=False)
        self.assertIn("no text", result.stderr)
        self.assertNotEqual(0, result.returncode)

    def test_man_pages_are_well_formed(self):
        for page in sorted((DOCS / "man").glob("man*/*")):
            result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=False)
            self.assertEqual("", result.stderr, page)

    def test_every_call_and_field_of_the_interfaces_is_in_the_reference(self):
        page = (DOCS / "rpc-reference.md").read_text()
        count = 0
        for proto in sorted((SOURCE / "proto").rglob("*.proto")):
            text = re.sub(r"//.*", "", proto.read_text())
            names = re.findall(r"rpc (\w+)\(", text) + re.findall(r"(?m)^\s*(?:(?:repeated|optional) )?[\w.]+ (\w+) = \d+;", text)
            for name in names:
                self.assertRegex(page, rf"\| `{name}`(?: = \d+)? \|(?: [^|]+ \|)+\n")
                count += 1
        self.assertGreater(count, 300)


if __name__ == "__main__":
    unittest.main()
