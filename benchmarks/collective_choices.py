"""Compares chosen algorithms with those that a vendor's tuner chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from collective_points import rows

from trainspec_validate.performance.costs.collective_choice import MIB, THRESHOLDS, Thresholds, chosen, fastest, tuned
from trainspec_validate.performance.costs.network import Link, Network

LINK_RATES = {"p5": 450e9, "p5en": 450e9, "p6": 900e9}
"""Rate of NVLink on each platform. A node has eight NICs' worth of 50 GB/s, shared by the ranks that use it."""
_NODE_RATE = 400e9


@dataclass(frozen=True, slots=True)
class Choice:
    """The choices of the tuner and of the package at one size."""

    platform: str
    ranks_per_node: int
    operation: str
    message_bytes: float
    network: Network
    tuner: tuple[str, str]
    ours: tuple[str, str]
    fastest: str


def network_of(platform: str, ranks_per_node: int, num_ranks: int) -> Network:
    """The network of one row of the table; its tables are for EFA."""
    return Network(
        num_ranks,
        num_ranks // ranks_per_node,
        Link(LINK_RATES[platform], 0.0),
        Link(_NODE_RATE / 8, 0.0),
        domain_num_ranks=8,
        domain_reduces=True,
        transport="efa-srd",
    )


def choices() -> list[Choice]:
    """Every power of two from 1 KiB to 16 GiB where the tuner chooses at all."""
    found: list[Choice] = []
    for row in rows("tuner_choices"):
        if row["algorithm"] == "fallback":
            continue
        place = (row["platform"], int(row["ranks_per_node"]))
        network, operation = network_of(*place, int(row["num_ranks"])), row["operation"]
        size = int(row["first_bytes"])
        while size <= int(row["last_bytes"]):
            plan = chosen(operation, size, network)
            theirs = (row["algorithm"], row["protocol"])
            quickest = fastest(operation, size, network).algorithm
            found.append(Choice(*place, operation, size, network, theirs, (plan.algorithm, plan.protocol), quickest))
            size *= 2
    return found


def agreement(mine: Iterable[Choice]) -> tuple[float, float, float]:
    """Share of equal algorithms, of equal algorithms and protocols, and of choices that are the model's fastest."""
    counted = Counter[str]()
    for each in mine:
        counted["all"] += 1
        counted["algorithm"] += each.tuner[0] == each.ours[0]
        counted["both"] += each.tuner == each.ours
        counted["fastest"] += each.fastest == each.ours[0]
    return counted["algorithm"] / counted["all"], counted["both"] / counted["all"], counted["fastest"] / counted["all"]


def share_agreed(mine: Sequence[Choice], thresholds: Thresholds) -> float:
    """Share of equal algorithms with other thresholds."""
    equal = 0
    for each in mine:
        choice = tuned(each.operation, each.message_bytes, each.network, thresholds)
        equal += choice is not None and choice[0] == each.tuner[0]
    return equal / len(mine)


def refit(every: Sequence[Choice]) -> Thresholds:
    """Thresholds that agree with most choices; each group of three at most is searched on a grid of its own."""
    reduces = [each for each in every if each.operation == "all-reduce"]
    few = [each for each in reduces if each.ranks_per_node <= 2]
    many = [each for each in reduces if each.ranks_per_node > 2]
    gathers = [each for each in every if each.operation != "all-reduce" and each.ranks_per_node == 1]
    powers = [1 + 0.25 * step for step in range(6)]
    found = THRESHOLDS
    grids: list[tuple[list[Choice], Iterator[Thresholds]]] = [
        (few, (replace(THRESHOLDS, few_bytes=2.0**i, few_power=p) for i in range(12, 20) for p in powers)),
        (
            many,
            (
                replace(THRESHOLDS, tree_bytes=a * MIB, tree_most_bytes=b * MIB, least_domains=d, ring_bytes=c * MIB)
                for a, b, d, c in product((2, 4, 8, 16, 32), (128, 256, 512, 1024), (3, 6, 16, 32), (128, 256, 512))
            ),
        ),
        (
            gathers,
            (replace(THRESHOLDS, gather_bytes=2 ** (i / 2), gather_power=p) for i in range(32, 43) for p in powers),
        ),
    ]
    fields = (
        ("few_bytes", "few_power"),
        ("tree_bytes", "tree_most_bytes", "least_domains", "ring_bytes"),
        ("gather_bytes", "gather_power"),
    )
    for (mine, candidates), names in zip(grids, fields, strict=True):
        if mine:
            best = max(candidates, key=lambda candidate, mine=mine: share_agreed(mine, candidate))  # type: ignore[misc]
            found = replace(found, **{name: getattr(best, name) for name in names})
    return found


def held_out(every: Sequence[Choice]) -> dict[str, tuple[float, float]]:
    """Per platform, agreement of all-reduce and of the gathers with thresholds fitted on the other platforms."""
    found: dict[str, tuple[float, float]] = {}
    for platform in sorted(LINK_RATES):
        thresholds = refit([each for each in every if each.platform != platform])
        mine = [each for each in every if each.platform == platform]
        reduces = [each for each in mine if each.operation == "all-reduce"]
        gathers = [each for each in mine if each.operation != "all-reduce"]
        found[platform] = share_agreed(reduces, thresholds), share_agreed(gathers, thresholds)
    return found


def report() -> None:
    """Agreement overall, by operation, and by platform."""
    every = choices()
    print("\nAgreement with the AWS tuner (points where it chooses)")
    print(f"{'':<40} points  algorithm  with protocol  ours is the model's fastest")
    groups = sorted({(each.operation, each.platform, each.ranks_per_node) for each in every})
    for operation in sorted({each.operation for each in every}):
        _line(operation, [each for each in every if each.operation == operation])
        for other, platform, ranks in groups:
            if other == operation:
                mine = [
                    each
                    for each in every
                    if (each.operation, each.platform, each.ranks_per_node) == (operation, platform, ranks)
                ]
                _line(f"  {platform}, {ranks} per node", mine)
    print("Thresholds fitted on the other two platforms only (algorithm: all-reduce; all-gather and reduce-scatter):")
    for platform, (reduces, gathers) in held_out(every).items():
        print(f"  {platform:<38} {reduces:9.1%} {gathers:9.1%}")


def _line(name: str, mine: list[Choice]) -> None:
    algorithm, both, quickest = agreement(mine)
    print(f"{name:<40} {len(mine):6}  {algorithm:9.1%}  {both:13.1%}  {quickest:10.1%}")
