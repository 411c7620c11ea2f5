"""Where groups lie: against a count of ranks by hand, for every order of the axes."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.placement import Span
from trainspec_validate.performance.forecast.spans import axis_spans
from trainspec_validate.performance.topology.roles import group_of

AXES = ("tensor", "context", "data", "pipeline")
DEGREES = st.sampled_from([1, 2, 3, 4])


def laid(degrees: dict[str, int], stage: int, shard: int | None = None) -> Layout:
    """A layout of these degrees that shares what the sharding stage says."""
    data, tensor, pipeline, context = (degrees[axis] for axis in ("data", "tensor", "pipeline", "context"))
    return Layout(data, tensor, pipeline, context, sharding_stage=stage, sharding_degree=shard)


def members(degrees: dict[str, int], order: tuple[str, ...], free: dict[str, range]) -> list[int]:
    """Ranks whose coordinates on the free axes are in their ranges and 0 elsewhere, numbered as the order says."""
    strides, stride = {}, 1
    for axis in order:
        strides[axis] = stride
        stride *= degrees[axis]
    found = product(*(free.get(axis, range(1)) for axis in order))
    return sorted(sum(strides[axis] * at for axis, at in zip(order, place, strict=True)) for place in found)


@given(st.tuples(DEGREES, DEGREES, DEGREES, DEGREES), st.permutations(AXES), st.integers(0, 3))
def test_groups_of_equal_weights_are_those_of_a_count(
    counts: tuple[int, int, int, int], permuted: list[str], stage: int
) -> None:
    order, degrees = tuple(permuted), dict(zip(AXES, counts, strict=True))
    both = degrees["data"] * degrees["context"]
    assume(both > 1)
    where = axis_spans(laid(degrees, stage), order)["data"]
    ranks = members(degrees, order, {axis: range(degrees[axis]) for axis in ("data", "context")})
    assert where.degree == len(ranks) == both
    steps = {after - before for before, after in pairwise(ranks)}
    if len(steps) == 1:
        assert list(group_of(where, 0)) == ranks
    else:
        assert min(steps) <= where.stride <= max(steps)
        assert where.num_ranks >= ranks[-1] + 1


@pytest.mark.parametrize("order", list(permutations(AXES)))
@pytest.mark.parametrize("shard", [1, 2, 4])
def test_ranks_that_share_a_copy_are_the_nearest(order: tuple[str, ...], shard: int) -> None:
    degrees = {"tensor": 2, "context": 1, "data": 8, "pipeline": 3}
    spans = axis_spans(laid(degrees, 1, shard), order)
    near = members(degrees, order, {"data": range(shard)})
    assert ("data" in spans) == (shard > 1)
    assert shard == 1 or list(group_of(spans["data"], 0)) == near
    assert list(group_of(spans["replica"], 0)) == members(degrees, order, {"data": range(0, 8, shard)})


def test_a_degree_of_all_copies_leaves_no_replica() -> None:
    spans = axis_spans(Layout(data=8, context=2, sharding_stage=2, sharding_degree=8), AXES)
    assert spans == {"context": Span(1, 2), "data": Span(1, 16)}


def test_nothing_sharded_reduces_over_all() -> None:
    spans = axis_spans(Layout(data=8, sharding_stage=0, sharding_degree=2), AXES)
    assert spans == {"data": Span(1, 8)}


@given(
    stage=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 8])),
    expert=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 4]),
    whole=st.booleans(),
)
def test_experts_fill_the_ranks_of_a_stage(
    stage: tuple[int, int, int], expert: int, pipeline: int, *, whole: bool
) -> None:
    tensor, context, data = stage
    inner = tensor if whole else 1
    size = tensor * context * data
    assume(size % (expert * inner) == 0)
    layout = Layout(*(data, tensor, pipeline, context, expert), expert_tensor=inner)
    orders: list[tuple[str, ...]] = [("tensor", "context", "expert", "data", "pipeline")]
    orders += [("tensor", "context", "expert", "pipeline")] if data == 1 else []
    orders += [("tensor", "context", "data", "pipeline")] if expert == 1 else []
    for order in orders:
        spans = axis_spans(layout, order)
        near, copies = spans.get("expert", Span(inner, 1)), spans.get("expert-data", Span(inner * expert, 1))
        assert near == Span(inner, expert)
        assert copies == Span(inner * expert, size // (inner * expert))
        assert copies.num_ranks == size


@pytest.mark.parametrize("axis", ["tensor", "context", "data", "pipeline", "expert"])
def test_an_axis_in_use_has_a_place_in_the_order(axis: str) -> None:
    layout = Layout(data=2, tensor=2, context=2, pipeline=2, expert=2)
    order = tuple(name for name in (*AXES, "expert") if name != axis)
    with pytest.raises(ValueError, match=f"leaves out {axis}"):
        axis_spans(layout, order)
