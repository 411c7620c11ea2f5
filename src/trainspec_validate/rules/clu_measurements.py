"""Checks measured collectives and software versions of a cluster profile."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.documents.types.cluster import CollectiveMeasurement
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model import units
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import hint
from trainspec_validate.performance.costs.bandwidth import Ranks, Rates, bus_bandwidth_ceiling, bus_bandwidth_factor
from trainspec_validate.performance.derived.cluster import (
    compute_nics,
    domain_rate,
    memory_bytes,
    ranks_per_node,
    used_domain,
    within,
)
from trainspec_validate.performance.derived.job import Same, nodes_by_name
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, rule
from trainspec_validate.rules._libraries import fitting, has_own, runs_on, unknown, vendors

_FACTOR_TOLERANCE = 0.005
_TIME_TOLERANCE = 0.01
_MAX_SPREAD = 0.15
_LARGE_SHARE = 0.5
_LARGE_BYTES_PER_RANK = 2**20
_MOST_PAIRS = 500_000
_RANGE = re.compile(r"[<>=~^*|, ]|\blatest\b|\b[xX]\b")


@rule("TS-CLU-043")
def software_versions(cluster: ClusterProfile) -> Iterator[Violation]:
    """Software that measurements depend on is pinned."""
    components = list(_components(cluster))
    own = [i for i, measurement in enumerate(cluster.measurements) if measurement.source is None]
    if not components and not own:
        raise NotApplicable("no software and no measurement of the own machine is given")
    for pointer, component in components:
        if component.version is not None and _RANGE.search(str(component.version)):
            message = f"{component.version!r} is not one version of {component.name}"
            yield Violation(at(cluster, *pointer, "version"), message, "write the version that was used")
    if not own:
        return
    given = {str(pointer[-1]): component for pointer, component in components}
    missing = [key for key in ("collective_library", "driver") if key not in given or not given[key].version]
    if missing:
        yield Violation(
            at(cluster, "software") if cluster.software else at(cluster, "measurements", own[0]),
            f"a measurement of the own machine is given, but not the version of {' and '.join(missing)}",
            "add name and version to software",
        )


@rule("TS-CLU-075")
def library_vendor(cluster: ClusterProfile) -> Iterator[Violation]:
    """The declared collective library runs on the accelerators."""
    library, makers = cluster.software.collective_library if cluster.software else None, vendors(cluster.node_groups)
    if library is None:
        raise NotApplicable("no collective library is declared")
    place = at(cluster, "software", "collective_library", "name")
    if makers is None:
        reason = "gives accelerators whose maker the catalog does not list"
        raise Unresolved(place, reason, "state accelerator.vendor")
    if has_own(library.name, makers):
        raise NotApplicable(f"{library.name} is none of the libraries whose accelerators are known")
    able = runs_on(library.name, makers)
    if able is None:
        raise Uncovered(place, f"gives a collective library: {unknown(library.name, makers)}")
    if not able:
        yield Violation(
            at(cluster, "software", "collective_library", "name"),
            f"{library.name} does not run on accelerators of {' or '.join(sorted(makers))}",
            f"write {fitting(makers)}, or correct the accelerator",
        )


def _components(cluster: ClusterProfile) -> Iterator[tuple[Pointer, SoftwareComponent]]:
    if cluster.software is None:
        return
    for key in ("collective_library", "driver", "runtime", "operating_system"):
        component = getattr(cluster.software, key)
        if component is not None:
            yield ("software", key), component
    for i, component in enumerate(cluster.software.frameworks):
        yield ("software", "frameworks", i), component


def _measurements(cluster: ClusterProfile) -> list[tuple[int, CollectiveMeasurement]]:
    if not cluster.measurements:
        raise NotApplicable("no collective was measured")
    return list(enumerate(cluster.measurements))


def _group(cluster: ClusterProfile, measurement: CollectiveMeasurement) -> NodeGroup | None:
    """The group that was measured; None when several exist and none of them is named."""
    if measurement.group is None and len(cluster.node_groups) > 1:
        return None
    return next(iter(_groups(cluster, measurement)), None)


def _groups(cluster: ClusterProfile, measurement: CollectiveMeasurement) -> list[NodeGroup]:
    """The groups that can have been measured; where none is named, those with as many ranks, else all.

    Raises:
        NotApplicable: there are too many groups and measurements to hold each against each.
    """
    if measurement.group:
        found = nodes_by_name(Same(cluster)).get(measurement.group)
        return [found.group] if found else []
    if len(cluster.node_groups) * len(cluster.measurements) > _MOST_PAIRS:
        reason = f"has more than {_MOST_PAIRS:,} pairs of a measurement, which names no group, and a node group"
        raise Unresolved(at(cluster, "measurements"), reason, "name the group of each measurement")
    groups = list(cluster.node_groups)
    return [group for group in groups if group.num_nodes * ranks_per_node(group) >= measurement.num_ranks] or groups


def _domain_ranks(group: NodeGroup) -> int:
    """Ranks of one scale-up domain; of one node where there is none."""
    size = used_domain(group.scale_up) if group.scale_up else group.num_accelerators_per_node
    return size * group.accelerator.num_ranks_per_accelerator


@rule("TS-CLU-044")
def measured_ranks(cluster: ClusterProfile) -> Iterator[Violation]:
    """The ranks of a measurement exist and fill the domains that it names."""
    for i, own in _measurements(cluster):
        group = _group(cluster, own)
        if group is None:
            names = [g.name for g in cluster.node_groups]
            key, message = (
                ("group", f"no node group is named {own.group!r}") if own.group else ("num_ranks", "no group is named")
            )
            yield Violation(at(cluster, "measurements", i, key), message, hint(own.group or "", names))
            continue
        ranks, per_domain = group.num_nodes * ranks_per_node(group), _domain_ranks(group)
        domains = math.ceil(ranks / per_domain)
        if own.num_ranks > ranks:
            message = f"{own.num_ranks:,} ranks, but {group.name!r} has {ranks:,}"
            yield Violation(at(cluster, "measurements", i, "num_ranks"), message, f"at most {ranks}")
        elif own.num_domains > min(domains, own.num_ranks):
            limit = min(domains, own.num_ranks)
            message = f"{own.num_domains:,} domains, but there are {limit:,}"
            yield Violation(at(cluster, "measurements", i, "num_domains"), message, f"at most {limit}")
        elif own.num_ranks > own.num_domains * per_domain:
            least = math.ceil(own.num_ranks / per_domain)
            one = own.num_domains == 1
            where = "one domain, which num_domains is where it is absent," if one else f"{own.num_domains} domains"
            message = f"{own.num_ranks:,} ranks do not fit into {where} of {per_domain}"
            key = "num_ranks" if one else "num_domains"
            yield Violation(at(cluster, "measurements", i, key), message, f"set num_domains to {least} or more")


@rule("TS-CLU-045")
def bus_bandwidth_ratio(cluster: ClusterProfile) -> Iterator[Violation]:
    """Bus over algorithm bandwidth is the factor of operation and ranks."""
    judged = False
    for i, own in _measurements(cluster):
        bus, algorithm = own.bus_bandwidth_bytes_per_second, own.algorithm_bandwidth_bytes_per_second
        if bus is None or algorithm is None:
            continue
        judged = True
        factor = bus_bandwidth_factor(own.operation, own.num_ranks)
        if not within(bus / algorithm, factor, _FACTOR_TOLERANCE):
            yield Violation(
                at(cluster, "measurements", i, "bus_bandwidth_bytes_per_second"),
                f"bus over algorithm bandwidth is {bus / algorithm:.4g}, but {own.operation} "
                f"over {own.num_ranks} "
                f"ranks has the factor {factor:.4g}",
                f"{units.bytes_per_second(algorithm)} of algorithm bandwidth make "
                f"{units.bytes_per_second(factor * algorithm)} of bus bandwidth",
            )
    if not judged:
        raise NotApplicable("no measurement states both bandwidths")


def _ceiling(cluster: ClusterProfile, own: CollectiveMeasurement) -> float | None:
    """Largest bus bandwidth that a measurement can show; None when nothing bounds it."""
    ceilings = [_ceiling_of(cluster, own, group) for group in _groups(cluster, own)]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    return max(known) if known and len(known) == len(ceilings) else None


def _ceiling_of(cluster: ClusterProfile, own: CollectiveMeasurement, group: NodeGroup) -> float | None:
    if own.num_domains > own.num_ranks:
        return None
    ranks = Ranks(own.num_ranks, own.num_domains)
    parts = group.accelerator.num_ranks_per_accelerator
    link = domain_rate(group)
    nics = [nic for _, nic in compute_nics(group)]
    nodes = math.ceil(ranks.per_domain / ranks_per_node(group))
    share = nodes * sum(nic.num_per_node * nic.rate_bytes_per_second for nic in nics) / ranks.per_domain
    reduces = _reducing(Same(cluster))
    rates = Rates(link=link / parts if link is not None else None, nic=share if nics else None)
    ceiling = bus_bandwidth_ceiling(
        own.operation,
        ranks,
        rates,
        in_domain=own.in_network_reduction or bool(group.scale_up and group.scale_up.in_network_reduction),
        in_fabric=own.in_network_reduction and any(nic.fabric in reduces for nic in nics),
    )
    return None if math.isinf(ceiling) else ceiling


@lru_cache(maxsize=8)
def _reducing(same: Same[ClusterProfile]) -> frozenset[str]:
    """Fabrics whose switches can reduce."""
    return frozenset(fabric.name for fabric in same.document.fabrics if fabric.transport == "infiniband")


@rule("TS-CLU-046")
def bus_bandwidth_limit(cluster: ClusterProfile) -> Iterator[Violation]:
    """A claimed bus bandwidth stays below what links and NICs carry."""
    judged = False
    for i, own in _measurements(cluster):
        ceiling, bus = _ceiling(cluster, own), own.bus_bandwidth_bytes_per_second
        if ceiling is None or bus is None:
            continue
        judged = True
        if bus > ceiling:
            yield Violation(
                at(cluster, "measurements", i, "bus_bandwidth_bytes_per_second"),
                f"{units.bytes_per_second(bus)} of bus bandwidth over {own.num_ranks} ranks in "
                f"{own.num_domains} "
                f"domains, but links and NICs carry {units.bytes_per_second(ceiling)}",
                "most published systems reach 38 to 90 % of that bound",
            )
    if not judged:
        raise NotApplicable("no measurement with a bus bandwidth and links or NICs to compare it with")


@rule("TS-CLU-047")
def measured_size(cluster: ClusterProfile) -> Iterator[Violation]:
    """The buffer fits into memory and is large enough for the rate."""
    judged = False
    for i, own in _measurements(cluster):
        groups = _groups(cluster, own)
        memories = [memory / group.accelerator.num_ranks_per_accelerator for group, memory in _with_memory(groups)]
        if not memories or len(memories) < len(groups):
            continue
        judged = True
        place = at(cluster, "measurements", i, "message_bytes")
        largest = max(memories) / 2
        ceiling, bus = _ceiling(cluster, own), own.bus_bandwidth_bytes_per_second
        if own.message_bytes > largest:
            message = f"two buffers of {units.bytes_(own.message_bytes)} do not fit into {units.bytes_(2 * largest)}"
            yield Violation(place, message, f"at most {units.base(largest)}")
        elif ceiling and bus and bus >= _LARGE_SHARE * ceiling:
            least = own.num_ranks * _LARGE_BYTES_PER_RANK
            if own.message_bytes < least:
                message = (
                    f"{units.bytes_(own.message_bytes)} over {own.num_ranks} ranks cannot reach "
                    f"{units.percent(bus / ceiling)} of what links and NICs carry"
                )
                yield Violation(place, message, f"at least {least}, 1 MiB per rank")
    if not judged:
        reason = "gives measurements on accelerators whose memory the catalog does not list"
        raise Unresolved(at(cluster, "measurements"), reason, "state accelerator.memory_bytes")


def _with_memory(groups: list[NodeGroup]) -> list[tuple[NodeGroup, float]]:
    return [(group, memory) for group in groups if (memory := memory_bytes(group)) is not None]


@rule("TS-CLU-055")
def measured_time(cluster: ClusterProfile) -> Iterator[Violation]:
    """Buffer size over time is the algorithm bandwidth."""
    judged = False
    for i, own in _measurements(cluster):
        time, stated = own.time_seconds, own.algorithm_bandwidth_bytes_per_second
        if time is None or stated is None:
            continue
        judged = True
        rate = own.message_bytes / time
        if not within(stated, rate, _TIME_TOLERANCE):
            yield Violation(
                at(cluster, "measurements", i, "time_seconds"),
                f"{units.bytes_(own.message_bytes)} in {units.seconds(time)} are {units.bytes_per_second(rate)}, "
                f"but the algorithm bandwidth is {units.bytes_per_second(stated)}",
                f"at that bandwidth the buffer takes {units.number(own.message_bytes / stated)} s",
            )
    if not judged:
        raise NotApplicable("no measurement states its time and algorithm bandwidth")


@rule("TS-CLU-048")
def measured_spread(cluster: ClusterProfile) -> Iterator[Violation]:
    """Repeated runs agree."""
    judged = False
    for i, own in _measurements(cluster):
        if own.relative_spread is None:
            continue
        judged = True
        if own.relative_spread > _MAX_SPREAD:
            yield Violation(
                at(cluster, "measurements", i, "relative_spread"),
                f"repeated runs differ by {units.percent(own.relative_spread)}",
                f"at most {units.percent(_MAX_SPREAD)}; state slow and fast runs apart and find what parts them",
            )
    if not judged:
        raise NotApplicable("no measurement states the spread of repeated runs")
