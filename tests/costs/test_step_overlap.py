"""What messages hide behind: each second of computation hides one, sums of gradients too; and when they are due."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import model_state
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.rank_memory import ActivationPolicy, rank_memory
from trainspec_validate.performance.costs.step_compute import Calibration, Work, passes, steady_share
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.performance.costs.step_traffic import gradient_reductions, transfers
from trainspec_validate.performance.costs.transformer import Shape

LLAMA = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
IDEAL = Calibration(sustained_matmul=1.0, hidden_communication=0.0)
RATE = 100e9
LINK = Link(RATE, 0.0)


def bytes_over_rate(operation: str, message_bytes: float, network: Network) -> float:
    """Every message takes its bytes over the rate of its link."""
    link = network.fabric if network.num_domains > 1 else network.domain
    assert link is not None
    return message_bytes / link.bandwidth_bytes_per_second


def exposed(one: Work, networks: dict[str, Network]) -> dict[str, float]:
    return dict(step_time(one, networks, bytes_over_rate, IDEAL).exposed_seconds)


def work(layout: Layout) -> Work:
    return Work(LLAMA, layout, 989e12, 0.8, 3.35e12)


def seconds_of(layout: Layout, axis: str) -> float:
    return sum(one.count * one.message_bytes / RATE for one in transfers(LLAMA, layout) if one.axis == axis)


def test_a_second_of_computation_hides_one_message_on_whichever_link() -> None:
    layout = Layout(data=8, tensor=8, sequence_length=4096)
    one = replace(work(layout), overlap_tensor=True)
    computed = passes(one, IDEAL)
    total, backward = computed.forward + computed.backward, computed.backward
    gradients = seconds_of(layout, "data")
    near, far = Network(8, 1, LINK), Network(8, 8, None, LINK)
    tensor = seconds_of(layout, "tensor")
    assert tensor < total
    assert gradients > backward > total - tensor, "both together need more seconds than there are"
    apart = exposed(one, {"tensor": near, "data": far})
    assert apart["tensor"] == 0
    assert apart["data"] == pytest.approx(gradients - (total - tensor))
    assert exposed(one, {"tensor": far, "data": far}) == apart


def test_input_gradients_are_summed_beside_those_of_weights() -> None:
    layout = Layout(tensor=8, sequence_length=4096)
    networks = {"tensor": Network(8, 1, Link(500e9, 0.0))}
    plain = exposed(work(layout), networks)["tensor"]
    beside = replace(work(layout), overlap_input_gradients=True)
    assert exposed(beside, networks)["tensor"] == pytest.approx(plain / 2), "two of four all-reduces are backward"
    again = exposed(replace(beside, recompute="full"), networks)["tensor"]
    assert again == pytest.approx(plain), "the forward pass talks twice, and hides nothing"
    split = replace(beside, layout=replace(layout, sequence_parallel=True))
    assert exposed(split, networks)["tensor"] == pytest.approx(plain * 3 / 2), "of all-gathers none is hidden"
    slow = exposed(beside, {"tensor": Network(8, 1, Link(5e9, 0.0))})["tensor"]
    window = passes(beside, IDEAL).backward / 2
    assert slow == pytest.approx(plain * 100 - window), "weights take half of a backward pass"


def test_stages_that_wait_pay_for_every_message() -> None:
    layout = Layout(pipeline=4, num_micro_batches=8, sequence_length=4096)
    networks = {"pipeline": Network(2, 2, None, LINK)}
    assert exposed(work(layout), networks)["pipeline"] == 0
    waiting = exposed(replace(work(layout), overlap_pipeline=False), networks)["pipeline"]
    assert waiting == pytest.approx(seconds_of(layout, "pipeline"))
    assert waiting > 0


@pytest.mark.parametrize(
    ("count", "chunks", "share"), [(4, 1, 1 - 1.5 / 4), (32, 1, 1 - 1.5 / 32), (4, 2, 0.0), (8, 2, 1 - 7 / 16)]
)
def test_nothing_hides_messages_while_a_pipeline_fills(count: int, chunks: int, share: float) -> None:
    layout = Layout(
        pipeline=4,
        num_virtual_stages=chunks,
        schedule="interleaved-1f1b" if chunks > 1 else "1f1b",
        num_micro_batches=count,
        sequence_length=4096,
    )
    networks = {"pipeline": Network(2, 2, None, LINK)}
    assert steady_share(layout) == pytest.approx(share)
    one = replace(work(layout), overlap_warm_up=False)
    assert exposed(one, networks)["pipeline"] == pytest.approx((1 - share) * seconds_of(layout, "pipeline"))
    assert exposed(replace(one, overlap_pipeline=False), networks)["pipeline"] == pytest.approx(
        seconds_of(layout, "pipeline")
    )


CHUNKS = Layout(data=8, pipeline=4, num_virtual_stages=4, schedule="interleaved-1f1b", sequence_length=4096)


@pytest.mark.parametrize(("count", "reductions"), [(4, 1), (8, 2), (32, 8)])
def test_chunks_add_up_gradients_before_they_are_reduced(count: int, reductions: int) -> None:
    layout = replace(CHUNKS, num_micro_batches=count, sharding_stage=2)
    assert gradient_reductions(layout) == reductions
    assert gradient_reductions(replace(layout, schedule="1f1b", num_virtual_stages=1)) == count
    assert gradient_reductions(replace(layout, sharding_stage=1)) == 1
    assert gradient_reductions(replace(layout, sharding_stage=3)) == count


def test_gradients_of_two_chunks_are_whole() -> None:
    state = model_state("bf16", "fp32", "fp32", "fp32")

    def gradients(layout: Layout) -> float:
        return rank_memory(LLAMA, layout, state, ActivationPolicy("none"), stage=1).gradients

    one = replace(CHUNKS, num_micro_batches=8, sharding_stage=1)
    whole, split = gradients(one), gradients(replace(one, sharding_stage=2))
    assert split == pytest.approx(whole / 8 + whole * 2 / 4)
    each = replace(one, sharding_stage=2, schedule="1f1b", num_virtual_stages=1)
    assert gradients(each) == pytest.approx(whole / 8)
    two = replace(one, sharding_stage=2, num_virtual_stages=2)
    assert gradients(two) == pytest.approx(whole), "of two chunks both are whole"


@given(st.sampled_from([4, 8, 16, 64]), st.sampled_from([2, 4, 8]), st.sampled_from([1e9, RATE, 1e12]))
def test_sharding_gradients_never_saves_time(count: int, chunks: int, rate: float) -> None:
    layout = replace(CHUNKS, num_micro_batches=count, num_virtual_stages=chunks)
    networks = {"pipeline": Network(2, 2, None, LINK), "data": Network(8, 8, None, Link(rate, 0.0))}
    less, more = (
        step_time(work(replace(layout, sharding_stage=stage)), networks, bytes_over_rate).seconds for stage in (1, 2)
    )
    assert less <= more * (1 + 1e-9)
