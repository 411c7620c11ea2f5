"""Compares copies between devices, and Linpack, of each node with the links and peaks that a profile declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.observation import BusBandwidth, CopyRate, LinpackRun, NodeObservation
from trainspec_validate.model import units
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.cluster import domain_rate, host_link_rate, listed
from trainspec_validate.rules import Uncovered, Unresolved, Violation, at

Placed = tuple[int, NodeObservation, NodeGroup | None]
_KEY = "observed_nodes"
_TOLERANCE = 0.02
_HOST_FLOORS = {3: 9e9, 4: 21e9, 5: 48e9}
"""Least rate of a copy from or to the host over 16 lanes of PCIe, by generation, and below between devices by that of
NVLink: what the node health checks of Azure accept on nodes with V100, A100, H100 and H200
(Azure/azurehpc-health-checks@0e0a1ac2:conf, `check_gpu_bw`)."""
_HOST_LANES = 16
_DOMAIN_FLOORS = {300e9: 235e9, 450e9: 335e9}
"""By the rate of one accelerator into its domain: NVLink 3 with 12 links, NVLink 4 with 18."""
_SHOWN = 8


def rates(cluster: ClusterProfile, nodes: Sequence[Placed]) -> Iterator[Violation]:
    """Rates that no such machine can have, and copies below what a cloud accepts on machines of the same links."""
    for i, node, group in nodes:
        if group is None:
            continue
        for kind in dict.fromkeys(own.kind for own in node.copies):
            yield from _copies(cluster, (_KEY, i, "copies"), (node, kind), group)
        for j, run in enumerate(node.linpack_runs):
            yield from _linpack(cluster, (_KEY, i, "linpack_runs", j), (node, run), group)


def _copies(
    cluster: ClusterProfile, place: Pointer, found: tuple[NodeObservation, str], group: NodeGroup
) -> Iterator[Violation]:
    """The fastest copy of a kind above the rate of its link, and the slowest below the least rate."""
    node, kind = found
    mine = [(own.bandwidth_bytes_per_second, j) for j, own in enumerate(node.copies) if own.kind == kind]
    link, least = _link(group, node.copies[mine[0][1]]), _least(group, node.copies[mine[0][1]])
    fast = [one for one in mine if link is not None and one[0] > link * (1 + _TOLERANCE)]
    slow = [one for one in mine if least is not None and one[0] < least]
    for odd, pick, told, remedy in (
        (fast, max, f"the declared link has {_rate(link)}", "correct the link of the profile, or measure this machine"),
        (
            slow,
            min,
            f"accepted are {_rate(least)} of {_rate(link)}",
            "compare lanes, generation and clocks of the links",
        ),
    ):
        if odd:
            rate, j = pick(odd)
            several = f" ({len(odd)} of {len(mine)} devices)" if len(odd) > 1 else ""
            message = f"{node.name}: {_name(node.copies[j])} runs at {_rate(rate)}{several}, {told}"
            yield Violation(at(cluster, *place, j, "bandwidth_bytes_per_second"), message, remedy)


def _name(own: CopyRate) -> str:
    """A copy in words.

    >>> _name(CopyRate(kind="device-to-device", device=1, peer=2, bandwidth_bytes_per_second=1e9))
    'a copy between devices 1 and 2'
    """
    if own.kind == "device-to-device":
        return f"a copy between devices {own.device} and {own.peer}"
    return f"a copy {'to' if own.kind == 'host-to-device' else 'from'} device {own.device}"


def _rate(bytes_per_second: float | None) -> str:
    return units.bytes_per_second(bytes_per_second or 0.0)


def _link(group: NodeGroup | None, own: CopyRate) -> float | None:
    """Declared rate of the link that a copy takes."""
    if group is None:
        return None
    if own.kind == "device-to-device":
        return domain_rate(group)
    link = group.host_link
    return None if link is None else link.bandwidth_bytes_per_second or host_link_rate(link)


def _least(group: NodeGroup | None, own: CopyRate) -> float | None:
    """The published least rate for the declared link; None where there is none."""
    if group is None:
        return None
    if own.kind == "device-to-device":
        scale_up = group.scale_up
        is_nvlink = scale_up is not None and scale_up.technology == "nvlink" and scale_up.topology == "switched"
        return _DOMAIN_FLOORS.get(domain_rate(group) or 0.0) if is_nvlink else None
    link = group.host_link
    if link is None or link.technology != "pcie" or link.num_lanes != _HOST_LANES or link.num_links != 1:
        return None
    return _HOST_FLOORS.get(link.generation or 0)


def _linpack(
    cluster: ClusterProfile, place: Pointer, found: tuple[NodeObservation, LinpackRun], group: NodeGroup | None
) -> Iterator[Violation]:
    """A rate for each rank above every peak of an accelerator: emulated FP64 may exceed the peak of FP64 itself."""
    node, run = found
    peak, each = _highest_peak(group), run.flops_per_second / run.num_ranks
    if peak is not None and each > peak * (1 + _TOLERANCE):
        message = f"{node.name}: Linpack on {run.num_ranks} ranks runs at {each / 1e12:.4g} TFLOP/s each"
        told = f"{message}, more than the {peak / 1e12:.4g} TFLOP/s of an accelerator in any format"
        yield Violation(at(cluster, *place, "flops_per_second"), told, "find which machine was measured")


def _highest_peak(group: NodeGroup | None) -> float | None:
    if group is None:
        return None
    known = listed(group)
    peaks = [peak.flops_per_second for peak in group.accelerator.peak_rates]
    peaks += known.peak_flops_per_second.values() if known is not None else ()
    return max(peaks, default=None)


def refuse_unpublished(cluster: ClusterProfile, nodes: Sequence[Placed], is_bound: Set[int]) -> None:
    """Leave open rates for which no accepted value is published.

    Args:
        cluster: the profile.
        nodes: its nodes that answered.
        is_bound: those of which a bus bandwidth was compared with a predicted value, or with those of other nodes.

    Raises:
        Unresolved: a bus bandwidth is among them, of which a larger message would be judged; it has the numbers.
        Uncovered: there are others alone.
    """
    has_benchmark = False
    told: list[str] = []
    first: Pointer | None = None
    for i, node, group in nodes:
        copies = [own for own in node.copies if _least(group, own) is None]
        words = [f"{len(copies)} copies at {_span(copies)}"] if copies else []
        words += [
            f"Linpack on {run.num_ranks} ranks at {run.flops_per_second / 1e12:.4g} TFLOP/s"
            for run in node.linpack_runs
        ]
        key = "copies" if copies else "linpack_runs" if words else "bus_bandwidths"
        unbound = [_told(own) for own in node.bus_bandwidths if i not in is_bound]
        has_benchmark |= bool(unbound)
        words += unbound
        if words:
            first = first or (_KEY, i, key)
            told.append(f"{node.name} ({', '.join(words)})")
    if first is not None:
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        reason = f"has rates for which no least value is published: {', '.join(told[:_SHOWN])}{more}"
        if has_benchmark:
            remedy = "measure messages of 256 MiB or more, in a group whose scale_up is declared"
            raise Unresolved(at(cluster, *first), reason, remedy)
        raise Uncovered(at(cluster, *first), reason, "agree on values with the seller")


def _told(own: BusBandwidth) -> str:
    rate = units.bytes_per_second(own.bus_bandwidth_bytes_per_second)
    return f"{own.operation} of {units.bytes_(own.message_bytes)} at {rate}"


def _span(copies: Sequence[CopyRate]) -> str:
    values = [own.bandwidth_bytes_per_second for own in copies]
    low, high = units.bytes_per_second(min(values)), units.bytes_per_second(max(values))
    return low if low == high else f"{low} to {high}"
