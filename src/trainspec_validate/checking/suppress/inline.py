"""Reads `# trainspec: ignore[...]` comments and silences the findings that they name."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
from trainspec_validate.documents.load import Source, comments
from trainspec_validate.model.finding import Finding, Span, Suppressed, SuppressionKind
from trainspec_validate.system.budget import Limit

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
    used: bool = False


def apply(findings: Iterable[Finding], run: Run) -> SuppressionResult:
    """Silence what the comments of the files name, and complain about comments that are wrong or idle."""
    tally = SuppressionResult()
    ignores: dict[tuple[str, str, int | None], list[Ignore]] = {}
    for source in run.sources.values():
        for entry in _read(source, run):
            if isinstance(entry, Complaint):
                tally.complaints.append(entry)
            else:
                ignores.setdefault((entry.path, entry.requirement, entry.line), []).append(entry)
    for finding in findings:
        line = finding.span.line if finding.span else 0
        for key in ((finding.path, finding.requirement, line), (finding.path, finding.requirement, None)):
            if key in ignores:
                ignore = ignores[key][0]
                ignore.used = True
                tally.suppressed.append(Suppressed(finding, SuppressionKind.INLINE, ignore.reason))
                break
        else:
            tally.kept.append(finding)
    unused = (ignore for group in ignores.values() for ignore in group if not ignore.used)
    tally.complaints.extend(_idle(ignore) for ignore in unused if run.judged(ignore.requirement, ignore.path))
    return tally


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
