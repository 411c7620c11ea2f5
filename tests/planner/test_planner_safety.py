"""Figures of a checkpoint policy, again by hand: Llama 3 8B with 14 bytes a parameter on 16 ranks of two nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from tests.planner_makers import make
from trainspec_validate.documents.types.cluster import Reliability, StorageTarget
from trainspec_validate.performance.costs.reliability import job_mtbf_seconds
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import (
    Names,
    advice,
    collective_seconds,
    hang_seconds,
    nowhere,
    num_steps,
    planned_seconds,
    policy_figures,
)
from trainspec_validate.planner.search import Scored, search
from trainspec_validate.planner.starter.checkpoint import PolicyFigures

NAMES = Names("plan", "policy", "{name: cluster}", "{name: plan}")
SIZE = 14 * 8.03e9
STORE = StorageTarget(
    name="shared",
    kind="parallel-file-system",
    scope="cluster",
    failure_domain="rack",
    write_bandwidth_bytes_per_second=2e9,
    read_bandwidth_bytes_per_second=20e9,
)


SLOW = msgspec.structs.replace(STORE, read_bandwidth_bytes_per_second=1e9)
MEMORY = StorageTarget(name="memory", kind="host-memory", scope="node", failure_domain="node")


@cache
def asked() -> tuple[Request, Scored]:
    request = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16)
    return request, search(request.goal, 1).best[0]


def figures(
    *stores: StorageTarget,
    reliability: Reliability | None = None,
    num_ranks: int = 16,
    num_parameters: float = 8.03e9,
) -> PolicyFigures:
    request, scored = asked()
    cluster = msgspec.structs.replace(request.cluster, storage_targets=stores, reliability=reliability)
    model = replace(request.goal.model, num_parameters=num_parameters)
    goal = replace(request.goal, num_ranks=num_ranks, model=model)
    return policy_figures(replace(request, cluster=cluster, goal=goal), scored, NAMES)


def test_what_is_saved_is_weights_and_optimizer() -> None:
    found = figures()
    assert (found.bytes_per_parameter, found.checkpoint_bytes) == (14, SIZE)


@pytest.mark.parametrize(("number_format", "scaled", "scales"), [("bf16", 0, 0), ("fp16", 1, 0), ("fp8", 0, 1)])
def test_a_resumed_run_needs_the_scales_of_its_formats(number_format: str, scaled: int, scales: int) -> None:
    request = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16, number_format=number_format)
    found = policy_figures(request, asked()[1], NAMES)
    assert (found.loss_scaling, found.low_precision_scales) == (bool(scaled), bool(scales))


def test_a_slow_read_adds_a_copy_in_the_memory_of_a_partner() -> None:
    found = figures(SLOW, MEMORY)
    tiers = [(tier.name, tier.storage, tier.num_replicas) for tier in found.tiers]
    assert tiers == [("partner-memory", "memory", 2), ("durable", "shared", 1)]
    # A node reads its half of the state, and a fifth more, over half of eight NICs of 50 GB/s.
    assert found.restore_seconds == max(1, math.ceil(1.2 * SIZE / 2 / (8 * 50e9 / 2)))
    assert found.persist_seconds == math.ceil(1.5 * SIZE / 2e9)


def test_a_large_share_comes_back_over_the_interfaces_of_a_node() -> None:
    found = figures(STORE, MEMORY, num_parameters=6e10)
    assert found.restore_seconds == math.ceil(1.2 * 14 * 6e10 / 2 / 200e9) == 3


def test_a_partner_holds_no_more_than_its_memory() -> None:
    # Four halves of 14 bytes for each parameter in 2 TB of a host: up to 71 billion parameters.
    small, large = (figures(STORE, MEMORY, num_parameters=count).tiers for count in (7.1e10, 7.2e10))
    assert [tier.name for tier in small] == ["partner-memory", "durable"]
    assert [tier.name for tier in large] == ["durable"]


@pytest.mark.parametrize("domain", ["rack", "cluster", "site"])
def test_a_store_is_lost_with_what_its_profile_says(domain: str) -> None:
    store = msgspec.structs.replace(STORE, failure_domain=domain)
    assert figures(store).tiers[-1].failure_domain == domain


def test_one_node_has_no_partner() -> None:
    found = figures(SLOW, MEMORY, num_ranks=8)
    assert [tier.name for tier in found.tiers] == ["durable"]
    assert found.restore_seconds == math.ceil(1.2 * SIZE / 1e9)


@pytest.mark.parametrize(
    "memory",
    [
        None,
        {"failure_domain": "process"},
        {"scope": "cluster", "failure_domain": "rack"},
        {"kind": "local-disk"},
        # Two kept and one under way, twice each, of a half of the state, 90 % full.
        {"capacity_bytes": 0.99 * 6 * SIZE / 2 / 0.9},
    ],
)
def test_a_partner_tier_is_on_memory_that_the_profile_declares(memory: dict[str, object] | None) -> None:
    stores = () if memory is None else (msgspec.structs.replace(MEMORY, **memory),)
    assert [tier.name for tier in figures(SLOW, *stores).tiers] == ["durable"]


def test_memory_that_reads_slowly_is_counted_as_it_is() -> None:
    slow = msgspec.structs.replace(MEMORY, read_bandwidth_bytes_per_second=10e9)
    assert figures(SLOW, slow).restore_seconds == math.ceil(1.2 * SIZE / 2 / 10e9)


def test_a_slow_restore_without_such_memory_is_told() -> None:
    request, scored = asked()

    def told(*stores: StorageTarget) -> str:
        cluster = msgspec.structs.replace(request.cluster, storage_targets=stores)
        return " ".join(advice(replace(request, cluster=cluster), scored))

    assert "a restore takes" in told(SLOW)
    assert "a restore takes" not in told(SLOW, MEMORY)


def test_no_policy_is_made_without_a_store_that_outlives_the_job() -> None:
    request, _ = asked()

    def refused(*stores: StorageTarget) -> str | None:
        return nowhere(replace(request, cluster=msgspec.structs.replace(request.cluster, storage_targets=stores)))

    assert "TS-CKP-019" in (refused(MEMORY) or "")
    assert refused() is refused(MEMORY, STORE) is None


def test_a_fast_read_needs_no_other_copy() -> None:
    found = figures(STORE)
    assert [(tier.name, tier.storage, tier.failure_domain) for tier in found.tiers] == [("durable", "shared", "rack")]
    assert found.restore_seconds == math.ceil(1.2 * SIZE / 20e9)


def test_the_fastest_shared_store_is_taken() -> None:
    faster = msgspec.structs.replace(STORE, name="faster", write_bandwidth_bytes_per_second=9e9)
    local = msgspec.structs.replace(STORE, name="local", scope="node", write_bandwidth_bytes_per_second=90e9)
    unrated = msgspec.structs.replace(STORE, name="unrated", write_bandwidth_bytes_per_second=None)
    assert figures(STORE, faster, local, unrated).tiers[-1].storage == "faster"
    assert figures(unrated, local).tiers[-1].storage == "unrated"
    assert figures(local).tiers[-1].storage is None
    same = msgspec.structs.replace(STORE, read_bandwidth_bytes_per_second=None, write_bandwidth_bytes_per_second=10e9)
    assert figures(same).restore_seconds == math.ceil(1.2 * SIZE / 10e9)


def test_a_store_that_nobody_rated_is_assumed_to_take_fifteen_seconds() -> None:
    found = figures()
    assert found.persist_seconds == math.ceil(1.5 * SIZE / 10e9)
    assert "10 GB/s is assumed" in found.persist_reason
    # 1.4 TB in 15 s are 93 GB/s, in whole tens of them 100 GB/s.
    assert figures(num_parameters=1e11).persist_seconds == math.ceil(1.5 * 1.4e12 / 100e9) == 21
    # 16 interfaces of 50 GB/s carry no more than 800 GB/s.
    assert figures(num_parameters=1e12).persist_seconds == math.ceil(1.5 * 14e12 / 800e9)


def test_blocking_is_a_copy_of_a_rank_to_its_host() -> None:
    request, scored = asked()
    link = request.goal.machine.host_bytes_per_second
    assert link is not None
    assert figures().blocking_seconds == float(f"{max(0.1, SIZE / 16 / (link / 2)):.2g}")
    unknown = replace(
        request, goal=replace(request.goal, machine=replace(request.goal.machine, host_bytes_per_second=None))
    )
    assert policy_figures(unknown, scored, NAMES).blocking_seconds == 5


def test_failures_and_repairs_are_those_of_the_profile() -> None:
    stated = Reliability(failures_per_1000_node_days=2.0, source="measured", replacement_seconds=7200.0)
    known, unknown = figures(reliability=stated), figures()
    assert known.mtbf_seconds == job_mtbf_seconds(2, 2.0) == 1000 * 86400 / 4
    assert unknown.mtbf_seconds == job_mtbf_seconds(2, 6.5)
    assert (known.mtbf_reason, unknown.mtbf_reason[:28]) == ("", "the profile states no failur")
    assert (known.repair_seconds, unknown.repair_seconds) == (7200, 86400)
    assert known.spare_seconds is None


@pytest.mark.parametrize(("spares", "start", "wanted"), [(4, 30.0, 30.0), (4, None, 60.0), (0, 30.0, None)])
def test_a_spare_joins_where_there_is_one(spares: int, start: float | None, wanted: float | None) -> None:
    stated = Reliability(
        failures_per_1000_node_days=2.0, source="measured", num_spare_nodes=spares, spare_start_seconds=start
    )
    assert figures(reliability=stated).spare_seconds == wanted


def test_the_interval_is_whole_steps_and_no_shorter_than_wanted() -> None:
    rare = figures(reliability=Reliability(failures_per_1000_node_days=0.01, source="measured"))
    often = figures(reliability=Reliability(failures_per_1000_node_days=1000.0, source="measured"))
    assert rare.interval_steps > often.interval_steps >= 1
    assert often.interval_seconds >= often.persist_seconds


def test_a_hang_is_longer_than_three_steps_and_a_save() -> None:
    assert hang_seconds(1.0, 5.0) == 60
    assert hang_seconds(30.0, 5.5) == 96


@pytest.mark.parametrize(("step", "blocking", "wanted"), [(1.0, 5.0, 600), (30.0, 5.5, 600), (300.0, 20.0, 920)])
def test_collectives_outlast_a_first_set_up(step: float, blocking: float, wanted: float) -> None:
    assert collective_seconds(step, blocking) == wanted


def test_the_last_step_may_have_few_tokens() -> None:
    request, scored = asked()
    tokens = request.goal.global_sequences * request.goal.sequence_length
    for wished, steps in ((1.0, 1), (float(tokens), 1), (tokens + 1.0, 2), (10.0 * tokens, 10)):
        job = replace(request, num_tokens=wished)
        assert num_steps(job) == steps
        assert planned_seconds(job, scored) == pytest.approx(1.05 * steps * scored.seconds, rel=1e-3)


def test_advice_names_the_spares_that_pay() -> None:
    request, scored = asked()
    bare = replace(request, cluster=msgspec.structs.replace(request.cluster, reliability=None))
    assert "no spare nodes" in advice(bare, scored)[-1]
    stated = Reliability(failures_per_1000_node_days=6.5, source="measured", num_spare_nodes=1)
    ready = replace(request, cluster=msgspec.structs.replace(request.cluster, reliability=stated))
    assert advice(ready, scored) == ()
    single = replace(bare, goal=replace(request.goal, num_ranks=8))
    assert advice(single, scored) == ()
