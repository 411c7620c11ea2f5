"""Removes imported facts that no document accepts: such a value becomes unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainspec_validate.interop.fragment import Fragment, Remark, Unknown
from trainspec_validate.interop.merge import Choice, FileRemark, Merged, merge
from trainspec_validate.interop.shape import fitting
from trainspec_validate.model.finding import Pointer

_MAX_TOLD = 20


def join(fragments: Sequence[Fragment], choice: Choice | None = None) -> Merged:
    """One document of the fragments, as `merge` makes it, with nothing in it that its schema refuses.

    Raises:
        ForeignFormatError: as `merge`.
    """
    merged = merge([without_refused(fragment) for fragment in fragments], choice)
    facts, reasons = _taken(merged.kind, merged.facts)
    if not reasons:
        return merged
    return replace(
        merged,
        facts=facts,
        unknown=(*merged.unknown, *_unknown(reasons)),
        remarks=(*merged.remarks, FileRemark("", _remark(reasons))),
        derived=_left(merged.derived, reasons),
        origins=_left(merged.origins, reasons),
    )


def without_refused(fragment: Fragment) -> Fragment:
    """The fragment with only what the schema of its kind takes; the rest is unknown, and a remark says why.

    >>> kept = without_refused(Fragment("ClusterProfile", "a", "a.txt", {"num_nodes": 0, "num_accelerators": 8}))
    >>> kept.facts, kept.unknown[0].reason
    ({'num_accelerators': 8}, 'the source gives what no document takes: 0 is below 1')
    """
    facts, reasons = _taken(fragment.kind, fragment.facts)
    if not reasons:
        return fragment
    return replace(
        fragment,
        facts=facts,
        unknown=(*fragment.unknown, *_unknown(reasons)),
        remarks=(*fragment.remarks, _remark(reasons)),
        derived=_left(fragment.derived or {}, reasons),
        defaults=frozenset(_left(dict.fromkeys(fragment.defaults), reasons)),
        inputs=_left(fragment.inputs, reasons),
    )


def _taken(kind: str, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Pointer, str]]:
    """What the schema takes, and why not the rest.

    With an item goes the list that it is of: its other items would move, and say something else.
    """
    reasons: dict[Pointer, str] = {}
    for found, reason in fitting(kind, facts)[1]:
        pointer = found
        while len(pointer) > 1 and isinstance(pointer[-1], int):
            pointer = pointer[:-1]
        reasons.setdefault(pointer, reason)
    return (_without(facts, (), reasons) if reasons else dict(facts)), reasons


def _unknown(reasons: Mapping[Pointer, str]) -> Iterable[Unknown]:
    return (Unknown(place, f"the source gives what no document takes: {why}") for place, why in reasons.items())


def _remark(reasons: Mapping[Pointer, str]) -> Remark:
    words = [f"{'.'.join(map(str, pointer))}: {reason}" for pointer, reason in reasons.items()]
    more = f" and {len(words) - _MAX_TOLD} more" if len(words) > _MAX_TOLD else ""
    return Remark(f"left unknown, because no document takes it: {'; '.join(words[:_MAX_TOLD])}{more}")


def _left(told: Mapping[Pointer, Any], reasons: Mapping[Pointer, str]) -> dict[Pointer, Any]:
    """What is told of places that are still there."""
    gone = {place for place in told if any(place[:length] in reasons for length in range(1, len(place) + 1))}
    return {place: what for place, what in told.items() if place not in gone}


def _without(value: Any, place: Pointer, reasons: Mapping[Pointer, str]) -> Any:
    if isinstance(value, Mapping):
        kept = {key: (*place, key) for key in value if (*place, key) not in reasons}
        left = {key: _without(value[key], there, reasons) for key, there in kept.items()}
        return {key: inner for key, inner in left.items() if inner != {} or value[key] == {}}
    if isinstance(value, list | tuple):
        return [_without(item, (*place, index), reasons) for index, item in enumerate(value)]
    return value
