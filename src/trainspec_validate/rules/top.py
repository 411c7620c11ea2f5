"""Rules on fabrics: NICs, planes, rails, failover and latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isclose

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.model.units import base, bits_per_second, number, seconds
from trainspec_validate.performance.derived.job import PLANE_TOLERANCE, AttachedNic, attached_compute, num_planes_of
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, at_key, rule
from trainspec_validate.rules._machine import declared_fabrics, with_nics

RATE_TOLERANCE = 0.01


@rule("TS-TOP-001")
def planes(cluster: ClusterProfile) -> Iterator[Violation]:
    """The planes share the rate of a NIC, and its entropy values, evenly."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.num_planes > 1 or f.plane_bandwidth_bytes_per_second]
    if not found:
        raise NotApplicable("every fabric has one plane")
    if not any(_judged_alone(fabric) for _, fabric in found):
        with_nics(cluster, found)
    for index, fabric in found:
        nics = attached_compute(cluster, fabric)
        if fabric.plane_bandwidth_bytes_per_second is None:
            message = f"{fabric.name} has {fabric.num_planes} planes, but not the rate of a NIC into one"
            told = _right_rates(fabric, nics, nics[0]) if nics else "the share of a NIC"
            yield Violation(at_key(cluster, "fabrics", index), message, f"add plane_bandwidth_bytes_per_second: {told}")
            continue
        for item in nics:
            yield from _plane_rate(cluster, index, fabric, item)
    for index, fabric in found:
        yield from _entropy_values(cluster, index, fabric)


def _judged_alone(fabric: Fabric) -> bool:
    """Whether something is wrong or right with planes whatever NICs there are."""
    has_values = fabric.spraying is not None and fabric.spraying.num_entropy_values is not None
    return fabric.plane_bandwidth_bytes_per_second is None or (fabric.num_planes > 1 and has_values)


def _entropy_values(cluster: ClusterProfile, index: int, fabric: Fabric) -> Iterator[Violation]:
    values = fabric.spraying.num_entropy_values if fabric.spraying else None
    nics = attached_compute(cluster, fabric)
    if nics and all(num_planes_of(fabric, item.nic) == 1 for item in nics):
        return
    if values and values % fabric.num_planes:
        yield Violation(
            at(cluster, "fabrics", index, "spraying", "num_entropy_values"),
            f"{values} entropy values do not divide over {fabric.num_planes} planes",
            f"use a multiple of {fabric.num_planes}, for example {-(-values // fabric.num_planes) * fabric.num_planes}",
        )


def _fill_planes(fabric: Fabric, nics: Sequence[AttachedNic], group: int) -> bool:
    """Whether the NICs of a node are as many in each plane, where each NIC is in one."""
    return sum(item.nic.num_per_node for item in nics if item.group_index == group) % fabric.num_planes == 0


def _right_rates(fabric: Fabric, nics: Sequence[AttachedNic], item: AttachedNic) -> str:
    """The share of a NIC whose ports are in all planes, and its whole rate where its node has NICs for each plane."""
    whole = item.nic.rate_bytes_per_second
    share = f"{base(whole / fabric.num_planes)} ({bits_per_second(whole / fabric.num_planes)})"
    if fabric.num_planes == 1 or not _fill_planes(fabric, nics, item.group_index):
        return share
    return f"{base(whole)} where each NIC is in one plane, {share} where the ports of each NIC are in all planes"


def _plane_rate(cluster: ClusterProfile, index: int, fabric: Fabric, item: AttachedNic) -> Iterator[Violation]:
    nics, planes = attached_compute(cluster, fabric), fabric.num_planes
    rate, wanted = fabric.plane_bandwidth_bytes_per_second or 0, item.nic.rate_bytes_per_second
    reached = num_planes_of(fabric, item.nic)
    total = rate * reached
    if reached == 1 and _fill_planes(fabric, nics, item.group_index):
        return
    if reached > 1 and isclose(total, wanted, rel_tol=PLANE_TOLERANCE):
        return
    message = f"{planes} planes x {bits_per_second(rate)} is {bits_per_second(rate * planes)}"
    yield Violation(
        at(cluster, "fabrics", index, "plane_bandwidth_bytes_per_second"),
        f"{message}, but NIC {item.nic.name} has {bits_per_second(wanted)}",
        f"set it to {_right_rates(fabric, nics, item)}",
        related=((at(cluster, *item.pointer, "rate_bytes_per_second"), bits_per_second(wanted)),),
    )


@rule("TS-TOP-002")
def rails(cluster: ClusterProfile) -> Iterator[Violation]:
    """A rail-optimised fabric has a rail for each compute NIC of a node."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.topology == "rail-optimised" or f.num_rails]
    if not found:
        raise NotApplicable("no fabric has rails")
    unstated = [index for index, fabric in found if fabric.num_rails is None]
    found = found if unstated else with_nics(cluster, found)
    for index, fabric in found:
        if fabric.num_rails is None:
            continue
        nics: Counter[int] = Counter()
        ports: Counter[int] = Counter()
        for item in attached_compute(cluster, fabric):
            nics[item.group_index] += item.nic.num_per_node
            ports[item.group_index] += item.nic.num_per_node * (item.nic.num_ports or 1)
        for group_index, per_node in nics.items():
            # Ports are rails of their own unless they lead into planes.
            if fabric.num_rails not in {per_node, per_node if fabric.num_planes > 1 else ports[group_index]}:
                group = cluster.node_groups[group_index]
                yield Violation(
                    at(cluster, "fabrics", index, "num_rails"),
                    f"{fabric.name} has {fabric.num_rails} rails, but a node of {group.name} has {per_node} "
                    "compute NICs on it",
                    f"set num_rails to {per_node}",
                    related=((at(cluster, "node_groups", group_index, "nics"), f"{per_node} compute NICs"),),
                )
    if unstated:
        reason = f"does not give the number of rails of {cluster.fabrics[unstated[0]].name}"
        raise Unresolved(at_key(cluster, "fabrics", unstated[0]), reason, "add num_rails")


@rule("TS-TOP-003")
def unjoined_rails(cluster: ClusterProfile) -> Iterator[Violation]:
    """Statements about joined rails fit the tiers and the traffic between rails."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.rails_joined is not None]
    if not found:
        raise NotApplicable("no fabric says whether its rails are joined")
    for index, fabric in found:
        if not fabric.rails_joined and fabric.cross_rail_traffic != "forbidden":
            policy = fabric.cross_rail_traffic or "not stated"
            yield Violation(
                at(cluster, "fabrics", index, "rails_joined"),
                f"no tier joins the rails of {fabric.name}, but traffic between rails is {policy}",
                "set cross_rail_traffic: forbidden, so that data changes rails inside a node",
            )
        switches = fabric.tiers[0].num_switches if len(fabric.tiers) == 1 else None
        if fabric.rails_joined and switches is not None and switches > 1 and (fabric.num_rails or 0) > 1:
            yield Violation(
                at(cluster, "fabrics", index, "rails_joined"),
                f"the only tier of {fabric.name} has {switches} separate switches: nothing joins its rails",
                "add the tier that joins them, or set rails_joined: false",
            )


@rule("TS-TOP-007")
def failover_evidence(cluster: ClusterProfile) -> Iterator[Violation]:
    """A failover time comes with where it is from."""
    found = [(i, f) for i, f in declared_fabrics(cluster) if f.failover_seconds is not None]
    if not found:
        raise NotApplicable("no fabric states a failover time")
    for index, fabric in found:
        if not fabric.failover_evidence:
            yield Violation(
                at(cluster, "fabrics", index, "failover_seconds"),
                f"{fabric.name} claims to repair a lost link in {seconds(fabric.failover_seconds or 0)}, "
                "without evidence",
                "add failover_evidence: how it was measured, or where it is published",
            )


@rule("TS-TOP-008")
def fabric_latency(cluster: ClusterProfile) -> Iterator[Violation]:
    """The latency of the fabric covers the latencies of the tiers on its longest path."""
    judged = False
    for index, fabric in declared_fabrics(cluster):
        known = [tier.latency_seconds for tier in fabric.tiers if tier.latency_seconds is not None]
        if fabric.latency_seconds is None or not known or len(known) != len(fabric.tiers):
            continue
        judged = True
        path = 2 * sum(known[:-1]) + known[-1]
        if fabric.latency_seconds < path * (1 - RATE_TOLERANCE):
            yield Violation(
                at(cluster, "fabrics", index, "latency_seconds"),
                f"{fabric.name} claims {seconds(fabric.latency_seconds)} between nodes, but the "
                f"{number(2 * len(known) - 1)} switches of the longest path add {seconds(path)}",
                f"state at least {base(path)}, or correct the tiers",
            )
    if not judged:
        raise NotApplicable("no fabric gives its latency and that of all its tiers")
