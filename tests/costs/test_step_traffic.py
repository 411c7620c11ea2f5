"""Messages of a step, counted by hand for each axis."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs import step_traffic
from trainspec_validate.performance.costs.bandwidth import OPERATIONS, bus_bandwidth_factor
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.step_traffic import AXES, Transfer, rank_parameters, recomputed, transfers
from trainspec_validate.performance.costs.transformer import Shape, parameters

GPT = Shape(8, 1024, 8, 8, 128, 4096, 1000)
MOE = Shape(8, 1024, 8, 2, 128, 4096, 1000, True, False, 16, 2, 0, 512, 8)


def by_axis(found: tuple[Transfer, ...], axis: str) -> list[tuple[str, float, float, str]]:
    return [(t.operation, t.message_bytes, t.count, t.overlappable) for t in found if t.axis == axis]


def test_worked_examples() -> None:
    result = doctest.testmod(step_traffic)
    assert result.attempted >= 7
    assert result.failed == 0


def test_one_rank_is_silent() -> None:
    assert transfers(GPT, Layout(sequence_length=2048)) == ()


def test_tensor_ranks() -> None:
    plain = Layout(tensor=4, pipeline=2, micro_sequences=2, num_micro_batches=3, sequence_length=512)
    # 2 x 512 tokens x 1024 x 2 bytes; 4 for each of 4 layers and 3 micro-batches
    message = 2 * 512 * 1024 * 2
    assert by_axis(transfers(GPT, plain), "tensor") == [("all-reduce", message, 48, "none")]
    split = Layout(
        tensor=4, pipeline=2, micro_sequences=2, num_micro_batches=3, sequence_length=512, sequence_parallel=True
    )
    assert by_axis(transfers(GPT, split), "tensor") == [
        ("all-gather", message, 48, "none"),
        ("reduce-scatter", message, 48, "none"),
    ]


def test_pipeline_ranks() -> None:
    layout = Layout(tensor=4, pipeline=2, num_micro_batches=3, num_virtual_stages=2, sequence_length=512)
    # forward and backward, 3 micro-batches, 2 chunks; each of 4 tensor ranks carries a quarter
    assert by_axis(transfers(GPT, layout), "pipeline") == [("send-receive", 512 * 1024 * 2 / 4, 12, "compute")]


def test_context_ranks() -> None:
    layout = Layout(context=4, num_micro_batches=2, sequence_length=8192)
    # keys and values of 2 heads of 128, of the whole sequence
    message = 2 * 8192 * 2 * 128 * 2
    assert by_axis(transfers(MOE, layout), "context") == [
        ("all-gather", message, 32, "none"),
        ("reduce-scatter", message, 16, "none"),
    ]


def test_expert_ranks() -> None:
    layout = Layout(data=8, expert=8, num_micro_batches=2, sequence_length=512)
    # every token to 2 experts; there and back, forward and backward, in 8 layers and 2 micro-batches
    assert by_axis(transfers(MOE, layout), "expert") == [("all-to-all", 512 * 1024 * 2 * 2, 64, "none")]
    assert by_axis(transfers(MOE, layout), "expert-data") == []
    twice = Layout(data=16, expert=8, num_micro_batches=2, sequence_length=512)
    experts = 8 * 16 * 3 * 1024 * 512 / 8
    assert by_axis(transfers(MOE, twice), "expert-data") == [("all-reduce", experts * 4 / 8, 8, "backward")]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (0, [("all-reduce", 4, 8, "backward")]),
        (1, [("reduce-scatter", 4, 8, "backward"), ("all-gather", 2, 8, "forward")]),
        (2, [("reduce-scatter", 4, 24, "backward"), ("all-gather", 2, 8, "forward")]),
        (
            3,
            [
                ("reduce-scatter", 4, 24, "backward"),
                ("all-gather", 2, 24, "forward"),
                ("all-gather", 2, 24, "backward"),
            ],
        ),
    ],
)
def test_data_ranks(stage: int, expected: list[tuple[str, int, int, str]]) -> None:
    layout = Layout(data=16, sharding_stage=stage, num_micro_batches=3, sequence_length=512)
    each = parameters(GPT).total / 8
    assert by_axis(transfers(GPT, layout), "data") == [
        (operation, width * each, count, overlap) for operation, width, count, overlap in expected
    ]


def test_groups_of_shards() -> None:
    layout = Layout(data=32, sharding_stage=3, sharding_degree=8, sequence_length=512)
    found = transfers(GPT, layout, gradient_bytes=2)
    assert by_axis(found, "replica") == [("all-reduce", 2 * parameters(GPT).total / 8 / 8, 8, "backward")]
    assert len(by_axis(found, "data")) == 3


def test_volume_of_sharding_stages() -> None:
    # arXiv:1910.02054, section 7: 2 x parameters for stages 1 and 2, 3 x for stage 3, when all numbers are as wide.
    volumes = {}
    for stage in range(4):
        found = transfers(GPT, Layout(data=1024, sharding_stage=stage, sequence_length=512), 2, 2, 2)
        moved = sum(t.message_bytes * t.count * bus_bandwidth_factor(t.operation, 1024) for t in found)
        volumes[stage] = moved / 2 / parameters(GPT).total
    assert volumes == {stage: pytest.approx(times, rel=0.001) for stage, times in {0: 2, 1: 2, 2: 2, 3: 3}.items()}


def test_recomputation_repeats_the_forward_messages() -> None:
    layout = Layout(tensor=2, context=2, data=4, num_micro_batches=2, sequence_length=512)
    once = transfers(GPT, layout)
    assert recomputed(once, 0.0) is once
    again = recomputed(once, 1.0)
    ratios = {(a.axis, a.operation): a.count / b.count for a, b in zip(again, once, strict=True)}
    assert ratios == {
        ("tensor", "all-reduce"): 1.5,
        ("context", "all-gather"): 1.5,
        ("context", "reduce-scatter"): 1,
        ("data", "all-reduce"): 1,
    }


def test_parameters_of_a_rank() -> None:
    held = rank_parameters(MOE, Layout(data=8, tensor=2, expert=4, expert_tensor=1))
    experts = 8 * 16 * 3 * 1024 * 512
    assert held.experts == experts / 4
    assert held.dense == pytest.approx((parameters(MOE).total - experts) / 2)


@given(
    st.sampled_from([GPT, MOE]),
    st.builds(
        Layout,
        data=st.integers(1, 8),
        tensor=st.integers(1, 4),
        pipeline=st.sampled_from([1, 2, 8]),
        context=st.integers(1, 4),
        expert=st.sampled_from([1, 2]),
        sharding_stage=st.integers(0, 3),
        num_micro_batches=st.integers(1, 8),
        sequence_length=st.just(4096),
    ),
)
def test_messages_are_sound(shape: Shape, layout: Layout) -> None:
    for sent in transfers(shape, layout):
        assert sent.axis in AXES
        assert sent.operation in OPERATIONS
        assert sent.message_bytes >= 0
        assert sent.count >= 0
        if sent.axis != "expert" or shape is MOE:
            assert sent.message_bytes > 0
