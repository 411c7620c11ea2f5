"""A document that is judged in pieces has the findings that it has in one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.examples import examples
from tests.mutation.operators import replaced
from tests.test_documents import BASES, damaged
from trainspec_validate.documents import schema

NODE = {"name": "n", "group": "compute", "nics": [{"name": f"mlx5_{i}", "rail": i % 8} for i in range(25)]}


def large(num_nodes: int) -> dict[str, Any]:
    nodes = [{**NODE, "name": f"node-{number}"} for number in range(num_nodes)]
    return {**BASES["ClusterProfile"], "layout": {"nodes": nodes}}


def told(data: Any) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(failure.requirement, failure.pointer) for failure in schema.failures("ClusterProfile", data)]


def places(kind: str, data: Any) -> list[tuple[str, str, bool]]:
    """What is wrong and where; a remedy may speak of the length of a list, which a piece does not have."""
    return sorted((f.requirement, repr(f.pointer), f.key) for f in schema.failures(kind, data))


@given(damaged())
@examples(300)
def test_pieces_have_the_findings_of_the_whole(case: tuple[str, Any]) -> None:
    kind, data = case
    whole = places(kind, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "MAX_VALUES_AT_ONCE", 0)
        patch.setattr(schema, "_MAX_ITEMS", 1)
        in_pieces = places(kind, data)
    assert in_pieces == whole


@pytest.mark.slow
def test_a_large_document_is_told_all_its_mistakes() -> None:
    data = large(2_000)
    wrong = [
        ("layout", "nodes", 0, "group"),
        ("layout", "nodes", 1_234, "name"),
        ("layout", "nodes", 1_999, "nics", 24, "rail"),
        ("num_nodes",),
    ]
    for pointer in wrong:
        data = replaced(data, pointer, [])
    data = replaced(data, ("layout", "nodes", 777, "nics", 21, "rial"), 3)
    expected = {("TS-DOC-007", pointer) for pointer in wrong}
    expected.add(("TS-DOC-005", ("layout", "nodes", 777, "nics", 21, "rial")))
    assert set(told(data)) == expected
    assert len(told(data)) == len(expected)


def test_a_large_good_document_has_no_finding() -> None:
    assert told(large(2_000)) == []


def test_what_is_too_much_to_list_says_so() -> None:
    data = replaced(large(2_000), ("layout", "nodes"), [7] * 40_000)
    *_, last = schema.failures("ClusterProfile", data)
    assert len(told(data)) == schema.MAX_ERRORS
    assert "more mistakes" in last.help


def test_a_mistake_in_a_mapping_that_was_cut_is_not_lost() -> None:
    labels: dict[str, Any] = {f"k{number}": "v" for number in range(40_000)}
    labels["k39999"] = 7
    data = replaced(BASES["ClusterProfile"], ("metadata", "labels"), labels)
    assert told(data) == [("TS-DOC-007", ("metadata", "labels", "k39999"))]
