"""Finds what is wrong with a cluster profile by itself, before nodes are compared with it, for `trainspec accept`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainspec_validate.model.finding import Severity, Unjudged
from trainspec_validate.pipeline.validation import validate

_OBSERVED = "observed_nodes"
"""What was found on nodes before, which an acceptance replaces."""
_LACKING = frozenset({"TS-CLU-020", "TS-CLU-035", "TS-CLU-040"})
"""Errors of what a profile lacks: its nodes can be compared without a fabric, and without evidence of figures."""
_SHOWN = 8


def errors(profile: Path) -> list[str]:
    """Errors by which a profile contradicts itself or cannot be read, in the order of its lines.

    Rules leave out what follows from a contradiction, so that nodes would pass that differ from one side of it.

    Raises:
        InputError: the file cannot be read.
    """
    place = profile.as_posix()
    wrong = [one for one in validate([place]).at_or_above(Severity.ERROR) if one.path == place]
    own = [one for one in wrong if one.pointer[:1] != (_OBSERVED,) and one.requirement not in _LACKING]
    lines = [(one.span.line if one.span is not None else 1, one) for one in own]
    return [
        f"{place}:{line}: {one.requirement}: {one.message}" for line, one in sorted(lines, key=lambda pair: pair[0])
    ]


def unjudged(profile: Path, found: Sequence[str]) -> Unjudged:
    """The note on an acceptance in spite of errors."""
    place = profile.as_posix()
    words = "; ".join(one.removeprefix(f"{place}:") for one in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    reason = f"contradicts itself, so that what depends on it is not judged: on line {words}{more}"
    return Unjudged(place, reason, "correct the profile", ())
