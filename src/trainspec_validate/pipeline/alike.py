"""Makes one finding of those that say the same of many items of a list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from trainspec_validate.documents.types import UnknownValueError
from trainspec_validate.model.finding import Finding, Pointer, Related, Severity, sort_findings

MAX_ALIKE: Final = 3
"""Findings that say the same of items of one list and are listed one by one."""
_SHOWN: Final = 3
_SAME: Final = "the same"
_ITEM: Final = "[]"
Place = tuple[str, str, Pointer, bool, Severity]
Kind = tuple[Place, str, str]
"""Text and place of a finding, without the names and positions of the items that it is on."""


def merged(findings: Iterable[Finding], documents: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings, with one in place of many that say the same of items of a list.

    Args:
        findings: with their lines, and without those that are silenced, so that each place is silenced by itself.
        documents: plain values by path, which have the names of the items.
    """
    by_place: dict[Place, list[Finding]] = {}
    for finding in findings:
        by_place.setdefault(_place(finding), []).append(finding)
    for place, those in by_place.items():
        if len(those) <= MAX_ALIKE or _ITEM not in place[2]:
            yield from those
            continue
        by_kind: dict[Kind, list[Finding]] = {}
        for finding in those:
            by_kind.setdefault(kind_of(finding, documents), []).append(finding)
        for alike in by_kind.values():
            yield from [_one(sort_findings(alike))] if len(alike) > MAX_ALIKE else alike


def kind_of(finding: Finding, documents: Mapping[str, Any]) -> Kind:
    """Key of a finding; two of one kind differ in the items that they are on.

    Args:
        finding: as it was stamped; it needs no line.
        documents: plain values or typed documents by path.
    """
    message, remedy = finding.message, finding.help
    for path, pointer in dict.fromkeys(
        [(finding.path, finding.pointer), *((r.path, r.pointer) for r in finding.related)]
    ):
        for words in reversed([*_names(documents.get(path), pointer)]):
            message, remedy = words.sub(_ITEM, message), words.sub(_ITEM, remedy)
    return _place(finding), message, remedy


def _place(finding: Finding) -> Place:
    pattern = tuple(_ITEM if isinstance(step, int) else step for step in finding.pointer)
    return finding.requirement, finding.path, pattern, finding.points_at_key, finding.severity


def _names(value: Any, pointer: Pointer) -> Iterator[re.Pattern[str]]:
    """What a message calls the items on the way to a place: by their positions, and by names that have letters."""
    text = ""
    for step in pointer:
        value = _below(value, step)
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
        if not isinstance(step, int):
            continue
        yield re.compile(rf"(?<![\w.]){re.escape(text.removeprefix('.'))}")
        name = _below(value, "name")
        if isinstance(name, str) and name.strip("0123456789."):
            yield re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")


def _below(value: Any, step: str | int) -> Any:
    """The value of a key or an item, of plain values or of a typed document; None where there is none."""
    try:
        if isinstance(step, int) or isinstance(value, dict):
            return value[step]
        return getattr(value, step, None)
    except (UnknownValueError, KeyError, IndexError, TypeError):
        return None


def _one(alike: Sequence[Finding]) -> Finding:
    """The first finding, with the number and the first places of the others."""
    from trainspec_validate.documents.schema_messages import place_name  # noqa: PLC0415 - start-up

    first, others = alike[0], alike[1:]
    shown = others[:_SHOWN]
    listed = ", ".join(place_name(other.pointer) for other in shown)
    more = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
    related = (Related(_SAME, other.path, other.pointer, other.span) for other in shown)
    message = f"{first.message}; {_SAME} in {len(others):,} more places: {listed}{more}"
    return replace(first, message=message, related=(*first.related, *related))
