"""Reads the scripts that a shell script hands to `sbatch`, `bash` or `ssh` as documents between `<<END` and `END`.

A document that is read takes its place in the script, in a subshell; where its words would have other values than
there, it stays unread, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.model.values import cut_to

_MAX_DOCUMENTS = 100
_MAX_LINE = 4_096
_HEAD = re.compile(
    r"(?P<before>.*?)(?<!<)<<(?P<dash>-?)[ \t]*(?P<quote>\\|(?P<mark>['\"]))?(?P<end>\w{1,40})(?(mark)(?P=mark))"
    r"(?P<after>.*)"
)
_RUNS = re.compile(
    r"(?:^|[;&|(]|\b(?:then|do|else)\b)[ \t]*(?:\w+=\S*[ \t]+)*(?:sudo[ \t]+|exec[ \t]+|time[ \t]+)?"
    r"(?P<program>sbatch|qsub|bsub|bash|sh|zsh|ssh|srun)(?P<words>(?:[ \t]+[^\s;&|<>]+)*)[ \t]*$"
)
_PIPED = re.compile(r"^[ \t]*\|[ \t]*(?P<program>sbatch|qsub|bash|sh|ssh)\b")
_WRITTEN = re.compile(r"(?:(?<![0-9>&])>\|?[ \t]*|\btee[ \t]+)[\"']?(?P<file>[^\s\"'>|;&-][^\s\"'>|;&]{0,300})")
_SHELL = re.compile(r"(?:^|[\s\"'])(?:ba|z)?sh\b")
_LAUNCH = re.compile(r"\.py\b|\btorchrun\b|\bdeepspeed\b|\baccelerate[ \t]+launch\b")
"""What a document has that starts a program of training."""
_ASSIGNED = re.compile(
    r"(?m)(?:^|[;&|({]|\b(?:export|local|declare|readonly|do|then|else))[ \t]*(\w+)\+?=|\bfor[ \t]+(\w+)\b"
    r"|\bread\b[^\n]*?[ \t](\w+)[ \t]*$"
)
_EXPORTED = re.compile(r"(?m)\bexport[ \t]+(?:-\w+[ \t]+)*([^\n;&|#]{1,2000})")
_USED = re.compile(r"(?<!\\)\$\{?[!#]?(\w+)")
_PARAMETERS = re.compile(r"(?<!\\)\$\{?(?:[0-9@*#])")
_LATER = re.compile(r"\\\$\{?[!#]?(\w+)")
"""A variable that the script itself takes, when it runs."""
_ESCAPED = re.compile(r"\\([$`\\])")


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of a script, by the places of its lines."""

    head: int
    """Of the line that begins it, and its last line with the word that ends it."""
    last: int
    words: str
    """The command that takes it."""
    is_quoted: bool
    body: tuple[str, ...]


def with_run_documents(text: str) -> tuple[str, list[tuple[int, str]]]:
    r"""A script with the documents that it runs in their places, and the others that start a program, by line.

    Lines keep their numbers.

    >>> with_run_documents("LR=1\nsbatch <<END\npython a.py --lr $LR\nEND\n")[0]
    'LR=1\n(\npython a.py --lr $LR\n)\n'
    >>> with_run_documents("LR=1\nssh node <<'END'\npython a.py --lr $LR\nEND\n")[1][0][0]
    2
    """
    if "<<" not in text:
        return text, []
    lines = text.split("\n")
    unread: list[tuple[int, str]] = []
    for document in _documents(lines):
        body = "\n".join(document.body)
        if not _LAUNCH.search(body):
            continue
        why = _why_unread(document, body, lines)
        if why:
            unread.append((document.head + 1, f"the document of `{cut_to(document.words, 60)}` is not read: {why}"))
            continue
        own = document.body if document.is_quoted else tuple(_ESCAPED.sub(r"\1", line) for line in document.body)
        lines[document.head : document.last + 1] = ["(", *own, ")"]
    return "\n".join(lines), unread


def _documents(lines: Sequence[str]) -> Iterator[_Document]:
    """The documents of a script that end, one after the other."""
    at = num = 0
    while at < len(lines) and num < _MAX_DOCUMENTS:
        line = lines[at]
        found = _HEAD.fullmatch(line[:_MAX_LINE]) if "<<" in line and not line.lstrip().startswith("#") else None
        end = found["end"] if found else ""
        last = next((k for k in range(at + 1, len(lines)) if _is_end(lines[k], end, bool(found and found["dash"]))), 0)
        if found is None or not last:
            num += found is not None
            at += 1
            continue
        num += 1
        words = f"{found['before'].strip()} <<{end}{found['after']}".strip()
        yield _Document(at, last, words, found["quote"] is not None, tuple(lines[at + 1 : last]))
        at = last + 1


def _is_end(line: str, end: str, is_indented: bool) -> bool:
    return bool(end) and (line.lstrip("\t") if is_indented else line) == end


def _why_unread(document: _Document, body: str, lines: Sequence[str]) -> str:
    """Why the lines of a document cannot take its place; empty where they can."""
    before, _, after = document.words.partition(" <<")
    program = _program(before, after)
    if not program and (written := _WRITTEN.search(document.words)):
        program = _runner_of(written["file"], [*lines[: document.head], *lines[document.last + 1 :]])
    if not program:
        return "no command that this reader knows runs it"
    outer = "\n".join([*lines[: document.head], *lines[document.last + 1 :]])
    assigned, used = _names(_ASSIGNED, body), set(_USED.findall(body))
    if not document.is_quoted:
        both = sorted(assigned & used)
        if both:
            return f"it assigns {both[0]}, which has its value before"
        used = set(_LATER.findall(body))
    known = _names(_ASSIGNED, outer)
    if program != "ssh":  # a job and a shell get what is exported
        known -= {name for names in _EXPORTED.findall(outer) for name in re.findall(r"\w+", names)}
    foreign = sorted((used - assigned) & known)
    if foreign:
        return f"it takes {foreign[0]} from its environment, where the script does not put it"
    is_passed = document.is_quoted and _PARAMETERS.search(body) is not None
    return "it takes words of its command line" if is_passed else ""


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    return {name for found in pattern.findall(text) for name in found if name}


def _program(before: str, after: str) -> str:
    """The program that runs a document: of the command that takes it, or that a pipe hands it to."""
    if "|" in after and (piped := _PIPED.match(after[after.index("|") :])):
        return piped["program"]
    found = _RUNS.search(before)
    if found is None:
        return ""
    words = found["words"].split()
    if found["program"] in {"bash", "sh", "zsh"}:
        is_read = all(word.startswith("-") for word in words) or any(re.fullmatch(r"-\w*s\w*", word) for word in words)
        return "bash" if is_read and "-c" not in words else ""
    if found["program"] == "srun":
        return "bash" if words and _SHELL.search(found["words"]) else ""
    if found["program"] == "ssh":
        return "ssh" if words else ""
    return (
        found["program"]
        if all(word.startswith("-") or "=" in word or not word.endswith(".sh") for word in words)
        else ""
    )


def _runner_of(file: str, lines: Sequence[str]) -> str:
    """The program that a script runs a file with that it writes; empty where it does not run it."""
    name = re.escape(file.removeprefix("./"))
    run = re.compile(
        rf"(?:^|[;&|(]|\s)(?P<program>(?:sbatch|qsub|bash|sh|zsh|source|srun|ssh)\b|\.(?=\s))"
        rf"[^\n;&|<>]*?[\s\"'](?:\./)?{name}(?=[\s\"';&|)]|$)"
        rf"|(?:^|[;&|(])[ \t]*(?:\./|/[^\s]{{0,300}}?){name}(?=[\s;&|]|$)"
    )
    for line in lines:
        if not line.lstrip().startswith("#") and (found := run.search(line[:_MAX_LINE])):
            return found["program"] or "bash"
    return ""
