"""Where ranks of a group lie, compared with a plain enumeration of ranks."""

from __future__ import annotations

import doctest
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs import placement
from trainspec_validate.performance.costs.placement import Span, holds_whole_groups, members_in_block, span

AXES = ("tensor", "context", "data", "pipeline")


def groups(order: list[str], degrees: dict[str, int], axis: str) -> list[list[int]]:
    """The groups of an axis, by walking over all coordinates with the first axis fastest."""
    found: dict[tuple[int, ...], list[int]] = {}
    outer_first = list(reversed(order))
    for rank, place in enumerate(product(*(range(degrees[name]) for name in outer_first))):
        others = tuple(c for name, c in zip(outer_first, place, strict=True) if name != axis)
        found.setdefault(others, []).append(rank)
    return list(found.values())


layouts = st.tuples(
    st.permutations(AXES),
    st.fixed_dictionaries({axis: st.integers(1, 4) for axis in AXES}),
    st.sampled_from(AXES),
)


def test_worked_examples() -> None:
    result = doctest.testmod(placement)
    assert result.attempted >= 3
    assert result.failed == 0


@given(layouts)
def test_span_is_that_of_the_enumeration(layout: tuple[list[str], dict[str, int], str]) -> None:
    order, degrees, axis = layout
    found = span(order, degrees, axis)
    for members in groups(order, degrees, axis):
        assert members == [members[0] + i * found.stride for i in range(found.degree)]


@given(layouts, st.integers(1, 64))
def test_holding_is_that_of_the_enumeration(layout: tuple[list[str], dict[str, int], str], block: int) -> None:
    order, degrees, axis = layout
    found = span(order, degrees, axis)
    all_groups = groups(order, degrees, axis)
    inside = all(members[0] // block == members[-1] // block for members in all_groups)
    total = sum(len(members) for members in all_groups)
    if holds_whole_groups(found, block, total):
        assert inside
    elif found.degree > 1 and total % block == 0:
        assert not inside


@given(layouts, st.integers(1, 64))
def test_members_are_never_underestimated(layout: tuple[list[str], dict[str, int], str], block: int) -> None:
    order, degrees, axis = layout
    found = span(order, degrees, axis)
    aligned = max(
        sum(member // block == members[0] // block for member in members) for members in groups(order, degrees, axis)
    )
    if block % found.stride == 0:
        assert members_in_block(found, block) >= aligned


def test_an_axis_outside_the_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="expert is not in the order"):
        span(["tensor"], {"tensor": 8}, "expert")
    with pytest.raises(ValueError, match="below 1"):
        span(["tensor"], {"tensor": 0}, "tensor")


def test_blocks_without_ranks_are_errors() -> None:
    with pytest.raises(ValueError, match="below 1"):
        holds_whole_groups(Span(1, 8), 0, 8)
    with pytest.raises(ValueError, match="below 1"):
        members_in_block(Span(1, 8), 0)
