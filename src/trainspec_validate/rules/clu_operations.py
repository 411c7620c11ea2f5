"""Checks storage, reliability and clocks of a cluster profile."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.cluster import Reliability, StorageTarget
from trainspec_validate.model import units
from trainspec_validate.performance.derived.cluster import all_nics
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule

_NODE_KINDS = frozenset({"local-disk", "host-memory"})
_SHARED_KINDS = frozenset({"parallel-file-system", "object-store", "network-file-system"})
_READ_PER_WRITE = (1 / 3, 10.0)
_FILL_SECONDS = (300.0, 2e6)
_NODE_DISK_RATE = 400e9
_RATE_TOLERANCE = 0.05
_REPAIR_SECONDS = (300.0, 90 * 86400.0)
_SPARE_SECONDS = (1.0, 7200.0)
_OFFSET_SECONDS = {"ptp": 5e-4, "gps": 1e-4, "ntp": 0.1}


@rule("TS-CLU-032")
def storage_space(cluster: ClusterProfile) -> Iterator[Violation]:
    """A store has no more free space than space, and no more memory than its host."""
    judged = False
    for i, target in enumerate(cluster.storage_targets):
        if target.capacity_bytes is None:
            continue
        judged = True
        capacity = target.capacity_bytes
        if target.free_bytes is not None and target.free_bytes > capacity:
            message = f"{units.bytes_(target.free_bytes)} are free of {units.bytes_(capacity)}"
            yield Violation(at(cluster, "storage_targets", i, "free_bytes"), message, f"at most {units.base(capacity)}")
        sizes = [g.host.memory_bytes for g in cluster.node_groups if g.host and g.host.memory_bytes]
        if target.kind == "host-memory" and target.scope == "node" and sizes and capacity > min(sizes):
            message = f"{units.bytes_(capacity)} in host memory of {units.bytes_(min(sizes))}"
            place = at(cluster, "storage_targets", i, "capacity_bytes")
            yield Violation(place, message, f"below {units.base(min(sizes))}")
    if not judged:
        raise NotApplicable("no storage target states its capacity")


@rule("TS-CLU-033")
def storage_kind(cluster: ClusterProfile) -> Iterator[Violation]:
    """Scope and failure domain are those of the kind of store."""
    if not cluster.storage_targets:
        raise NotApplicable("no storage target is described")
    for i, target in enumerate(cluster.storage_targets):
        pooled = target.kind == "host-memory" and target.scope == "cluster"
        local, shared = target.kind in _NODE_KINDS and not pooled, target.kind in _SHARED_KINDS or pooled
        wanted = "node" if local else "cluster"
        if (local or shared) and target.scope != wanted:
            message = f"a {target.kind} has scope {target.scope}"
            yield Violation(at(cluster, "storage_targets", i, "scope"), message, f"write {wanted}")
            continue
        store = target.kind.replace("-", " ")
        store = store if store.endswith("memory") else f"{'an' if store[0] == 'o' else 'a'} {store}"
        lost_with_node = target.failure_domain in {"process", "node"}
        if (local and not lost_with_node) or (shared and lost_with_node):
            yield Violation(
                at(cluster, "storage_targets", i, "failure_domain"),
                f"{store} is lost with its node, not with a {target.failure_domain}"
                if local
                else f"{store} is not lost with a {target.failure_domain}",
                f"write failure_domain: {'node' if local else 'rack, cluster or site'}",
            )


@rule("TS-CLU-034")
def storage_rate(cluster: ClusterProfile) -> Iterator[Violation]:
    """Rates of a store fit each other, its size and the network before it."""
    judged = False
    for i, target in enumerate(cluster.storage_targets):
        rates = (target.read_bandwidth_bytes_per_second, target.write_bandwidth_bytes_per_second)
        if rates == (None, None):
            continue
        limit = _network_limit(cluster, target)
        fills = target.capacity_bytes is not None and target.kind != "host-memory"
        judged = judged or None not in rates or fills or limit is not None
        for key, message, told in (*_rates(target), *_network(target, limit)):
            yield Violation(at(cluster, "storage_targets", i, key), message, told)
    if not judged:
        raise NotApplicable("no storage target states a rate and something to compare it with")


def _rates(target: StorageTarget) -> Iterator[tuple[str, str, str]]:
    read, write = target.read_bandwidth_bytes_per_second, target.write_bandwidth_bytes_per_second
    low, high = _READ_PER_WRITE
    if read is not None and write is not None and not low * write <= read <= high * write:
        message = f"reads at {units.bytes_per_second(read)} and writes at {units.bytes_per_second(write)}"
        yield "read_bandwidth_bytes_per_second", message, "a third to ten times the write rate is plausible"
    size, rate = target.capacity_bytes, write or read
    if size is not None and rate is not None and target.kind != "host-memory":
        fill, bounds = size / rate, _FILL_SECONDS
        if not bounds[0] <= fill <= bounds[1]:
            message = f"{units.bytes_(size)} fill in {units.seconds(fill)} at {units.bytes_per_second(rate)}"
            yield (
                "capacity_bytes",
                message,
                f"{units.seconds(bounds[0])} to {units.seconds(bounds[1])} is plausible",
            )


def _network_limit(cluster: ClusterProfile, target: StorageTarget) -> tuple[float, str] | None:
    """What can reach a store, and what that is; None where nothing bounds it."""
    if target.scope == "node":
        return (_NODE_DISK_RATE, "the disks of one node") if target.kind == "local-disk" else None
    nics = [(i, nic) for i, _, nic in all_nics(cluster) if nic.role == "storage"]
    nics = nics or [(i, nic) for i, _, nic in all_nics(cluster)]
    if not nics:
        return None
    limit = sum(cluster.node_groups[i].num_nodes * n.num_per_node * n.rate_bytes_per_second for i, n in nics)
    return limit, f"the {'storage ' if nics[0][1].role == 'storage' else ''}interfaces of all nodes"


def _network(target: StorageTarget, bound: tuple[float, str] | None) -> Iterator[tuple[str, str, str]]:
    if bound is None:
        return
    limit, where = bound
    for key in ("read_bandwidth_bytes_per_second", "write_bandwidth_bytes_per_second"):
        rate = getattr(target, key)
        if rate is not None and rate > limit * (1 + _RATE_TOLERANCE):
            message = f"{units.bytes_per_second(rate)}, but {where} carry {units.bytes_per_second(limit)}"
            is_in_bits = rate / 8 <= limit
            in_bytes = f"; in bytes per second, {units.prefixed(rate, 'b/s')} is {units.base(rate / 8)}"
            yield key, message, f"at most {units.base(limit)}{in_bytes if is_in_bits else _slipped(rate, limit)}"


def _slipped(rate: float, limit: float) -> str:
    return units.slipped_prefix(rate, limit / 1000, limit)


def _reliability(cluster: ClusterProfile) -> Reliability:
    return require(cluster.reliability, "the document has no reliability section")


@rule("TS-CLU-035")
def failure_evidence(cluster: ClusterProfile) -> Iterator[Violation]:
    """A measured rate has its counts, a quoted one its citation."""
    own = _reliability(cluster)
    place = at(cluster, "reliability", "source")
    if own.source == "measured":
        counts = {"num_failures": own.num_failures, "node_days": own.node_days}
        missing = [key for key, value in counts.items() if value is None]
        if missing:
            message = f"the rate is measured, but {' and '.join(missing)} are not given"
            yield Violation(place, message, "give the failures counted and the node-days observed")
    elif own.source == "vendor" and own.citation is None:
        yield Violation(place, "the rate is quoted without a citation", "add citation with title and reference")


@rule("TS-CLU-036")
def failure_rate(cluster: ClusterProfile) -> Iterator[Violation]:
    """The rate is the failures counted over the node-days observed."""
    own = _reliability(cluster)
    if own.num_failures is None or own.node_days is None:
        raise NotApplicable("failures and node-days are not given together")
    rate, counted = own.failures_per_1000_node_days, own.num_failures / own.node_days * 1000
    place = at(cluster, "reliability", "failures_per_1000_node_days")
    days = f"{own.num_failures:,} failures in {units.number(own.node_days)} node-days"
    if own.num_failures == 0:
        bound = 3 / own.node_days * 1000
        if rate > bound * (1 + _RATE_TOLERANCE):
            message = (
                f"no failure in {units.number(own.node_days)} node-days bounds the rate by {bound:.3g}, not {rate:g}"
            )
            yield Violation(place, message, f"write {bound:.3g}, or source: default")
    elif abs(rate - counted) > _RATE_TOLERANCE * counted:
        yield Violation(place, f"{days} are {counted:.3g} per 1000 node-days, not {rate:g}", f"write {counted:.3g}")


@rule("TS-CLU-037")
def failure_default(cluster: ClusterProfile) -> Iterator[Violation]:
    """The rate is known, not assumed."""
    if _reliability(cluster).source == "default":
        yield Violation(
            at(cluster, "reliability", "source"),
            "the failure rate is an assumption",
            "count failures and node-days of the own machine; published rates run from 2.3 to 6.5",
        )


@rule("TS-CLU-038")
def spare_nodes(cluster: ClusterProfile) -> Iterator[Violation]:
    """Spares cover the nodes that are out on average, and their times are plausible."""
    own = _reliability(cluster)
    repair, start, spares = own.replacement_seconds, own.spare_start_seconds, own.num_spare_nodes
    if repair is None and start is None and spares is None:
        raise NotApplicable("no spares and no times to replace a node are given")
    low, high = _REPAIR_SECONDS
    if repair is not None and not low <= repair <= high:
        message = f"a lost node is replaced after {units.seconds(repair)}"
        told = f"{units.seconds(low)} to {units.seconds(high)} is plausible"
        yield Violation(at(cluster, "reliability", "replacement_seconds"), message, told)
    elif repair is not None and spares:
        out = cluster.num_nodes * own.failures_per_1000_node_days / 1000 * repair / 86400
        if out > spares:
            message = f"{out:.3g} nodes are out on average, more than the {spares} spares"
            yield Violation(
                at(cluster, "reliability", "num_spare_nodes"),
                message,
                f"at least {math.ceil(out)}, or a quicker repair",
            )
    if spares is not None and spares > cluster.num_nodes:
        message = f"{spares:,} spares for {cluster.num_nodes:,} nodes"
        yield Violation(at(cluster, "reliability", "num_spare_nodes"), message, f"at most {cluster.num_nodes}")
    low, high = _SPARE_SECONDS
    if start is not None and not low <= start <= min(high, repair or high):
        message = f"a spare node joins after {units.seconds(start)}"
        told = f"{units.seconds(low)} to {units.seconds(high)} is plausible, and not longer than a replacement"
        yield Violation(at(cluster, "reliability", "spare_start_seconds"), message, told)


@rule("TS-CLU-077")
def screening_time(cluster: ClusterProfile) -> Iterator[Violation]:
    """A test of a node ends before the next one begins."""
    screening = _reliability(cluster).screening
    if screening is None or screening.duration_seconds is None:
        raise NotApplicable("no screening with its duration is given")
    if screening.duration_seconds > screening.interval_seconds:
        lasts, every = units.seconds(screening.duration_seconds), units.seconds(screening.interval_seconds)
        yield Violation(
            at(cluster, "reliability", "screening", "duration_seconds"),
            f"a node is tested for {lasts}, but again every {every}",
            f"at most {units.base(screening.interval_seconds)}, or a longer interval",
        )


@rule("TS-CLU-039")
def clock_offset(cluster: ClusterProfile) -> Iterator[Violation]:
    """The bound on the offset is one that the discipline reaches."""
    clock = require(cluster.clock, "the document has no clock section")
    place = at(cluster, "clock", "max_offset_seconds" if clock.max_offset_seconds is not None else "discipline")
    if clock.discipline == "none":
        if clock.max_offset_seconds is not None:
            yield Violation(place, "clocks that nothing keeps together have no bound", "name the discipline")
        return
    limit = _OFFSET_SECONDS[clock.discipline]
    if clock.max_offset_seconds is None:
        yield Violation(
            place,
            f"{clock.discipline} without a bound on the offset",
            f"write max_offset_seconds, at most {units.base(limit)}",
        )
    elif clock.max_offset_seconds > limit:
        own = units.seconds(clock.max_offset_seconds)
        message = f"an offset of {own} means that {clock.discipline} is not at work"
        yield Violation(place, message, f"at most {units.base(limit)}")
