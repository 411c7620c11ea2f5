"""Checks power and carbon figures of a cluster profile."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model import catalog, units
from trainspec_validate.performance.derived.cluster import listed, power_watts, total, within
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule

_NODE_POWER_FACTOR = 3.0
_NODE_POWER_BASE = 3000.0
_FACILITY_SHARE = (1.0, 5.0)
_LISTED_SHARE = 0.8
"""Least share of the catalog's power that limits of one product differ by: 500 and 560 W are published of MI250X."""
_WRONG_SHARE = 0.4
"""Below it a figure contradicts the catalog, which another requirement reports."""
_FLOPS_PER_JOULE = (0.02e12, 10e12)
"""Dense 16-bit operations for each joule; the catalog has 0.35e12 to 2.3e12."""


@rule("TS-CLU-040")
def carbon_evidence(cluster: ClusterProfile) -> Iterator[Violation]:
    """A carbon intensity says whose it is and where it is written."""
    power = cluster.power
    if power is None or power.carbon_intensity_kilograms_per_kilowatt_hour is None:
        raise NotApplicable("no carbon intensity is given")
    figures = {"carbon_basis": power.carbon_basis, "carbon_source": power.carbon_source}
    missing = [key for key, value in figures.items() if value is None]
    if missing:
        yield Violation(
            at(cluster, "power", "carbon_intensity_kilograms_per_kilowatt_hour"),
            f"the intensity has no {' and no '.join(missing)}",
            "say location or market, and give the publication with its year",
        )


@rule("TS-CLU-041")
def node_power(cluster: ClusterProfile) -> Iterator[Violation]:
    """A node draws at least what its accelerators draw."""
    for i, group, node, boards in _powers(cluster):
        if node < boards:
            yield _power(cluster, i, group, node, boards, f"at least {units.base(boards)}")


@rule("TS-CLU-066")
def node_power_share(cluster: ClusterProfile) -> Iterator[Violation]:
    """A node draws not many times what its accelerators draw."""
    for i, group, node, boards in _powers(cluster):
        high = _NODE_POWER_FACTOR * boards + _NODE_POWER_BASE
        if node > high:
            yield _power(cluster, i, group, node, boards, f"up to {units.base(high)} is plausible")


@rule("TS-CLU-078")
def power_cap(cluster: ClusterProfile) -> Iterator[Violation]:
    """A cap is below what it caps."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        own, known = group.accelerator, listed(group)
        limit = own.power_watts or (known.power_watts if known else None)
        if own.power_cap_watts is None or limit is None:
            continue
        judged = True
        if own.power_cap_watts > limit:
            yield Violation(
                at(cluster, "node_groups", i, "accelerator", "power_cap_watts"),
                f"accelerators are capped at {units.watts(own.power_cap_watts)}, above their limit of "
                f"{units.watts(limit)}",
                f"at most {units.base(limit)}, or state power_watts where boards have a higher limit",
            )
    if not judged:
        raise NotApplicable("no accelerator with a known power limit has a cap")


@rule("TS-CLU-082")
def listed_power(cluster: ClusterProfile) -> Iterator[Violation]:
    """The power limit of a listed accelerator is about that of the catalog, not a cap or that of another card."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        own, known = group.accelerator.power_watts, listed(group)
        if own is None or known is None or known.power_watts is None:
            continue
        judged = True
        if _WRONG_SHARE * known.power_watts <= own < _LISTED_SHARE * known.power_watts:
            others = [
                card.title
                for card in catalog.accelerators().values()
                if card.power_watts and within(own, card.power_watts, 0.01) and _related(card.title, known.title)
            ]
            other = f", the limit of {' or '.join(others)}" if others else ""
            yield Violation(
                at(cluster, "node_groups", i, "accelerator", "power_watts"),
                f"power_watts is {units.watts(own)}{other}, and that of {known.title} is "
                f"{units.watts(known.power_watts)}",
                f"write {units.base(known.power_watts)}, and a lower setting of the site as power_cap_watts"
                + ("; or correct the model" if others else ""),
            )
    if not judged:
        raise NotApplicable("no accelerator whose power the catalog lists states its power")


def _related(one: str, other: str) -> bool:
    """True for titles of one product in several forms, such as `NVIDIA H100 SXM` and `NVIDIA H100 PCIe`."""
    return one.split()[:2] == other.split()[:2] and one != other


@rule("TS-CLU-076")
def accelerator_power(cluster: ClusterProfile) -> Iterator[Violation]:
    """The power of an accelerator fits its peak rate where the catalog has no power to compare with."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        own, known = group.accelerator, listed(group)
        peak = _sixteen_bit_peak(group)
        if own.power_watts is None or peak is None or (known is not None and known.power_watts is not None):
            continue
        judged = True
        low, high = (peak / rate for rate in reversed(_FLOPS_PER_JOULE))
        if not low <= own.power_watts <= high:
            yield Violation(
                at(cluster, "node_groups", i, "accelerator", "power_watts"),
                f"power_watts is {units.watts(own.power_watts)} for a 16-bit peak of {units.flops_per_second(peak)}",
                f"{units.base(low)} to {units.base(high)} is plausible; correct the power, in watts, or the peak",
            )
    if not judged:
        raise NotApplicable("no accelerator with a 16-bit peak whose power the catalog lacks states its power")


def _sixteen_bit_peak(group: NodeGroup) -> float | None:
    """The dense peak in bf16 or fp16, as declared, else by the catalog."""
    known = listed(group)
    rates = {**(known.peak_flops_per_second if known else {})}
    rates.update({peak.format: peak.flops_per_second for peak in group.accelerator.peak_rates})
    return next((rates[name] for name in ("bf16", "fp16") if name in rates), None)


def _powers(cluster: ClusterProfile) -> list[tuple[int, NodeGroup, float, float]]:
    """Groups with the power of a node and that of its accelerators together.

    Raises:
        NotApplicable: there is none.
    """
    found = []
    for i, group in enumerate(cluster.node_groups):
        one = power_watts(group)
        if group.node_power_watts is not None and one is not None:
            found.append((i, group, group.node_power_watts, one * group.num_accelerators_per_node))
    return require(found, "no group with the power of a node and of its accelerators")


def _power(  # noqa: PLR0913, PLR0917
    cluster: ClusterProfile, i: int, group: NodeGroup, node: float, boards: float, told: str
) -> Violation:
    return Violation(
        at(cluster, "node_groups", i, "node_power_watts"),
        f"a node draws {units.watts(node)}, its {group.num_accelerators_per_node} accelerators draw "
        f"{units.watts(boards)}",
        told,
    )


@rule("TS-CLU-042")
def facility_power(cluster: ClusterProfile) -> Iterator[Violation]:
    """The facility can feed the nodes."""
    supply = require(cluster.power.it_power_watts if cluster.power else None, "the facility's power is not given")
    draws = {group.name: _draw(group) for group in cluster.node_groups}
    known = [draw for draw in draws.values() if draw is not None]
    unknown = " and ".join(repr(name) for name, draw in draws.items() if draw is None)
    demand = sum(known)
    low, high = (share * demand for share in _FACILITY_SHARE)
    if supply < low or (supply > high and not unknown):
        without = f" without those of {unknown}" if unknown else ""
        yield Violation(
            at(cluster, "power", "it_power_watts"),
            f"the facility delivers {units.watts(supply)}, the nodes{without} draw {units.watts(demand)}",
            f"{units.base(low)} or more is plausible" if unknown else _between(low, high),
        )
    elif unknown:
        reason = f"does not give the power of {unknown}, and the catalog has no figure"
        raise Unresolved(at(cluster, "power", "it_power_watts"), reason, "state node_power_watts")


def _between(low: float, high: float) -> str:
    return f"between {units.base(low)} and {units.base(high)} is plausible"


def _draw(group: NodeGroup) -> float | None:
    """What the nodes of a group draw, or at least their accelerators; None where neither is known."""
    if group.node_power_watts is not None:
        return group.num_nodes * group.node_power_watts
    boards = power_watts(group)
    return None if boards is None else total(group) * boards
