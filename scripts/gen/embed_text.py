"""Writes a text file as a C++ string literal, to be included where one is expected.

usage: embed_text.py TEXT OUT
"""

import sys


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        text = file.read()
    with open(sys.argv[2], "w", encoding="ascii") as out:
        out.write('R"embedded(' + text + ')embedded"\n')


if __name__ == "__main__":
    main()
