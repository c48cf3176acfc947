#!/usr/bin/env python3
"""Writes docs/coverage.md: what becomes of every function and of every kind of object at a pause.

usage: scripts/gen/coverage.py [--cxx COMPILER] [--include DIR] [--out FILE]

Everything is taken from what the code is made of: the toolkit's headers, the tables of functions (intercept/*.table and
intercept/libraries/*.table), the table of kinds (base/object_kinds.inc), and the messages in the sources. It fails when
a call that makes an object belongs to no kind, and when a kind claims what the tables of functions do not say.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "intercept"))
import gen_wrappers  # noqa: E402
import cuda_headers  # noqa: E402

DRIVER_TABLES = [ROOT / "intercept" / f"{name}.table" for name in ("memory", "objects", "device")]
WORDS = {"forward": "untouched", "pass": "forwarded", "handle": "forwarded", "hook_tracked": "tracked", "hook_mended": "mended",
         "taint": "refused", "refuse": "refused", "taint_reconstruct": "refused under reconstruct"}
TITLES = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt", "cudnn": "cuDNN", "nccl": "NCCL"}
MEANINGS = {
    "untouched": "has to do with no object that a pause would take: the program reaches the library itself",
    "forwarded": "has no state that a pause would lose: handles and device numbers are translated, the rest is the driver's or "
                 "the library's own answer",
    "tracked": "forwarded, and what it makes, changes or ends is recorded",
    "mended": "answered here, or with an argument or an answer changed, so that it is right for the program wherever it is",
    "refused": "forwarded; a program that has made the call successfully runs on, and is not paused under either strategy",
    "refused under reconstruct": "the same under strategy `reconstruct`; under `driver-checkpoint` the driver carries it"}
# Out-parameters that hold a handle although their type is a number.
NUMBERS = {"CUdeviceptr", "CUdeviceptr_v1", "CUtexObject", "CUsurfObject", "CUmemGenericAllocationHandle", "CUtensorMap",
           "CUgraphConditionalHandle", "CUipcMemHandle", "CUipcEventHandle"}
# Calls that return the handle of something that was there before, by the name of what they do.
ASKING = re.compile(r"Get(?!Mapped)|Find|Pop|Update|Map(?!ped)Resources|UnmapResources|Discard|Prefetch|Memcpy")


class CoverageError(Exception):
    """The tables do not fit each other."""


Kind = collections.namedtuple("Kind", "group id name makers restored refused")


def literal(text):
    """The value of adjacent C string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"')


def read_kinds(path=ROOT / "base" / "object_kinds.inc"):
    """The rows of the table of kinds, in its order."""
    texts = r'((?:\s*"(?:[^"\\]|\\.)*")+)\s*'
    row = re.compile(r"^STASIS_(OBJECT|MEMORY|LIBRARY|FOREIGN)_KIND\((\w+)," + ",".join([texts] * 4) + r"\)", re.M)
    text = path.read_text()
    kinds = [Kind(m[1], m[2], literal(m[3]), literal(m[4]).split(), literal(m[5]), literal(m[6])) for m in row.finditer(text)]
    if len(kinds) != len(re.findall(r"^STASIS_\w+_KIND\(", text, re.M)):
        raise CoverageError(f"{path}: a row that cannot be read")
    return kinds


def driver_functions(cxx, include):
    """(name without variants -> parameters, count of all functions)."""
    text = cuda_headers.preprocess(cxx, include)
    handles = gen_wrappers.find_handles(text)
    functions = {name: [gen_wrappers.Parameter(declaration, parameter, handles) for declaration, parameter in parameters]
                 for name, parameters in cuda_headers.prototypes(text).items()}
    return {name: p for name, p in functions.items() if gen_wrappers.base_name(name) == name}, sorted(functions)


def makes_object(name, parameters):
    return not ASKING.search(name) and any(
        p.is_returned() and not p.device or (p.pointers == 1 and not p.const and p.type in NUMBERS) for p in parameters)


def library_tables(folder=ROOT / "intercept" / "libraries"):
    """Library -> (function -> class)."""
    return {TITLES[path.stem]: read_library_table(path) for path in sorted(folder.glob("*.table"))}


def read_library_table(path):
    rows = {}
    for line in path.read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            rows[words[0]] = words[1]
    return rows


# ---- what the sources say

def function_bodies(text):
    """Pairs of a function's name and its text, of a source in the house style: bodies end with a brace in column one."""
    for match in re.finditer(r"^[\w:<>*&, ]+[ *&](\w+)\([^;{]*?\)[^;{]*\{(?:([^\n]*)\}\n|(.*?)^\})", text, re.M | re.S):
        yield match[1], match[2] or match[3] or ""


def conditional_refusals(sources):
    """Functions whose hooks refuse some of their uses: name -> "both" or "reconstruct"."""
    found, taint = {}, re.compile(r"Taint(?:Once)?\([^;]*?,\s*(true|false)\)")
    for source in sources:
        bodies = dict(function_bodies(source.read_text()))
        marks = {name: taint.findall(body) for name, body in bodies.items()}
        changed = True
        while changed:  # a hook may leave it to a function of the same file
            changed = False
            for name, body in bodies.items():
                for called in set(re.findall(r"\b(\w+)(?:<[^;]*?>)?\(", body)) & bodies.keys():
                    more = [mark for mark in marks[called] if mark not in marks[name]]
                    marks[name] += more
                    changed |= bool(more)
        found.update({name: "both" if "true" in m else "reconstruct" for name, m in marks.items()
                      if m and re.match("cu|nccl", name)})
    return found


STRINGS = r'(?:\s*"(?:[^"\\]|\\.)*"(?:\s*PRI\w+)?)+'


def refusal_messages(sources):
    """Texts of the refusals that depend on more than the call, with dots for what is filled in."""
    messages = set()
    for source in sources:
        text = source.read_text()
        for match in re.finditer(r"StatusCode::kUnsupported,([^;]*)\);", text):
            messages.add(sentence(match[1]))
        # Helpers that are given the reason.
        helper = re.finditer(r"\bRefuse\((?:\*?\w+,\s*)*(" + STRINGS + r")[,)]", text)
        messages.update(plain(literal(match[1])) for match in helper)
        messages.update(plain(match[1]) for match in re.finditer(r'return "([^"]*\bnode\b[^"]*\(cu[^"]*)";', text))
    return {message for message in messages if re.search(r"[a-z]", message)}


def sentence(expression):
    """The text that an expression makes: a format with its arguments, or a sum of strings."""
    whole = re.match(STRINGS, expression)
    if whole and "+" not in expression[whole.end():]:
        return plain(literal(whole[0]))
    parts = [plain(literal(part)) if '"' in part else "..." for part in re.split(r"\s\+\s", expression)]
    return re.sub(r"(\.\.\.\s*)+(?=\.\.\.)", "", "".join(parts))


def plain(text):
    """A message with its blanks to be filled in as dots."""
    return re.sub(r"(?:0x)?%(?:[-\w.*]*?(?:ll|z|h)?[a-zA-Z])?", "...", text)


def taint_sentence():
    """What the error says of a refused call, from where it is made."""
    text = (ROOT / "ghost" / "job_task.cc").read_text()
    match = re.search(r'"( has called )" \+ taint\.call \+ "([^"]*)"', text)
    if match is None:
        raise CoverageError("ghost/job_task.cc no longer says what call a program has made")
    return f"process N{match[1]}CALL{match[2]}"


# ---- checks

def check_makers(kinds, functions, known):
    """Every call that makes an object belongs to one kind, and every maker exists."""
    owner = {}
    for kind in kinds:
        for maker in kind.makers:
            if maker in owner:
                raise CoverageError(f"{maker} makes two kinds: {owner[maker]} and {kind.name}")
            if maker not in known:
                raise CoverageError(f"kind {kind.name}: no table has {maker}")
            owner[maker] = kind.name
    missing = sorted(name for name, parameters in functions.items() if makes_object(name, parameters) and name not in owner)
    if missing:
        raise CoverageError("calls that make an object of no kind in base/object_kinds.inc: " + ", ".join(missing))


def status_of(kind, rows, conditional):
    """restored, refused under reconstruct, or refused; and the makers that are refused, with the strategy."""
    classes = {maker: rows[maker] for maker in kind.makers if maker in rows}
    refused = {m: "under reconstruct" if c == "taint_reconstruct" else "always" for m, c in classes.items()
               if WORDS[c].startswith("refused")}
    if kind.restored:
        if classes and len(refused) == len(classes):
            raise CoverageError(f"kind {kind.name} says what is restored, but every call that makes one is refused")
        return "restored", refused
    # What is asked of an object that is refused is so with it.
    open_makers = [m for m in classes if m not in refused and m not in conditional and not ASKING.search(m)]
    if open_makers:
        raise CoverageError(f"kind {kind.name} does not say what is restored, but is made by " + ", ".join(open_makers))
    some = refused | {m: "always" if conditional[m] == "both" else "under reconstruct" for m in classes if m in conditional}
    return ("refused" if set(some.values()) == {"always"} else "refused under reconstruct"), some


# ---- the page

def row(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head, rows):
    return [row(*head), row(*["---"] * len(head)), *rows, ""]


def code(names):
    return ", ".join(f"`{name}`" for name in names)


class Coverage:
    """All that the page says."""

    def __init__(self, cxx, include):
        self.functions, every = driver_functions(cxx, include)
        self.rows = gen_wrappers.read_tables(DRIVER_TABLES)
        gen_wrappers.check_complete(every, self.rows)
        self.exports = len(every)
        self.libraries = library_tables()
        self.kinds = read_kinds()
        hooks = [*sorted((ROOT / "intercept").glob("hooks_*.cc")), *sorted((ROOT / "intercept" / "libraries").glob("*.cc"))]
        self.conditional = conditional_refusals(hooks)
        self.all_rows = dict(self.rows)
        for rows in self.libraries.values():
            self.all_rows.update(rows)
        check_makers(self.kinds, self.functions, self.all_rows)
        self.status = {kind.id: status_of(kind, self.all_rows, self.conditional) for kind in self.kinds}
        sources = [path for folder in ("replay", "vmm", "intercept/libraries")
                   for path in sorted((ROOT / folder).glob("*.cc")) if not path.stem.endswith("_test")]
        self.messages = refusal_messages(sources)

    def tables_of_functions(self):
        return {"driver": self.rows} | self.libraries

    def numbers(self):
        tables = self.tables_of_functions()
        counts = {name: collections.Counter(WORDS[c] for c in rows.values()) for name, rows in tables.items()}
        words = list(dict.fromkeys(WORDS.values()))
        by_status = collections.Counter(status for status, _ in self.status.values())
        lines = [f"Of {len(self.kinds)} kinds of objects **{by_status['restored']} are restored**, "
                 f"{by_status['refused under reconstruct']} refused under `reconstruct`, {by_status['refused']} refused. "
                 f"The driver's {len(self.rows)} functions have {self.exports} names, with the `_ptsz` and `_ptds` variants.", ""]
        lines += table(["", *tables], [row(word, *[counts[name][word] for name in tables]) for word in words]
                       + [row("**all**", *[len(rows) for rows in tables.values()])])
        lines += [f"* **{word}**: {MEANINGS[word]}." for word in words] + [""]
        return lines

    def kind_rows(self):
        for kind in self.kinds:
            status, makers = self.status[kind.id]
            refused = [kind.refused] if kind.refused else []
            for when in ("always", "under reconstruct"):
                names = [m for m, w in makers.items() if w == when]
                if names:
                    refused.append(code(names) + ("" if when == "always" else " (under `reconstruct`)"))
            made = code(m for m in kind.makers if m not in makers)
            yield row(kind.name, status, made, kind.restored, "; ".join(refused))

    def function_rows(self, rows):
        for name in sorted(rows, key=lambda n: (n.lower(), n)):
            some = self.conditional.get(name)
            note = {"both": "some uses are refused", "reconstruct": "some uses are refused under `reconstruct`", None: ""}[some]
            yield row(f"`{name}`", WORDS[rows[name]], note)

    def page(self):
        lines = ["# What is carried over a pause", "",
                 "*Generated by `scripts/gen/coverage.py` from the tables that the code is made of. A test fails when this page "
                 "is not what they say.*", "",
                 "The runtime API has no table: libcudart makes driver calls, and those are looked at. So it is with every "
                 "library that is linked statically, or that is not in one of the tables below: its handles are memory of the "
                 "process, and what it has on the device passes the driver API.", "", "## In numbers", "", *self.numbers()]
        lines += ["## Kinds of objects", "", *table(["kind", "is", "made by", "restored", "refused"], self.kind_rows())]
        lines += ["## What `stasis pause` says", "",
                  f"Of a call that is refused: `{taint_sentence()}`. The program runs on, undisturbed.", "",
                  "Of what depends on more than the call (`...` is filled in):", "",
                  *[f"* {message}" for message in sorted(self.messages)], ""]
        for name, rows in self.tables_of_functions().items():
            lines += [f"## Functions: {name}", "", *table(["function", "is", "but"], self.function_rows(rows))]
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--include", default="/usr/local/cuda/include")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "coverage.md")
    args = parser.parse_args()
    try:
        page = Coverage(args.cxx, args.include).page()
    except CoverageError as error:
        sys.exit(f"coverage.py: {error}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(page)


if __name__ == "__main__":
    main()
