#!/usr/bin/env python3
"""Writes the reference of the command line, cli-reference.md, and man pages, from the options as the programs
have them; the pages lie in man/, and as packages have them in man-packed/.

usage: scripts/gen/cli_reference.py --model FILE --version V --out FOLDER [--help-of SECTION:NAME:COMMAND...]

FILE is what `stasis-reference` prints. --help-of adds a program that explains itself: COMMAND --help is its page. Fails
where a verb or an option has no text.
"""
import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys

SECTIONS = {"stasis": 1, "stasisd": 8, "stasis-schedd": 8}
HEADINGS = {"Example": "EXAMPLES", "Examples": "EXAMPLES", "Environment": "ENVIRONMENT"}


class MissingText(Exception):
    """A verb or an option that nobody would understand."""


def check(program, path=""):
    """Every program, verb and option says what it is."""
    path = (path + " " + program["name"]).strip()
    if not program["what"].strip():
        raise MissingText(f"{path}: no text")
    for option in program["options"]:
        if not option["what"].strip():
            raise MissingText(f"{path} {option['names'][-1]}: no text")
    for verb in program["verbs"]:
        check(verb, path)


def blocks(footer):
    """(heading or "", paragraphs of prose, lines to be kept as they are), in the order of the text."""
    result = [("", [], [])]
    for line in footer.split("\n"):
        heading = HEADINGS.get(line.rstrip(":")) if line.endswith(":") else None
        if heading:
            result.append((heading, [], []))
        elif line.startswith(" "):
            result[-1][2].append(line)
        elif result[-1][2] and line.strip():  # prose again
            result.append(("", [line], []))
        elif line.strip():
            result[-1][1].append(line)
        elif not result[-1][2]:
            result[-1][1].append("")
    return [block for block in result if any(block[1]) or block[2]]


def argument_of(option):
    """What stands behind the option: KIND, or the values that it may have."""
    values = re.search(r"\{(.*?)\}", option["argument"])
    if values:
        return values[1].replace(",", "|")
    return re.sub(r":[^:]*[ \[{].*", "", option["argument"])


def synopsis(path, program):
    words = [path]
    if program["verbs"]:
        words.append("VERB ...")
    elif program["options"]:
        words.append("[OPTIONS]")
    for option in program["options"]:
        if option["position"]:
            name = option["names"][0] + ("..." if option["many"] else "")
            words.append(name if option["required"] else f"[{name}]")
    if program["program"]:
        words.append("-- PROGRAM [ARGUMENTS...]")
    return " ".join(words)


def flags(program):
    return [option for option in program["options"] if not option["position"]]


def positions(program):
    return [option for option in program["options"] if option["position"]]


# Markdown

def cell(text):
    return text.replace("|", "\\|").replace("<", "\\<").replace("\n", " ")


def markdown_option(option):
    argument = argument_of(option)
    names = ", ".join(option["names"]) + (f" {argument}" if argument and not option["position"] else "")
    required = " Required." if option["required"] and not option["position"] else ""
    return f"| `{cell(names)}` | {cell(option['what'])}{required} |"


def markdown_footer(footer):
    lines = []
    for heading, prose, kept in blocks(footer):
        if heading:
            lines += [f"**{heading.capitalize()}**", ""]
        if any(prose):
            lines += [line.replace("<", "\\<") for line in prose] + [""]
        if kept:
            lines += ["```"] + [line[2:] if line.startswith("  ") else line for line in kept] + ["```", ""]
    return lines


def markdown(program, path, depth):
    path = (path + " " + program["name"]).strip()
    lines = [f"{'#' * depth} {path}", "", program["what"].replace("\n", " "), "", "```", synopsis(path, program), "```", ""]
    options = positions(program) + flags(program)
    if options:
        lines += ["| | |", "|---|---|"] + [markdown_option(option) for option in options] + [""]
    lines += markdown_footer(program["footer"])
    for verb in program["verbs"]:
        lines += markdown(verb, path, min(depth + 1, 4))
    return lines


def markdown_page(programs, helps):
    lines = ["# Command line reference", "", "Made from the options as the programs have them. The guide is cli.md.", ""]
    for program in programs:
        lines += markdown(program, "", 2)
    for _, name, text in helps:
        lines += [f"## {name}", "", "```", text.strip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


# man(7)

def roff(text):
    """A line of text in which nothing is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def man_options(options):
    lines = []
    for option in options:
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"])
        argument = argument_of(option) if not option["position"] else ""
        lines += [".TP", names + (f" \\fI{roff(argument)}\\fR" if argument else ""), roff(option["what"])]
    return lines


def man_footer(footer):
    lines, section = [], ""
    for heading, prose, kept in blocks(footer):
        if (heading or "NOTES") != section:
            section = heading or "NOTES"
            lines.append(f".SH {section}")
        paragraph = True
        for line in prose:
            if not line.strip():
                lines += [] if paragraph else [".PP"]
                paragraph = True
            else:
                lines.append(roff(line))
                paragraph = False
        if lines and lines[-1] == ".PP":
            lines.pop()
        if kept:
            lines += [".PP", ".nf"] if any(prose) else [".nf"]
            lines += [roff(line) for line in kept] + [".fi"]
    return lines


def man_body(program, path, heading):
    """The options of a verb, and of the verbs below it."""
    lines = []
    if positions(program):
        lines += [".SH ARGUMENTS"] if heading else []
        lines += man_options(positions(program))
    if flags(program):
        lines += [".SH OPTIONS"] if heading else []
        lines += man_options(flags(program))
    for verb in program["verbs"]:
        below = f"{path} {verb['name']}"
        lines += [f".SH {roff(below).upper()}", ".nf", roff(synopsis(below, verb)), ".fi", ".PP", roff(verb["what"]) + "."]
        lines += man_body(verb, below, False)
        for kind, prose, kept in blocks(verb["footer"]):
            lines += [".PP"] + [roff(line) for line in prose if line] if any(prose) else []
            lines += [".PP"] + (["Examples:"] if kind == "EXAMPLES" else []) + [".nf"] + [roff(line) for line in kept] + [".fi"] if kept else []
    return lines


def man_page(name, section, what, synopsis_text, body, see, version):
    first = what.strip().split("\n")[0].rstrip(".")
    lines = [f'.TH {roff(name).upper()} {section} "" "Stasis {version}" "Stasis"', ".SH NAME", f"{roff(name)} \\- {roff(first)}",
             ".SH SYNOPSIS", ".nf", roff(synopsis_text), ".fi"]
    rest = what.strip().split("\n")[1:]
    if rest:
        lines += [".SH DESCRIPTION"] + [roff(line) for line in rest]
    lines += body
    if see:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{roff(page)}\\fR({number})" for page, number in see)]
    return "\n".join(lines) + "\n"


def man_pages(programs, helps, version):
    """{"man1/stasis.1": text, ...}"""
    pages = {}
    command = programs[0]
    others = [(program["name"], SECTIONS[program["name"]]) for program in programs[1:]]
    verbs = [(f"{command['name']}-{verb['name']}", 1) for verb in command["verbs"]]
    for program in programs:
        name, section = program["name"], SECTIONS[program["name"]]
        body = []
        if program["verbs"]:
            body.append(".SH VERBS")
            for verb in program["verbs"]:
                body += [".TP", f"\\fB{roff(verb['name'])}\\fR", roff(verb["what"]) + f"; see \\fB{roff(name + '-' + verb['name'])}\\fR(1)"]
        body += man_body({**program, "verbs": []}, name, True) + man_footer(program["footer"])
        see = (verbs if program is command else [(command["name"], 1)]) + [page for page in others if page[0] != name]
        pages[f"man{section}/{name}.{section}"] = man_page(name, section, program["what"], synopsis(name, program), body, see, version)
    for verb in command["verbs"]:
        path, name = f"{command['name']} {verb['name']}", f"{command['name']}-{verb['name']}"
        own = next((text for _, program, text in helps if program == name), None)
        body = help_body(own) if own else man_body(verb, path, True) + man_footer(verb["footer"])
        pages[f"man1/{name}.1"] = man_page(name, 1, verb["what"], synopsis(path, verb), body, [(command["name"], 1)], version)
    for section, name, text in helps:
        path = f"man{section}/{name}.{section}"
        if path not in pages:
            what = re.sub(rf"^{re.escape(name)}: ", "", text.strip().split("\n")[0])
            what = HELP_NAMES.get(name, what)
            pages[path] = man_page(name, section, what, f"{name} ...", help_body(text), [(command["name"], 1)], version)
    return pages


# What the first line of --help does not say.
HELP_NAMES = {"stasis-step": "a task of Slurm as a task of Stasis"}


def help_body(text):
    return [".SH DESCRIPTION", ".nf"] + [roff(line) for line in text.strip().split("\n")] + [".fi"]


def check_help(name, text):
    """As above: what is listed has words beside or below it."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        beside = re.search(r"\S(?: {2,}| \.\.\. )\S", line.strip())
        if re.match(r"^  -\S", line) and not beside and not re.match(r"^ {20,}\S", (lines + [""])[at + 1]):
            raise MissingText(f"{name} {line.strip()}: no text")


def read_help(argument):
    section, name, command = argument.split(":", 2)
    text = subprocess.run([command, "--help"], check=True, capture_output=True, text=True).stdout
    text = text.replace(command, name)
    check_help(name, text)
    return int(section), name, text


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--help-of", nargs="*", default=[])
    options = parser.parse_args(arguments)
    programs = json.loads(options.model.read_text())
    try:
        for program in programs:
            check(program)
        helps = [read_help(argument) for argument in options.help_of]
    except MissingText as error:
        sys.exit(f"cli_reference.py: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cli-reference.md").write_text(markdown_page(programs, helps))
    for path, text in man_pages(programs, helps, options.version).items():
        page, packed = options.out / "man" / path, options.out / "man-packed" / (path + ".gz")
        for file, content in ((page, text.encode()), (packed, gzip.compress(text.encode(), 9, mtime=0))):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
