"""The parts of a step add up, better machines are never slower, and published identities hold."""

from __future__ import annotations

import doctest
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainspec_validate.performance.costs import model_flops, step_compute, step_time
from trainspec_validate.performance.costs.bandwidth import bus_bandwidth_factor
from trainspec_validate.performance.costs.kernel_traffic import SEPARATE_LOSS_BYTES_PER_ENTRY
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.model_flops import model_flops_utilisation
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.step_compute import Calibration, Work, idle_ratio, passes
from trainspec_validate.performance.costs.transformer import Shape, parameters

LLAMA = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
GPT3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
MOE = Shape(8, 1024, 8, 2, 128, 4096, 1000, True, False, 16, 2, 0, 512, 8)
IDEAL = Calibration(sustained_matmul=1.0, hidden_communication=0.0)


def ring(operation: str, message_bytes: float, network: Network) -> float:
    """The alpha-beta ring: arXiv:2104.04473 and bandwidth.bus_bandwidth_factor."""
    link = network.fabric if network.num_domains > 1 else network.domain
    assert link is not None
    factor = bus_bandwidth_factor(operation, network.num_ranks)
    return (network.num_ranks - 1) * link.latency_seconds + factor * message_bytes / link.bandwidth_bytes_per_second


def networks(layout: Layout, rate: float = 50e9, latency: float = 1e-5) -> dict[str, Network]:
    link = Link(rate, latency)
    degrees = {
        "tensor": layout.tensor,
        "context": layout.context,
        "expert": layout.expert,
        "pipeline": min(2, layout.pipeline),
        "data": layout.data * layout.context,
        "expert-data": layout.num_expert_copies,
    }
    return {axis: Network(n, n, None, link) for axis, n in degrees.items() if n > 1}


def work(layout: Layout | None = None, shape: Any = LLAMA, **changes: Any) -> Work:
    known = layout or Layout(sequence_length=4096)
    return replace(Work(shape, known, 989e12, 0.8, 3.35e12), **changes)


@pytest.mark.parametrize(("module", "least"), [(step_compute, 4), (step_time, 4), (model_flops, 6)])
def test_worked_examples(module: Any, least: int) -> None:
    result = doctest.testmod(module)
    assert result.attempted >= least
    assert result.failed == 0


def test_compute_by_hand() -> None:
    # GPT, one layer, h = 1024, f = 4096, no vocabulary worth speaking of, 1,024 tokens, A100, FlashAttention-2.
    shape = Shape(1, 1024, 8, 8, 128, 4096, 0)
    one = Work(shape, Layout(sequence_length=1024), 312e12, 0.5, 2e12, generation="ampere")
    products = 2 * (4 * 1024**2 + 2 * 1024 * 4096) * 1024 / (312e12 * 0.5)
    attention = 2 * 1024 * 1024 * 1024 / 133e12  # 4 L a s, half of it masked; 133e12 from the table
    memory = 1024 * 1024 * 2 / (2e12 * 0.636)
    found = passes(one, IDEAL)
    assert found.forward == pytest.approx(products + attention + 38 * memory)
    assert found.backward == pytest.approx(2 * products + 2 * attention + 64 * memory)
    again = passes(replace(one, recompute="full"), IDEAL)
    assert again.forward == found.forward
    assert again.backward == pytest.approx(found.backward + found.forward)


def test_a_step_that_xla_compiles_by_hand() -> None:
    # The same layer: norms and residual sums alone move bytes of their own, and the last product is not repeated.
    shape = Shape(1, 1024, 8, 8, 128, 4096, 0)
    one = Work(shape, Layout(sequence_length=1024), 312e12, 0.5, 2e12, generation="ampere", tpu=True)
    product = 2 * 1024 * 1024 * 1024 / (312e12 * 0.5)
    attention = 2 * 1024 * 1024 * 1024 / 133e12
    memory = 1024 * 1024 * 2 / (2e12 * 0.636)
    found = passes(one, IDEAL)
    assert found.forward == pytest.approx(12 * product + attention + 10 * memory)
    assert found.backward == pytest.approx(24 * product + 2 * attention + 12 * memory)
    full = passes(replace(one, recompute="full"), IDEAL)
    assert full.backward == pytest.approx(found.backward + found.forward - 4 * product)
    kept = passes(replace(one, recompute="selective"), IDEAL)
    assert kept.backward == pytest.approx(found.backward + attention)


def test_xla_repeats_the_last_product_of_experts() -> None:
    # A dense layer leaves out its last product of 1,024 x 4,096, a layer with experts leaves out none.
    def repeated(shape: Shape, **changes: Any) -> float:
        one = work(Layout(sequence_length=1024), replace(shape, vocabulary_size=0), **changes)
        full, none = passes(replace(one, recompute="full"), IDEAL), passes(one, IDEAL)
        return full.forward + full.backward - none.forward - none.backward

    def forward(shape: Shape, **changes: Any) -> float:
        return passes(work(Layout(sequence_length=1024), replace(shape, vocabulary_size=0), **changes), IDEAL).forward

    product = 2 * 1024 * 1024 * 4096 / (989e12 * 0.8)
    some = replace(MOE, num_expert_layers=5)
    assert repeated(some) == pytest.approx(forward(some))
    assert repeated(some, tpu=True) == pytest.approx(forward(some, tpu=True) - 3 * product)
    assert repeated(MOE, tpu=True) == pytest.approx(forward(MOE, tpu=True))


def test_selective_recomputation_repeats_unfused_attention_only() -> None:
    plain = work(fused_attention=False)
    selective = replace(plain, recompute="selective")
    rate = step_compute.attention_fraction("unfused", "hopper", 128, 4096) * 989e12
    forward = 2 * 32 * 4096 * 4096 * 4096 / rate
    assert passes(selective).backward == pytest.approx(passes(plain).backward + forward)
    fused = work(recompute="selective")
    assert passes(fused) == passes(work())


def test_attention_keeps_its_format() -> None:
    # Products in fp8 at twice the peak: attention and memory take as long as before.
    wide = passes(work())
    narrow = passes(work(peak_flops_per_second=2 * 989e12, attention_peak_flops_per_second=989e12))
    parts = parameters(LLAMA)
    products = 2 * (parts.attention + parts.feed_forward + 128256 * 4096) * 4096 / (989e12 * 0.8)
    saved = products / step_compute.CALIBRATION.sustained_matmul / 2
    assert wide.forward - narrow.forward == pytest.approx(saved)


def test_bubble_by_hand() -> None:
    layout = Layout(pipeline=4, num_micro_batches=8, sequence_length=4096)
    even = work(layout, replace(LLAMA, vocabulary_size=0))
    found = step_time.step_time(even, networks(layout), ring)
    assert found.bubble_seconds == pytest.approx(found.compute_seconds * 3 / 8)
    chunks = replace(even, layout=replace(layout, num_virtual_stages=2))
    assert step_time.step_time(chunks, networks(layout), ring).bubble_seconds == pytest.approx(
        found.compute_seconds * 3 / 16
    )


def test_ranks_wait_for_the_one_with_the_output() -> None:
    layout = Layout(pipeline=4, num_micro_batches=8, sequence_length=4096)
    whole, layers = passes(work(replace(layout, pipeline=1))), passes(work(layout, replace(LLAMA, vocabulary_size=0)))
    slowest = passes(work(layout))
    both = whole.forward + whole.backward
    assert slowest.others == pytest.approx((layers.forward, layers.backward)), "the others have layers alone"
    assert slowest.forward + slowest.backward == pytest.approx(both - 3 * sum(slowest.others))
    found = step_time.step_time(work(layout), networks(layout), ring)
    assert found.compute_seconds == pytest.approx(8 * (slowest.forward + slowest.backward))
    assert found.bubble_seconds == pytest.approx(3 * sum(slowest.others)), "a micro-batch goes once through all others"
    fewer = work(replace(layout, stage_layers=(9, 9, 9, 5)))
    assert step_time.step_time(fewer, networks(layout), ring).seconds < found.seconds


def test_a_loss_in_several_kernels_costs_its_bytes() -> None:
    fused, apart = passes(work()), passes(work(loss_bytes_per_entry=SEPARATE_LOSS_BYTES_PER_ENTRY))
    more = 4096 * 128256 * (54 - 30) / (3.35e12 * 0.636)
    assert apart.forward + apart.backward - fused.forward - fused.backward == pytest.approx(more)


def test_both_ends_of_a_folded_pipeline_share_the_output() -> None:
    layout = Layout(pipeline=4, num_micro_batches=8, schedule="dual-pipe", sequence_length=4096)
    loads = step_compute.stage_loads(LLAMA, layout)
    assert sorted((load.layers, load.output, load.num_ranks) for load in loads) == [(1.0, 0.0, 2), (1.0, 2.0, 2)]


@pytest.mark.parametrize(
    ("schedule", "ratio"),
    [("1f1b", 3 / 8), ("gpipe", 3 / 8), ("other", 3 / 8), ("zero-bubble", 1 / 8), ("dual-pipe", 1 / 12)],
)
def test_idle_ratio(schedule: str, ratio: float) -> None:
    assert idle_ratio(Layout(pipeline=4, num_micro_batches=8, schedule=schedule)) == pytest.approx(ratio)
    assert idle_ratio(Layout(pipeline=1, num_micro_batches=8, schedule=schedule)) == 0


def test_gradients_hide_behind_the_last_backward_pass() -> None:
    layout = Layout(data=8, num_micro_batches=4, sequence_length=4096)
    known = networks(layout, latency=0.0)
    shown = step_time.step_time(work(layout, overlap_gradients=False), known, ring, IDEAL)
    gradients = 4 * parameters(LLAMA).total * 2 * 7 / 8 / 50e9
    assert shown.exposed_seconds == {"data": pytest.approx(gradients)}
    hidden = step_time.step_time(work(layout), known, ring, IDEAL)
    window = passes(work(layout), IDEAL).backward
    assert hidden.exposed_seconds["data"] == pytest.approx(max(0.0, gradients - window))
    costly = step_time.step_time(work(layout), known, ring, replace(IDEAL, hidden_communication=0.25))
    covered = min(window, gradients)
    assert costly.exposed_seconds["data"] == pytest.approx(gradients - 0.75 * covered)


def test_chunks_widen_the_window() -> None:
    # The gradients of the first of 2 chunks are complete after the last 4 micro-batches of it: (1 - 1/2) (4 - 1) more.
    one = Layout(data=64, pipeline=4, num_micro_batches=8, sequence_length=4096)
    two = replace(one, num_virtual_stages=2)
    known = networks(one, latency=0.0) | {"data": Network(64, 64, None, Link(1e9, 0.0))}
    before, after = (
        step_time.step_time(work(layout), known, ring, IDEAL).exposed_seconds["data"] for layout in (one, two)
    )
    assert before - after == pytest.approx(1.5 * passes(work(one), IDEAL).backward)


def test_tensor_messages_are_on_the_path() -> None:
    layout = Layout(tensor=8, sequence_length=4096)
    known = networks(layout, latency=0.0)
    shown = step_time.step_time(work(layout), known, ring, IDEAL).exposed_seconds["tensor"]
    assert shown == pytest.approx(4 * 32 * 4096 * 4096 * 2 * (2 * 7 / 8) / 50e9)
    hidden = step_time.step_time(work(layout, overlap_tensor=True), known, ring, IDEAL).exposed_seconds["tensor"]
    assert hidden == pytest.approx(max(0.0, shown - sum(_both(work(layout)))))


def _both(one: Work) -> tuple[float, float]:
    found = passes(one, IDEAL)
    return found.forward, found.backward


def test_optimizer_by_hand() -> None:
    layout = Layout(data=8, tensor=2, sharding_stage=1, sequence_length=4096)
    found = step_time.step_time(work(layout), networks(layout), ring)
    assert found.optimizer_seconds == pytest.approx(parameters(LLAMA).total / 16 * 30 / (3.35e12 * 0.636))
    whole = replace(layout, sharding_stage=0)
    assert step_time.step_time(work(whole), networks(whole), ring).optimizer_seconds == pytest.approx(
        8 * found.optimizer_seconds
    )


def test_a_missing_network_is_named() -> None:
    with pytest.raises(ValueError, match="the tensor axis sends messages, but no network is given for it"):
        step_time.step_time(work(Layout(tensor=2, sequence_length=4096)), {}, ring)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peak_flops_per_second": 0}, "positive"),
        ({"attention_peak_flops_per_second": -1}, "positive"),
        ({"gradient_bytes": -1}, "not negative"),
        ({"memory_bandwidth_bytes_per_second": -1}, "positive"),
        ({"matmul_fraction": 1.5}, "shares of 1"),
        ({"recomputed_share": -0.1}, "shares of 1"),
        ({"data_stall_seconds": -1.0}, "not negative"),
    ],
)
def test_impossible_work(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        work(**changes)


def test_default_time_of_is_the_collective_model() -> None:
    from trainspec_validate.performance.costs import collectives

    layout = Layout(tensor=8, sequence_length=4096)
    node = Network(8, 1, Link(450e9, 0.0))
    found = step_time.step_time(work(layout), {"tensor": node})
    each = collectives.best("all-reduce", 4096 * 4096 * 2, node).seconds
    assert found.exposed_seconds["tensor"] == pytest.approx(4 * 32 * each)


def test_gpt3_on_1024_accelerators() -> None:
    # NVIDIA/Megatron-LM README of 2021: 1,536 sequences of 2,048 on 1,024 A100 at 138e12 operations take about 32 s.
    layout = Layout(data=16, tensor=8, pipeline=8, num_micro_batches=96, sequence_length=2048)
    assert layout.num_ranks == 1024
    share = model_flops_utilisation(GPT3, layout, 31.92, 312e12, "megatron-2021-hardware")
    assert share * 312 == pytest.approx(138, abs=0.1)


def test_conventions() -> None:
    layout = Layout(sequence_length=8192)
    total, table = parameters(LLAMA).total, 128256 * 4096
    attention = 12 * 32 * 4096 * 8192
    expected = {
        "6n": 6 * total,
        "6n-full-attention": 6 * total + attention,
        "palm": 6 * total + attention,
        "6n-causal-attention": 6 * (total - table) + attention / 2,
    }
    for convention, each in expected.items():
        share = model_flops_utilisation(LLAMA, layout, 1.0, 1e15, convention)  # type: ignore[arg-type]
        assert share == pytest.approx(8192 * each / 1e15)
    with pytest.raises(ValueError, match="unknown convention 'hfu'"):
        model_flops_utilisation(LLAMA, layout, 1.0, 1e15, "hfu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        model_flops_utilisation(LLAMA, layout, 0.0, 1e15)


@st.composite
def works(draw: st.DrawFn) -> Work:
    shape = draw(st.sampled_from([LLAMA, GPT3, MOE]))
    pipeline = draw(st.sampled_from([1, 2, 8]))
    layout = Layout(
        data=draw(st.sampled_from([1, 2, 16])),
        tensor=draw(st.sampled_from([1, 2, 8])),
        pipeline=pipeline,
        context=draw(st.sampled_from([1, 4])),
        expert=2 if shape is MOE else 1,
        sequence_parallel=draw(st.booleans()),
        num_virtual_stages=draw(st.integers(1, 3)) if pipeline > 1 else 1,
        sharding_stage=draw(st.integers(0, 3)),
        micro_sequences=draw(st.integers(1, 4)),
        num_micro_batches=draw(st.integers(1, 32)),
        sequence_length=draw(st.sampled_from([512, 4096, 65536])),
    )
    return Work(
        shape,
        layout,
        draw(st.floats(1e13, 5e15)),
        draw(st.floats(0.1, 1.0)),
        draw(st.floats(1e12, 1e13)),
        generation=draw(st.sampled_from(["ampere", "hopper"])),
        fused_attention=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        overlap_gradients=draw(st.booleans()),
        overlap_parameters=draw(st.booleans()),
        overlap_tensor=draw(st.booleans()),
        data_stall_seconds=draw(st.floats(0, 1)),
    )


@given(works())
def test_parts_add_up(one: Work) -> None:
    found = step_time.step_time(one, networks(one.layout), ring)
    parts = [
        found.compute_seconds,
        found.bubble_seconds,
        found.optimizer_seconds,
        found.data_stall_seconds,
        *found.exposed_seconds.values(),
    ]
    assert min(parts) >= 0
    assert found.seconds == pytest.approx(sum(parts))
    assert found.data_stall_seconds == one.data_stall_seconds
    if one.layout.pipeline == 1:
        assert found.bubble_seconds == 0
        assert "pipeline" not in found.exposed_seconds


HIDES_LITTLE = Work(
    LLAMA,
    Layout(tensor=8, pipeline=8, sequence_length=512),
    340501109376002.0,
    1.0,
    1111283093837.0,
    generation="ampere",
    fused_attention=False,
    overlap_tensor=True,
)
"""Only the rank with the output layer computes longer than its messages take."""


@given(works(), st.floats(1.0, 10.0))
@example(one=HIDES_LITTLE, factor=2.0)
def test_faster_machines_are_never_slower(one: Work, factor: float) -> None:
    slow = networks(one.layout)
    seconds = step_time.step_time(one, slow, ring).seconds
    quicker = [
        (replace(one, peak_flops_per_second=one.peak_flops_per_second * factor), slow),
        (replace(one, memory_bandwidth_bytes_per_second=one.memory_bandwidth_bytes_per_second * factor), slow),
        (one, networks(one.layout, rate=50e9 * factor)),
        (one, networks(one.layout, latency=1e-5 / factor)),
    ]
    for work_, network in quicker:
        assert step_time.step_time(work_, network, ring).seconds <= seconds * (1 + 1e-9)


@given(works(), st.sampled_from(["tensor", "context", "expert", "pipeline", "data", "expert-data"]))
def test_one_faster_network_is_never_slower(one: Work, axis: str) -> None:
    slow, fast = networks(one.layout), networks(one.layout, rate=500e9)
    mixed = {name: fast[name] if name == axis else network for name, network in slow.items()}
    seconds = step_time.step_time(one, slow, ring).seconds
    assert step_time.step_time(one, mixed, ring).seconds <= seconds * (1 + 1e-9)


@given(works())
def test_overlap_never_hurts(one: Work) -> None:
    known = networks(one.layout)
    bare = replace(one, overlap_gradients=False, overlap_parameters=False, overlap_tensor=False)
    hidden = replace(one, overlap_gradients=True, overlap_parameters=True, overlap_tensor=True)
    assert step_time.step_time(hidden, known, ring).seconds <= step_time.step_time(bare, known, ring).seconds * (
        1 + 1e-9
    )


@given(works())
def test_recomputation_costs(one: Work) -> None:
    known = networks(one.layout)
    seconds = [
        step_time.step_time(replace(one, recomputed_share=share), known, ring).seconds for share in (0.0, 0.5, 1.0)
    ]
    assert seconds == sorted(seconds)


@given(st.sampled_from([Layout(data=8), Layout(tensor=4, data=2), Layout(data=8, sharding_stage=3)]), st.floats(0, 1))
def test_frozen_parameters_never_take_longer(layout: Layout, share: float) -> None:
    layout = replace(layout, sequence_length=4096, num_micro_batches=4)
    whole, part = work(layout), work(layout, trained_share=share)
    links = networks(layout)
    assert step_time.step_time(part, links).seconds <= step_time.step_time(whole, links).seconds
    assert passes(part).forward == passes(whole).forward


def test_gradients_of_frozen_weights_are_a_third_of_the_products() -> None:
    ideal = {"memory_bandwidth_bytes_per_second": 1e20, "recompute": "none"}
    whole, none = passes(work(**ideal), IDEAL), passes(work(**ideal, trained_share=0.0), IDEAL)
    products = 2 * parameters(LLAMA).active - 2 * LLAMA.embedding_parameters
    assert whole.backward - none.backward == pytest.approx(
        4096 * products / (0.8 * 989e12), rel=1e-4
    )  # norms have no products
