"""Computes the blast radius of a lost process, node, rack or switch, and its cost to a job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.placement import Span, span

MAX_RANKS = 4_000_000
"""Largest job whose ranks are walked one by one."""
ORDER = ("tensor", "context", "data", "pipeline")
"""Axes from adjacent ranks outwards, as Megatron-LM numbers them by default (megatron/core/parallel_state.py)."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A failure domain: `num_ranks` ranks, `stride` apart, starting at multiples of their stretch.

    A node of eight accelerators is eight adjacent ranks; a leaf switch of a rail-optimised network holds one rank of
    each of its nodes, so its ranks are eight apart.

    Raises:
        ValueError: a count is below 1.
    """

    name: str
    num_ranks: int
    stride: int = 1

    def __post_init__(self) -> None:
        if min(self.num_ranks, self.stride) < 1:
            raise ValueError(f"{self.name} has {self.num_ranks} ranks {self.stride} apart, wanted 1 or more")

    def members(self, total: int) -> Iterator[range]:
        """Ranks of each domain of a job of `total` ranks; the last may be cut off.

        >>> [list(members) for members in Domain("leaf", 2, stride=4).members(8)]
        [[0, 4], [1, 5], [2, 6], [3, 7]]
        """
        stretch = self.num_ranks * self.stride
        for start in range(0, total, stretch):
            for first in range(start, min(start + self.stride, total)):
                yield range(first, min(start + stretch, total), self.stride)


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """Losses from one failed domain in the worst place; shares are of the whole job."""

    domain: str
    num_domains: int
    lost_ranks: int
    """Ranks in the domain."""
    replicas_hit: int
    """Data replicas with a lost rank."""
    mean_replicas_hit: float
    """The same, on average over all domains."""
    replicas_stopped: int
    """DP replicas that cannot continue: the replicas hit, and all that share state or experts with them."""
    stopped_ranks: int
    stopped_share: float
    """Share of the ranks that stop, and of the work of a step that is lost."""
    whole_copies_left: int
    """Whole copies of the state that no lost rank held a part of."""


def replica_coupling(layout: Layout) -> int:
    """Adjacent data replicas that stop together, since they share sharded state or exchange tokens with experts.

    Fully sharded state couples all replicas; with hybrid sharding only those of one shard group:

    >>> replica_coupling(Layout(data=64, sharding_stage=3))
    64
    >>> replica_coupling(Layout(data=64, sharding_stage=3, sharding_degree=8))
    8

    Raises:
        ValueError: the shard group or the ranks of an expert group do not divide the data ranks.
    """
    shards = (layout.sharding_degree or layout.data) if layout.sharding_stage else 1
    within = layout.tensor * layout.context
    experts = -(-layout.expert * layout.expert_tensor_degree // within) if layout.expert > 1 else 1
    coupled = math.lcm(shards, experts)
    if layout.data % coupled:
        raise ValueError(f"groups of {coupled} replicas do not divide {layout.data} data ranks")
    return coupled


def _data_span(layout: Layout, order: Sequence[str]) -> Span:
    if layout.num_ranks > MAX_RANKS:
        raise ValueError(f"{layout.num_ranks} ranks are too many to walk, at most {MAX_RANKS}")
    degrees = {"tensor": layout.tensor, "context": layout.context, "data": layout.data, "pipeline": layout.pipeline}
    if sorted(order) != sorted(degrees):
        raise ValueError(f"the order names {', '.join(order)}, wanted each of {', '.join(degrees)} once")
    return span(order, degrees, "data")


def blast_radius(layout: Layout, domain: Domain, order: Sequence[str] = ORDER) -> BlastRadius:
    """Losses of a job, whose ranks are numbered in `order`, from one failed domain.

    Llama 3 405B on 16,384 ranks (tensor 8, pipeline 16, data 128; arXiv:2407.21783, table 4): a node of eight hits
    one replica of 128 when pipelines are innermost of what crosses nodes, and a rack of 16 ranks two when data is:

    >>> job = Layout(data=128, tensor=8, pipeline=16)
    >>> blast_radius(job, Domain("rack", 16), ("tensor", "context", "pipeline", "data")).replicas_hit
    1
    >>> rack = blast_radius(job, Domain("rack", 16))
    >>> rack.replicas_hit, rack.stopped_ranks, rack.stopped_share, rack.whole_copies_left
    (2, 256, 0.015625, 126)

    Raises:
        ValueError: an axis is missing from the order, there are more than `MAX_RANKS` ranks, or as `replica_coupling`.
    """
    total, data, coupled = layout.num_ranks, _data_span(layout, order), replica_coupling(layout)
    worst_lost = worst_hit = worst_groups = num_domains = sum_hit = 0
    for members in domain.members(total):
        hit = {rank // data.stride % data.degree for rank in members}
        worst_lost, worst_hit = max(worst_lost, len(members)), max(worst_hit, len(hit))
        worst_groups = max(worst_groups, len({replica // coupled for replica in hit}))
        num_domains, sum_hit = num_domains + 1, sum_hit + len(hit)
    stopped = worst_groups * coupled
    return BlastRadius(
        domain=domain.name,
        num_domains=num_domains,
        lost_ranks=worst_lost,
        replicas_hit=worst_hit,
        mean_replicas_hit=sum_hit / num_domains,
        replicas_stopped=stopped,
        stopped_ranks=stopped * total // layout.data,
        stopped_share=stopped / layout.data,
        whole_copies_left=(layout.data - stopped) // coupled,
    )


@dataclass(frozen=True, slots=True)
class LossModel:
    """Time cost of a loss, in seconds, and whether the rest of the job continues.

    Raises:
        ValueError: a time is negative or not finite.
    """

    recovery_seconds: float
    """From the fault to the first completed step of what stopped."""
    rework_seconds: float
    """Work that what stopped has to do again: half an interval on average, or none with live copies."""
    others_go_on: bool = False
    """True when replicas that are not stopped train on, as with torchft or a shrinking job."""
    pause_seconds: float = 0.0
    """Time for which the others wait meanwhile, to form the group anew."""

    def __post_init__(self) -> None:
        times = (self.recovery_seconds, self.rework_seconds, self.pause_seconds)
        if not all(seconds >= 0 and math.isfinite(seconds) for seconds in times):
            raise ValueError(f"times must be finite and 0 or more: {self}")


def lost_accelerator_hours(radius: BlastRadius, num_ranks: int, model: LossModel) -> float:
    """Accelerator-hours that one loss of this domain costs.

    A job of 16,384 that stops as a whole for 90 s and repeats half of an interval of 6 min, and one in which 128 ranks
    stop for those 90 s while the rest waits for 5:

    >>> radius = blast_radius(Layout(data=128, tensor=8, pipeline=16), Domain("node", 8))
    >>> lost_accelerator_hours(radius, 16384, LossModel(90, 180))
    1228.8
    >>> round(lost_accelerator_hours(radius, 16384, LossModel(90, 0, others_go_on=True, pause_seconds=5)), 2)
    25.78

    Raises:
        ValueError: the job has fewer ranks than stop.
    """
    if num_ranks < radius.stopped_ranks:
        raise ValueError(f"{radius.stopped_ranks} ranks stop in a job of {num_ranks}")
    stopped = radius.stopped_ranks if model.others_go_on else num_ranks
    seconds = stopped * (model.recovery_seconds + model.rework_seconds)
    return (seconds + (num_ranks - stopped) * model.pause_seconds) / 3600


def lost_accelerator_hours_per_day(
    radius: BlastRadius, num_ranks: int, failures_per_1000_domain_days: float, model: LossModel
) -> float:
    """Accelerator-hours a day that losses of this kind of domain are expected to cost.

    It holds while recoveries are short against the time between failures; `reliability.time_shares` has no such
    limit. At 3.79 failures per 1,000 node-days (arXiv:2407.21783) 2,048 nodes lose 7.76 times a day:

    >>> radius = blast_radius(Layout(data=128, tensor=8, pipeline=16), Domain("node", 8))
    >>> round(lost_accelerator_hours_per_day(radius, 16384, 3.79, LossModel(90, 180)))
    9538

    Raises:
        ValueError: the rate is negative or not finite, or as `lost_accelerator_hours`.
    """
    if not (failures_per_1000_domain_days >= 0 and math.isfinite(failures_per_1000_domain_days)):
        raise ValueError(f"a rate of {failures_per_1000_domain_days}, wanted a finite number of 0 or more")
    failures = radius.num_domains * failures_per_1000_domain_days / 1000
    return failures * lost_accelerator_hours(radius, num_ranks, model)
