"""Reads `# trainspec: ignore[...]` comments and silences the findings that they name."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainspec_validate.checking.suppress.common import (
    NO_REASON,
    UNKNOWN,
    UNUSED,
    Complaint,
    Run,
    SuppressionResult,
    lookup,
    says_something,
)
from trainspec_validate.documents.load import LoadError, Source, comments, load_text, read_file
from trainspec_validate.model.finding import Finding, Span, Suppressed, SuppressionKind
from trainspec_validate.system.boundary import InputError, unreadable, untrusted
from trainspec_validate.system.budget import Limit
from trainspec_validate.system.repository import original_of

_MARK = "trainspec:"
_PRAGMA = re.compile(r"(?:^|(?<=\s))#\s*trainspec:\s*(?P<rest>[^#]*)")
_FORM = re.compile(r"(?P<kind>ignore-file|ignore)\s*\[(?P<words>[^\[\]]*)\](?P<reason>.*)", re.DOTALL)
MAX_IGNORES = int(Limit("a document", 1_000, "requirements that its comments name").most)
"""Requirements that the comments of one file may name; each costs a search for what a misspelt one means."""
_LINE = re.compile(r"[^\S\n]*+([^\n]?)[^\n]*+(?:\n|\Z)")
_HOW = "write `# trainspec: ignore[TS-PAR-001] reason`, or `ignore-file[...]` at the top of the file"


@dataclass(slots=True)
class Ignore:
    """One requirement that a comment silences."""

    requirement: str
    path: str
    line: int | None
    """Line whose findings it silences; None for the whole file."""
    reason: str
    span: Span
    counts: bool = True
    """False for one that only the judged state of the file has, and not the one in the directory of settings."""
    used: bool = False


def apply(findings: Iterable[Finding], run: Run) -> SuppressionResult:
    """Silence what the comments of the files name, and complain about comments that are wrong or idle."""
    tally = SuppressionResult()
    ignores: dict[tuple[str, str, int | None], list[Ignore]] = {}
    for source in run.sources.values():
        entries = list(_read(source, run))
        if run.tree is not None and entries:
            _compare(entries, source, run, run.tree)
        for entry in entries:
            if isinstance(entry, Complaint):
                tally.complaints.append(entry)
            else:
                ignores.setdefault((entry.path, entry.requirement, entry.line), []).append(entry)
    for finding in findings:
        line = finding.span.line if finding.span else 0
        keys = ((finding.path, finding.requirement, line), (finding.path, finding.requirement, None))
        matching = [ignores[key][0] for key in keys if key in ignores]
        for ignore in matching:
            ignore.used = True
            if ignore.counts:
                tally.suppressed.append(Suppressed(finding, SuppressionKind.INLINE, ignore.reason))
                break
        else:
            tally.kept.append(_refused(finding, run.tree) if matching else finding)
    unused = (ignore for group in ignores.values() for ignore in group if not ignore.used)
    tally.complaints.extend(_idle(ignore) for ignore in unused if run.judged(ignore.requirement, ignore.path))
    return tally


def _refused(finding: Finding, tree: str | None) -> Finding:
    """A finding that says why the comment on its line does not silence it."""
    why = f"the comment that ignores it is new against {tree} and silences nothing before it is merged"
    return replace(finding, help=f"{finding.help}; {why}" if finding.help else why)


def _compare(entries: Iterable[Ignore | Complaint], source: Source, run: Run, tree: str) -> None:
    """Let only those ignores count that the file in the directory of settings has too, on a line of the same text."""
    other = _same_file(source.path, tree)
    there = () if other is None else (entry for entry in _read(other, run) if isinstance(entry, Ignore))
    left = Counter(_identities(there, other or source))
    mine = [entry for entry in entries if isinstance(entry, Ignore)]
    for entry, identity in zip(mine, _identities(mine, source), strict=True):
        entry.counts = left[identity] > 0
        left[identity] -= 1


def _identities(ignores: Iterable[Ignore], source: Source) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What makes two ignores the same: requirement, what is silenced and where, and reason.

    What is silenced is the text of the line with all below it, where is the lines that it is below: another value there
    may have another finding, which is shown on the same line.
    """
    outline: _Outline | None = None
    for ignore in ignores:
        outline = outline or (None if ignore.line is None else _Outline(source.text))
        place = () if ignore.line is None or outline is None else outline.of(ignore.line)
        yield ignore.requirement, place, ignore.reason


class _Outline:
    """The lines of a text by their indentation."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._above = [-1] * len(self._lines)
        """Number of the line that each line is below, from 0; -1 for none."""
        self._end = [len(self._lines)] * len(self._lines)
        """Number of the first line that is not below each line."""
        pending: list[tuple[int, int]] = []
        for number, line in enumerate(self._lines):
            plain = line.lstrip(" ")
            if not plain or plain.startswith("#"):
                continue
            indent = len(line) - len(plain)
            while pending and pending[-1][0] >= indent:
                self._end[pending.pop()[1]] = number
            self._above[number] = pending[-1][1] if pending else -1
            pending.append((indent, number))

    def of(self, line: int) -> tuple[str, ...]:
        """The texts of a line, from 1, with all below it, and of the lines that it is below, without remarks there."""
        number = line - 1
        below = (text.strip() for text in self._lines[number + 1 : self._end[number]])
        found = [self._lines[number].strip(), "\n".join(text for text in below if text and not text.startswith("#"))]
        while (number := self._above[number]) >= 0:
            found.append(self._lines[number].partition(" #")[0].strip())
        return tuple(found)


def _same_file(path: str, tree: str) -> Source | None:
    """The file that has a path of the working directory in a copy of another state of it; None where there is none."""
    try:
        copy = Path(tree, Path(os.path.abspath(path)).relative_to(original_of(tree)))  # noqa: PTH100
        if not copy.resolve(strict=True).is_relative_to(Path(tree).resolve()):
            return None
        with untrusted(unreadable(copy.as_posix())):
            return load_text(read_file(copy), path)
    except (ValueError, OSError, LoadError, InputError):
        return None


def _idle(ignore: Ignore) -> Complaint:
    where = "the file" if ignore.line is None else f"line {ignore.line}"
    message = f"the ignore of {ignore.requirement} silences nothing: {where} has no such finding"
    return Complaint(UNUSED, ignore.path, message, "remove it", span=ignore.span)


def _read(source: Source, run: Run) -> Iterator[Ignore | Complaint]:
    content: Sequence[int] = ()
    number = 0
    for line, column, text in comments(source, _MARK):
        content = content or _content(source.text)
        for match in _PRAGMA.finditer(text):
            start = column + match.start()
            span = Span(line, start, line, start + len(match[0].rstrip()))
            for entry in _parse(match["rest"].strip(), source.path, span, content, run):
                number += 1
                if number > MAX_IGNORES:
                    message = (
                        f"comments of one file name at most {MAX_IGNORES:,} requirements; from here on none is read"
                    )
                    yield Complaint(NO_REASON, source.path, message, "use waivers or a baseline", span=span)
                    return
                yield entry


def _parse(text: str, path: str, span: Span, content: Sequence[int], run: Run) -> Iterator[Ignore | Complaint]:
    form = _FORM.fullmatch(text)
    words = [word.strip() for word in form["words"].split(",") if word.strip()] if form else []
    if form is None or not words:
        yield Complaint(NO_REASON, path, "this comment is not of the form that silences a finding", _HOW, span=span)
        return
    reason = form["reason"].strip(" \t:-\N{EN DASH}\N{EM DASH}")
    if not says_something(reason):
        named = f"{form['kind']}[{', '.join(words)}]"
        help_text = f"say why: `# trainspec: {named if len(named) < 200 else form['kind'] + '[...]'} reason`"
        yield Complaint(NO_REASON, path, "the ignore gives no reason, so it silences nothing", help_text, span=span)
        return
    target = None if form["kind"] == "ignore-file" else _target(span.line, content)
    if target is None and span.line > (content[0] if content else 0):
        message = "ignore-file appears below the first line of content, so it silences nothing"
        yield Complaint(NO_REASON, path, message, "move it to the top, or use `ignore[...]` on the line", span=span)
        return
    for word in dict.fromkeys(words):
        requirement, message, help_text = lookup(word, run.index)
        if requirement is None:
            yield Complaint(UNKNOWN, path, message, help_text, span=span)
        else:
            yield Ignore(requirement.id, path, target, reason, span)


def _target(line: int, content: Sequence[int]) -> int:
    """The line itself; of a comment that stands alone, the next line that is neither blank nor a comment."""
    place = bisect_left(content, line)
    return content[place] if place < len(content) else line


def _content(text: str) -> Sequence[int]:
    """The lines that hold more than a comment, a document marker or a directive."""
    lines = enumerate(_LINE.finditer(text), 1)
    return array("I", (n for n, line in lines if not line[0].startswith(("---", "%")) and line[1][:1] not in {"", "#"}))
