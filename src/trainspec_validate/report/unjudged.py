"""Says in words what was not judged and why, for every format that people read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from trainspec_validate.model.finding import Cause, DocumentSummary, Report, Unjudged
from trainspec_validate.report.excerpt import Painter
from trainspec_validate.report.places import json_pointer, position, relative
from trainspec_validate.system.digits import is_digits
from trainspec_validate.system.neutral import printable

_MAX_PATHS = 5
_MANY = 10
"""Ids from which on a line names their topics too."""
_TOPICS = {
    "BAT": "batches and schedules",
    "CKP": "checkpoints",
    "CLU": "the cluster",
    "CNF": "conformance",
    "COM": "communication",
    "DOC": "documents",
    "MEM": "memory",
    "NRG": "energy",
    "PAR": "rank count and speed",
    "PRC": "number formats",
    "REC": "recovery",
    "SEC": "security",
    "TEL": "telemetry",
    "TOP": "network and placement",
}
_ORIGINS = {
    "named": "found by its name",
    "only": "found as the only one of its kind",
    "namesake": "found because it has the name of a document of this run",
    "naming": "found because it names a document of this run",
    "unnamed": "found because it does not name what it is for, and there is only one",
    "stranded": "found because it names a document that is not there",
}


def counted(entry: Unjudged) -> str:
    """How many requirements an entry is about.

    >>> counted(Unjudged("plan.yaml", "names no cluster", "", ("TS-PAR-002",)))
    '1 requirement not judged'
    """
    number = len(entry.requirements)
    if not number:
        return "nothing judged" if entry.span is None else "not judged from there on"
    return f"{number} requirement{'' if number == 1 else 's'} not judged"


def label(entry: Unjudged) -> str:
    """The mark of an entry: its input lacks something, or nothing in this tool covers what the input has.

    >>> label(Unjudged("plan.yaml", "has experts", "", ("TS-MEM-020",), cause="uncovered"))
    'not covered'
    """
    return "not covered" if entry.cause == "uncovered" else "not judged"


def sentence(entry: Unjudged) -> str:
    """The reason, the number and the remedy, without the place and the ids."""
    remedy = f" ({entry.help})" if entry.help and not entry.recorded else ""
    recorded = f", recorded in {entry.recorded}" if entry.recorded else ""
    return printable(f"{entry.reason}: {counted(entry)}{recorded}{remedy}")


def short_ids(identifiers: Iterable[str]) -> str:
    """Ids by chapter, each chapter written once, and ids that follow each other as a range.

    >>> short_ids(["TS-CKP-009", "TS-PAR-002", "TS-PAR-005", "TS-PAR-006", "TS-PAR-007"])
    'TS-CKP-009; TS-PAR-002, 005 to 007'
    """
    chapters: dict[str, list[str]] = {}
    for identifier in sorted(identifiers):
        chapter, _, number = identifier.rpartition("-")
        chapters.setdefault(chapter, []).append(number)
    return printable("; ".join(f"{chapter}-{', '.join(_ranges(numbers))}" for chapter, numbers in chapters.items()))


def topics(identifiers: Sequence[str]) -> str:
    """Topics of many requirements, in words that lead to their ids; empty for few.

    >>> topics([f"TS-MEM-{number:03}" for number in range(9)] + ["TS-TOP-017"])
    'on memory, network and placement: '
    """
    if len(identifiers) < _MANY:
        return ""
    areas = dict.fromkeys(identifier.split("-")[1] for identifier in sorted(identifiers))
    return f"on {', '.join(_TOPICS.get(area, area) for area in areas)}: "


def _ranges(numbers: Sequence[str]) -> Iterator[str]:
    start = 0
    for end, number in enumerate(numbers):
        following = numbers[end + 1] if end + 1 < len(numbers) else ""
        if is_digits(number) and is_digits(following) and int(following) == int(number) + 1:
            continue
        yield from numbers[start : end + 1] if end - start < 2 else (f"{numbers[start]} to {number}",)
        start = end + 1


def groups(report: Report) -> list[list[Unjudged]]:
    """The entries by reason, help and requirements: the same lack of many documents is said once."""
    found: dict[tuple[str, str, str, str, tuple[str, ...]], list[Unjudged]] = {}
    for entry in ordered(report):
        key = (entry.cause, entry.reason, entry.help, entry.recorded, entry.requirements)
        found.setdefault(key, []).append(entry)
    return list(found.values())


def line(entries: Sequence[Unjudged], painter: Painter) -> str:
    """One line on entries of one reason, with the place of the first one, and the ids."""
    first, others = entries[0], _others(entries)
    place = painter.paint(position(first.path, first.span, first.pointer), "strong")
    mark = painter.paint(label(first), "warning")
    ids = f": {topics(first.requirements)}{short_ids(first.requirements)}" if first.requirements else ""
    also = f"; also in {others}" if others else ""
    return f"{place}: {mark}: {sentence(first)}{ids}{also}"


def block(entries: Sequence[Unjudged], painter: Painter) -> str:
    """The same for a terminal, one fact on each line."""
    first, others = entries[0], _others(entries)
    facts = {"what": counted(first), "help": printable(first.help), "also": others}
    if first.requirements:
        facts["what"] += f": {topics(first.requirements)}{short_ids(first.requirements)}"
    if first.recorded:
        facts |= {"recorded": printable(first.recorded), "help": ""}
    headline = painter.paint(printable(f"{first.path} {first.reason}"), "strong")
    return "\n".join(
        [
            f"{painter.paint(label(first), 'warning')}: {headline}",
            f" {painter.paint('-->', 'frame')} {position(first.path, first.span, first.pointer)}",
            *(
                f"  {painter.paint('=', 'frame')} {painter.paint(k, 'strong')}: {text}"
                for k, text in facts.items()
                if text
            ),
        ]
    )


def _others(entries: Sequence[Unjudged]) -> str:
    """The documents of all entries but the first."""
    paths = [entry.path for entry in entries[1:]]
    more = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
    return printable(", ".join(paths[:_MAX_PATHS]) + more)


def in_summary(report: Report) -> str:
    """Addition to the summary line; empty where everything was judged."""
    return _summed_up(report, "absent") + _summed_up(report, "uncovered")


def _summed_up(report: Report, cause: Cause) -> str:
    reasons = [entries for entries in groups(report) if entries[0].cause == cause]
    if not reasons:
        return ""
    number = len(requirements(report, cause))
    mark = label(reasons[0][0])
    words = f"{number} requirement{'' if number == 1 else 's'} {mark}" if number else "not all judged"
    if len(reasons) > 1:
        return f"; {words}, for {len(reasons)} reasons"
    first, *others = reasons[0]
    also = f" (and {len(others)} more)" if others else ""
    return printable(f"; {words}: {first.path}{also} {first.reason}")


def requirements(report: Report, cause: Cause | None = None) -> set[str]:
    """The requirements that were not judged on at least one document, for any cause or for one."""
    entries = (entry for entry in report.unjudged if cause in {None, entry.cause})
    return {requirement for entry in entries for requirement in entry.requirements}


def found_lines(documents: Iterable[DocumentSummary]) -> list[str]:
    """A line on each document that the user did not name and no path leads to."""
    ordered = sorted((document for document in documents if document.origin in _ORIGINS), key=lambda one: one.path)
    return [printable(f"{document.path}: judged too; {_ORIGINS[document.origin]}") for document in ordered]


def fingerprint(entry: Unjudged, base: str) -> str:
    """A number that stays the same over runs, free of lines."""
    recorded = ("recorded",) if entry.recorded else ()
    key = ("unjudged", relative(entry.path, base), json_pointer(entry.pointer), entry.reason, *recorded)
    return sha256(ascii(key).encode()).hexdigest()


def ordered(report: Report) -> list[Unjudged]:
    """The entries in an order that no order of the input changes."""
    return sorted(report.unjudged, key=lambda entry: (entry.path, json_pointer(entry.pointer), entry.reason))
