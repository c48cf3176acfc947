#!/usr/bin/env python3
"""Each test that docs/reported-faults.md names exists."""

import os
import re
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TESTS_COLUMN = 3


def rows():
    """The cells of each row, headings left out."""
    with open(os.path.join(SOURCE, "docs", "reported-faults.md"), encoding="utf-8") as page:
        lines = [line for line in page if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "reported" and not row[0].startswith("---")]


def named_tests(cell):
    """(file, test) for each test of a cell: "`file` name, name; `file` name"."""
    for part in cell.split(";") if cell != "-" else []:
        file, names = re.fullmatch(r"`([\w/.]+)` (.+)", part.strip()).groups()
        for name in names.split(", "):
            yield file, name


def is_there(file, name):
    with open(os.path.join(SOURCE, file), encoding="utf-8") as source:
        text = source.read()
    if file.endswith(".py"):
        return re.search(rf"^ +def {name}\(self\):", text, re.M) is not None
    suite, _, test = name.partition(".")
    return re.search(rf"^TEST(_F|_P)?\({suite},\s+{test}\)", text, re.M) is not None


class Table(unittest.TestCase):

    def test_every_row_is_whole(self):
        self.assertGreater(len(rows()), 40)
        for row in rows():
            with self.subTest(row[0]):
                self.assertEqual(len(row), 5)
                self.assertNotIn("", row)

    def test_every_test_is_there(self):
        for row in rows():
            for file, name in named_tests(row[TESTS_COLUMN]):
                with self.subTest(row[0], test=name):
                    self.assertTrue(is_there(file, name), f"{file} has no {name}")


if __name__ == "__main__":
    unittest.main()
