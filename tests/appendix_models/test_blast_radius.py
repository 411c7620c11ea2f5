"""Blast radius against brute force over ranks, and expected losses against the renewal model."""

from __future__ import annotations

import doctest
import itertools
import math

import pytest
from appendix_models import blast_radius as module
from appendix_models.blast_radius import (
    ORDER,
    Domain,
    LossModel,
    blast_radius,
    lost_accelerator_hours,
    lost_accelerator_hours_per_day,
    replica_coupling,
)
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.reliability import job_mtbf_seconds, time_shares

LLAMA = Layout(data=128, tensor=8, pipeline=16)
PIPELINE_INSIDE = ("tensor", "context", "pipeline", "data")


@given(
    st.tuples(st.integers(1, 6), st.sampled_from((1, 2, 4)), st.integers(1, 3), st.sampled_from((1, 2))),
    st.permutations(ORDER),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_replicas_are_those_of_the_coordinates(
    counts: tuple[int, int, int, int], order: list[str], size: int, stride: int
) -> None:
    """Number ranks by counting through the axes, and look at every domain."""
    data, tensor, pipeline, context = counts
    layout = Layout(data=data, tensor=tensor, pipeline=pipeline, context=context)
    degrees = {"tensor": tensor, "context": context, "data": data, "pipeline": pipeline}
    outer_first = [range(degrees[axis]) for axis in reversed(order)]
    place = list(reversed(order)).index("data")
    replica = [coordinates[place] for coordinates in itertools.product(*outer_first)]
    stretch = size * stride
    domains: dict[tuple[int, int], set[int]] = {}
    for rank in range(len(replica)):
        domains.setdefault((rank // stretch, rank % stretch % stride), set()).add(replica[rank])
    radius = blast_radius(layout, Domain("some", size, stride), order)
    assert radius.num_domains == len(domains)
    assert radius.replicas_hit == max(len(hit) for hit in domains.values())
    assert radius.mean_replicas_hit == pytest.approx(sum(map(len, domains.values())) / len(domains))
    assert radius.stopped_ranks == radius.replicas_hit * tensor * pipeline * context


def test_the_order_of_axes_decides_how_far_a_rack_reaches() -> None:
    """72 accelerators hold nine neighbours of the data axis, or parts of at most two pipelines."""
    rack = Domain("scale-up-domain", 72)
    assert blast_radius(LLAMA, rack).replicas_hit == 9
    assert blast_radius(LLAMA, rack, PIPELINE_INSIDE).replicas_hit == 2


def test_a_leaf_of_a_rail_reaches_every_node_below_it() -> None:
    leaf = blast_radius(LLAMA, Domain("leaf", 32, stride=8))
    assert leaf.num_domains == 16384 // 32
    assert leaf.lost_ranks == 32
    assert leaf.replicas_hit == 32
    assert blast_radius(LLAMA, Domain("leaf", 32, stride=8), PIPELINE_INSIDE).replicas_hit == 2


def test_process_node_and_rack_grow() -> None:
    sizes = [blast_radius(LLAMA, Domain(str(n), n)).stopped_ranks for n in (1, 8, 16, 72, 16384)]
    assert sizes == sorted(sizes)
    assert sizes[0] == sizes[1] == 128
    assert sizes[-1] == 16384


def test_sharded_state_stops_its_group() -> None:
    whole = blast_radius(Layout(data=64, tensor=8, sharding_stage=3), Domain("node", 8))
    assert (whole.replicas_hit, whole.replicas_stopped, whole.whole_copies_left) == (1, 64, 0)
    hybrid = blast_radius(Layout(data=64, tensor=8, sharding_stage=3, sharding_degree=16), Domain("node", 8))
    assert (hybrid.replicas_stopped, hybrid.stopped_share, hybrid.whole_copies_left) == (16, 0.25, 3)
    plain = blast_radius(Layout(data=64, tensor=8), Domain("node", 8))
    assert (plain.replicas_stopped, plain.whole_copies_left) == (1, 63)


def test_experts_couple_the_replicas_that_hold_them() -> None:
    # 64 experts' ranks over tensor 8 and its own tensor degree of 1 span eight data replicas.
    assert replica_coupling(Layout(data=64, tensor=8, expert=64, expert_tensor=1)) == 8
    assert replica_coupling(Layout(data=64, tensor=8, expert=8, expert_tensor=1)) == 1
    assert replica_coupling(Layout(data=64, tensor=8, expert=8)) == 8
    with pytest.raises(ValueError, match="do not divide"):
        replica_coupling(Layout(data=6, expert=4, expert_tensor=1))


def test_a_hundred_and_thirty_thousand_ranks() -> None:
    job = Layout(data=1024, tensor=8, pipeline=16)
    assert blast_radius(job, Domain("node", 8)).num_domains == 16384
    assert blast_radius(job, Domain("process", 1)).stopped_share == pytest.approx(1 / 1024)


def test_expected_losses_are_the_first_order_of_the_renewal_model() -> None:
    """A job that stops as a whole, at a rate at which a second failure during recovery is rare."""
    rate, recovery, interval = 3.79, 90.0, 360.0
    radius = blast_radius(LLAMA, Domain("node", 8))
    hours = lost_accelerator_hours_per_day(radius, 16384, rate, LossModel(recovery, interval / 2))
    mtbf = job_mtbf_seconds(2048, rate)
    shares = time_shares(interval, 0.0, mtbf, recovery)
    assert hours / (16384 * 24) == pytest.approx(shares.lost_work + shares.recovery, rel=0.03)


def test_going_on_without_what_stopped_costs_less() -> None:
    radius = blast_radius(LLAMA, Domain("node", 8))
    stop = lost_accelerator_hours(radius, 16384, LossModel(90, 0))
    go_on = lost_accelerator_hours(radius, 16384, LossModel(90, 0, others_go_on=True))
    assert stop / go_on == pytest.approx(128)
    waiting = lost_accelerator_hours(radius, 16384, LossModel(90, 0, others_go_on=True, pause_seconds=90))
    assert waiting == pytest.approx(stop)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Domain("node", 0),
        lambda: Domain("leaf", 1, 0),
        lambda: blast_radius(LLAMA, Domain("node", 8), ("tensor", "data")),
        lambda: blast_radius(Layout(data=8_000_000), Domain("node", 8)),
        lambda: LossModel(-1, 0),
        lambda: LossModel(1, math.inf),
        lambda: lost_accelerator_hours(blast_radius(LLAMA, Domain("node", 8)), 64, LossModel(1, 1)),
        lambda: lost_accelerator_hours_per_day(blast_radius(LLAMA, Domain("n", 8)), 16384, math.nan, LossModel(1, 1)),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted >= 8
    assert result.failed == 0
