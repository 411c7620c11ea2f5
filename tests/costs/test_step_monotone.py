"""No step gets slower when a link, the peak or the memory gets faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.step_time import Work, step_time
from trainspec_validate.performance.costs.transformer import Shape

LEAST_SAVED = 1 + 1e-9
"""Rounding."""
FACTORS = (1.1, 1.5, 2.0, 4.0)


@st.composite
def layouts(draw: Any, *, routed: bool) -> Layout:
    tensor, pipeline = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2, 4, 8)))
    data, context = draw(st.sampled_from((1, 2, 8, 64))), draw(st.sampled_from((1, 2)))
    expert = draw(st.sampled_from((1, 2, 4, 8))) if routed else 1
    chunks = draw(st.sampled_from((1, 2))) if pipeline > 1 else 1
    return Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert if data * context * tensor % expert == 0 else 1,
        expert_tensor=1 if routed else None,
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        schedule="interleaved-1f1b" if chunks > 1 else "1f1b",
        num_virtual_stages=chunks,
        sharding_stage=draw(st.integers(0, 3)),
        micro_sequences=draw(st.sampled_from((1, 2, 8))),
        num_micro_batches=pipeline * draw(st.sampled_from((1, 2, 16))),
        sequence_length=draw(st.sampled_from((1024, 4096, 32768))),
    )


@st.composite
def works(draw: Any) -> Work:
    hidden, routed, layers = draw(st.sampled_from((1024, 4096, 8192))), draw(st.booleans()), 32
    experts = {"num_experts": 8, "num_active_experts": 2, "expert_hidden_size": hidden, "num_expert_layers": layers}
    heads = hidden // 128
    vocabulary = draw(st.sampled_from((32000, 128000)))
    shape = Shape(layers, hidden, heads, heads, 128, 4 * hidden, vocabulary, **(experts if routed else {}))
    flags = {
        name: draw(st.booleans())
        for name in (
            *("overlap_gradients", "overlap_parameters", "overlap_tensor", "overlap_input_gradients"),
            *("overlap_pipeline", "overlap_warm_up", "overlap_expert", "fused_accumulation", "narrow"),
        )
    }
    recompute = draw(st.sampled_from(("none", "full")))
    peak, memory = draw(st.sampled_from((3e14, 1e15, 2.5e15))), draw(st.sampled_from((1.5e12, 3e12, 8e12)))
    return Work(shape, draw(layouts(routed=routed)), peak, 0.75, memory, recompute=recompute, **flags)


MACHINES = st.tuples(
    st.sampled_from((4, 8, 72)),
    st.sampled_from((100e9, 300e9, 450e9, 700e9, 900e9)),
    st.sampled_from((5e9, 12.5e9, 50e9, 100e9)),
    st.sampled_from(("infiniband", "rocev2", "efa-srd")),
    st.booleans(),
)


def seconds(work: Work, machine: tuple[int, float, float, str, bool]) -> float:
    node, link, nic, transport, reduces = machine
    layout = work.layout

    def group(num_ranks: int, stride: int) -> Network:
        together = max(1, min(num_ranks, node // stride))
        where = (num_ranks, -(-num_ranks // together), Link(link, 1e-6), Link(nic, 5e-6))
        shared = reduces and together > 1
        return Network(*where, transport=transport, domain_num_ranks=node, domain_reduces=shared)

    shards = min(layout.num_shards, layout.data * layout.context)
    degrees = {
        "tensor": (layout.tensor, 1),
        "context": (layout.context, layout.tensor),
        "data": (shards, layout.tensor),
        "pipeline": (min(2, layout.pipeline), layout.num_ranks // layout.pipeline),
        "expert": (layout.expert, 1),
        "expert-data": (layout.num_expert_copies, layout.expert),
    }
    return step_time(work, {axis: group(*degree) for axis, degree in degrees.items() if degree[0] > 1}).seconds


@examples(150)
@given(work=works(), machine=MACHINES, factor=st.sampled_from(FACTORS))
def test_a_faster_part_never_makes_a_slower_step(
    work: Work, machine: tuple[int, float, float, str, bool], factor: float
) -> None:
    node, link, nic, transport, reduces = machine
    usual = seconds(work, machine) * LEAST_SAVED
    assert seconds(work, (node, link, nic * factor, transport, reduces)) <= usual
    if transport != "efa-srd":  # a vendor's tuner picks there by size alone, and not always the faster algorithm
        assert seconds(work, (node, link * factor, nic, transport, reduces)) <= usual
    assert seconds(replace(work, peak_flops_per_second=work.peak_flops_per_second * factor), machine) <= usual
    faster = replace(work, memory_bandwidth_bytes_per_second=work.memory_bandwidth_bytes_per_second * factor)
    assert seconds(faster, machine) <= usual


@pytest.mark.parametrize("kind", ["overlap_gradients", "overlap_parameters", "overlap_tensor", "overlap_pipeline"])
def test_overlap_never_makes_a_slower_step(kind: str) -> None:
    layout = Layout(data=8, tensor=8, pipeline=4, num_micro_batches=16, sharding_stage=1, sequence_length=4096)
    work = Work(Shape(32, 8192, 64, 64, 128, 32768, 32000), layout, 1e15, 0.75, 3e12, overlap_tensor=True)
    machine = (8, 450e9, 50e9, "infiniband", True)
    assert seconds(work, machine) <= seconds(replace(work, **{kind: False}), machine)
