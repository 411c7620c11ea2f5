"""Any optional number of a cluster may be absent, null or 0: no rule raises, and none calls a figure wrong for it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from many import Complaint, complaints

from trainspec_validate.documents import schema
from trainspec_validate.documents.load import load_file
from trainspec_validate.model.finding import Severity

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "spec" / "v1" / "base" / "cluster.yaml"
EXAMPLES = sorted((ROOT / "examples" / "clusters").glob("*.yaml"))
Place = tuple[str | int, ...]
_ABSENT: Final = object()
_FEW: Final = 2
"""Entries of a list that are changed: further ones are judged as they are."""

DEFAULT: Final = "the key has a meaning where it is left out, which its description states"
OWED: Final = "the requirement is that the number, or what it comes with, is stated"
NOUGHT: Final = "0 contradicts the other figures"
ANSWERS: Final = {
    ("TS-CLU-005", "num_ranks_per_accelerator", _ABSENT): DEFAULT,
    ("TS-CLU-012", "used_num_accelerators", _ABSENT): DEFAULT,
    ("TS-TOP-015", "num_planes", _ABSENT): DEFAULT,
    ("TS-CLU-035", "node_days", _ABSENT): OWED,
    ("TS-CLU-035", "num_failures", _ABSENT): OWED,
    ("TS-CLU-044", "num_domains", _ABSENT): OWED,
    ("TS-TOP-001", "plane_bandwidth_bytes_per_second", _ABSENT): OWED,
    ("TS-CLU-014", "num_switches", 0): NOUGHT,
    ("TS-CLU-032", "capacity_bytes", 0): NOUGHT,
    ("TS-CLU-036", "num_failures", 0): NOUGHT,
    ("TS-CLU-055", "message_bytes", 0): NOUGHT,
    ("TS-TOP-010", "num_up_ports", 0): NOUGHT,
    ("TS-TOP-013", "num_up_ports", 0): NOUGHT,
}
"""Errors that are right, by requirement, key and value, with why."""


def numbers(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where the numbers of a document are, in the first entries of its lists."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:_FEW]):
            yield from numbers(inner, (*place, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


def changed(data: dict[str, Any], place: Place, value: object) -> dict[str, Any] | None:
    """The document with another value, or without the key; None where its form forbids that."""
    found = copy.deepcopy(data)
    holder: Any = found
    for step in place[:-1]:
        holder = holder[step]
    if value is not _ABSENT:
        holder[place[-1]] = value
    elif isinstance(holder, dict):
        del holder[place[-1]]
    else:
        return None
    return None if any(True for _ in schema.failures(found["kind"], found)) else found


def errors(path: Path, data: dict[str, Any]) -> set[Complaint]:
    """The errors of a cluster judged by itself."""
    return {place for place, severity in complaints({str(path): data}).items() if severity is Severity.ERROR}


def new_errors(path: Path) -> tuple[int, set[tuple[str, str, str]]]:
    """How many changes were judged, and the errors that no answer covers: requirement, key and value."""
    data = dict(load_file(path).data)
    before, num, found = errors(path, data), 0, set()
    for place in numbers(data):
        for value in (_ABSENT, None, 0):
            now = changed(data, place, value)
            if now is None:
                continue
            num += 1
            key = str(place[-1])
            found |= {
                (requirement, key, "absent" if value is _ABSENT else str(value))
                for requirement, *_ in errors(path, now) - before
                if (requirement, key, value) not in ANSWERS
            }
    return num, found


def test_the_base_cluster_without_each_of_its_numbers() -> None:
    num, found = new_errors(BASE)
    assert num > 50
    assert found == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_without_each_of_its_numbers(path: Path) -> None:
    assert new_errors(path)[1] == set()
