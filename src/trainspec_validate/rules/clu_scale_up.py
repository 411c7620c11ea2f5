"""Checks the scale-up domains of a cluster profile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import NodeGroup, ScaleUp
from trainspec_validate.model import units
from trainspec_validate.model.catalog import CatalogAccelerator, ScaleUpLink, links
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.cluster import (
    listed,
    names_generation,
    total,
    used_domain,
    within,
)
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule

_RATE_TOLERANCE = 0.12
_PRODUCT_TOLERANCE = 0.01
_MAX_SWITCH_FACTOR = 8
_RATE_KEYS = ("bandwidth_bytes_per_second", "link_bandwidth_bytes_per_second")
_ANY_CARD = frozenset({"pcie", "other"})
"""What joins cards that have no links of their own."""
_NODE_BOUND = frozenset({"xgmi", "gaudi-roce", "pcie"})


@dataclass(frozen=True, slots=True)
class _Domain:
    """The scale-up section of one group, with what the tables say about it."""

    pointer: Pointer
    group: NodeGroup
    scale_up: ScaleUp
    generation: str
    row: ScaleUpLink | None


def _domains(cluster: ClusterProfile) -> list[_Domain]:
    found = []
    for i, group in enumerate(cluster.node_groups):
        scale_up = group.scale_up
        if scale_up is None:
            continue
        known = listed(group)
        own = known.scale_up if known else {}
        # Another generation than the accelerator has is one mistake (TS-CLU-008): its links are those of its own.
        same = own.get("technology") == scale_up.technology
        generation = (own.get("generation") if same else None) or scale_up.generation or own.get("generation", "")
        if known and _is_bridge(scale_up, known):
            generation = known.bridge["generation"]
        row = links().scale_up.get((scale_up.technology, generation.casefold()))
        found.append(_Domain(("node_groups", i, "scale_up"), group, scale_up, generation.casefold(), row))
    return require(found, "no group has a scale_up section")


def _has_listed_links(domain: _Domain) -> bool:
    known = listed(domain.group)
    return known is not None and bool(known.scale_up or known.bridge)


def _is_bridge(scale_up: ScaleUp, known: CatalogAccelerator) -> bool:
    """Whether these are the bridges of a card, which people also call by the generation of their links."""
    bridge = known.bridge
    names = {None, bridge["generation"], bridge["generation"].removesuffix("-bridge")} if bridge else set()
    return bool(bridge) and scale_up.technology == bridge["technology"] and scale_up.generation in names


@rule("TS-CLU-008")
def scale_up_generation(cluster: ClusterProfile) -> Iterator[Violation]:
    """The scale-up links are those of the accelerator."""
    judged = False
    for domain in _domains(cluster):
        known = listed(domain.group)
        if known is None or not (known.scale_up or known.bridge or known.no_scale_up):
            continue
        judged = True
        if not known.scale_up:
            yield from _unlisted_links(cluster, domain, known)
            continue
        for key in ("technology", "generation"):
            own, wanted = getattr(domain.scale_up, key), known.scale_up[key]
            if own is not None and not names_generation(own, wanted):
                yield Violation(
                    at(cluster, *domain.pointer, key),
                    f"{key} is {own!r}, but {known.title} has {known.scale_up['technology']} "
                    f"{known.scale_up['generation']}",
                    f"write {wanted!r}",
                )
                break
    if not judged:
        raise NotApplicable("no accelerator whose scale-up links the catalog lists")


def _unlisted_links(cluster: ClusterProfile, domain: _Domain, known: CatalogAccelerator) -> Iterator[Violation]:
    """Links of a card that has none, or other ones than its bridges."""
    own = f"{domain.scale_up.technology} {domain.scale_up.generation or ''}".strip()
    if domain.scale_up.technology in _ANY_CARD or _is_bridge(domain.scale_up, known):
        return
    has, told = "no scale-up links", "leave scale_up out"
    if known.bridge:
        name = f"{known.bridge['technology']} {known.bridge['generation']}"
        has, told = f"{name} at most", f"write {name}, or leave scale_up out where there are no bridges"
    message = f"scale-up links are {own}, but {known.title} has {has}"
    yield Violation(at(cluster, *domain.pointer, "technology"), message, told)


@rule("TS-CLU-010")
def scale_up_rate_one_way(cluster: ClusterProfile) -> Iterator[Violation]:
    """The stated rate is the nominal one-way rate of the generation."""
    judged = False
    for domain in _domains(cluster):
        if domain.row is None or not _has_listed_links(domain):
            continue
        for key in _RATE_KEYS:
            own, nominal = getattr(domain.scale_up, key), getattr(domain.row, key)
            if key == "bandwidth_bytes_per_second" and _is_one_node(domain):
                nominal = domain.row.node_bandwidth_bytes_per_second or nominal
            if own is None or nominal is None:
                continue
            judged = True
            if not within(own, nominal, _RATE_TOLERANCE):
                yield _wrong_rate(cluster, domain, key, own, nominal)
                break
    if not judged:
        raise NotApplicable("no scale-up rate of an accelerator whose links the catalog has")


def _is_one_node(domain: _Domain) -> bool:
    return domain.scale_up.domain_num_accelerators <= domain.group.num_accelerators_per_node


def _wrong_rate(cluster: ClusterProfile, domain: _Domain, key: str, own: float, nominal: float) -> Violation:
    told = f"write {units.base(nominal)}"
    if within(own, 2 * nominal, _RATE_TOLERANCE):
        told += "; vendors quote both directions together, which is twice as much"
    return Violation(
        at(cluster, *domain.pointer, key),
        f"{domain.scale_up.technology} {domain.generation} carries {units.bytes_per_second(nominal)} "
        f"one way, not {units.bytes_per_second(own)}",
        told,
    )


@rule("TS-CLU-011")
def scale_up_links(cluster: ClusterProfile) -> Iterator[Violation]:
    """Links times the rate of one link make the rate of the accelerator."""
    judged = False
    for domain in _domains(cluster):
        scale_up, row = domain.scale_up, domain.row
        if scale_up.num_links is None:
            continue
        if row is not None and row.num_links is not None and _has_listed_links(domain):
            judged = True
            if scale_up.num_links != row.num_links:
                yield Violation(
                    at(cluster, *domain.pointer, "num_links"),
                    f"{row.technology} {row.generation} has {row.num_links} links per accelerator, "
                    f"not {scale_up.num_links}",
                    f"write {row.num_links}",
                )
                continue
        one, whole = scale_up.link_bandwidth_bytes_per_second, scale_up.bandwidth_bytes_per_second
        if one is None or whole is None:
            continue
        judged = True
        product = scale_up.num_links * one
        if not within(whole, product, _PRODUCT_TOLERANCE):
            yield Violation(
                at(cluster, *domain.pointer, "bandwidth_bytes_per_second"),
                f"{scale_up.num_links} links of {units.bytes_per_second(one)} make "
                f"{units.bytes_per_second(product)}, not {units.bytes_per_second(whole)}",
                f"write {units.base(product)}, or correct the links",
            )
    if not judged:
        raise NotApplicable("no group states scale-up links with a figure to compare")


@rule("TS-CLU-012")
def scale_up_domain(cluster: ClusterProfile) -> Iterator[Violation]:
    """Domains are as large as the hardware allows and divide the group evenly."""
    for domain in _domains(cluster):
        scale_up, group = domain.scale_up, domain.group
        physical, used = scale_up.domain_num_accelerators, used_domain(scale_up)
        key = "domain_num_accelerators" if scale_up.used_num_accelerators is None else "used_num_accelerators"
        place = at(cluster, *domain.pointer, key)
        if used > physical:
            yield Violation(place, f"{used} accelerators of a domain of {physical} are used", f"at most {physical}")
        elif used % group.num_accelerators_per_node and group.num_accelerators_per_node % used:
            yield Violation(
                place,
                f"{used} accelerators are no whole number of nodes with "
                f"{group.num_accelerators_per_node} each, "
                "nor an even part of one",
                f"write a multiple or a divisor of {group.num_accelerators_per_node}",
            )
        elif total(group) % used and not _listed_domains(cluster, group):
            yield Violation(
                place,
                f"the {total(group):,} accelerators of {group.name!r} are no whole number of domains of {used}",
                "write what jobs use of each domain in used_num_accelerators, or list the domains in layout",
            )


def _listed_domains(cluster: ClusterProfile, group: NodeGroup) -> bool:
    nodes = cluster.layout.nodes if cluster.layout else ()
    return any(node.group == group.name and node.scale_up_domain is not None for node in nodes)


@rule("TS-CLU-013")
def domain_span(cluster: ClusterProfile) -> Iterator[Violation]:
    """Only links that leave the node make domains of several nodes."""
    for domain in _domains(cluster):
        scale_up, size = domain.scale_up, domain.group.num_accelerators_per_node
        bound = scale_up.technology in _NODE_BOUND
        bound = bound or (scale_up.technology == "nvlink" and domain.generation in {"1", "2", "3"})
        bound = bound or (listed(domain.group) is not None and "-sxm" in domain.group.accelerator.model)
        if bound and scale_up.domain_num_accelerators > size:
            yield Violation(
                at(cluster, *domain.pointer, "domain_num_accelerators"),
                f"a domain of {scale_up.domain_num_accelerators} spans several nodes of {size}, but "
                f"{scale_up.technology} {domain.generation} stays inside one".replace("  ", " "),
                f"write {size}, or waive this with the name of the product",
            )


@rule("TS-CLU-014")
def scale_up_shape(cluster: ClusterProfile) -> Iterator[Violation]:
    """Links, switches and in-network reduction fit the topology of the domain."""
    for domain in _domains(cluster):
        scale_up = domain.scale_up
        peers = scale_up.domain_num_accelerators - 1
        if scale_up.topology == "full-mesh" and scale_up.num_links is not None and scale_up.num_links < peers:
            yield Violation(
                at(cluster, *domain.pointer, "num_links"),
                f"a full mesh of {peers + 1} accelerators needs {peers} links each, not {scale_up.num_links}",
                f"write {peers}, or another topology",
            )
        yield from _switches(cluster, domain)
        yield from _reduction(cluster, domain)


@rule("TS-CLU-081")
def scale_up_topology(cluster: ClusterProfile) -> Iterator[Violation]:
    """The topology of a domain is one that its links are built in."""
    judged = False
    for domain in _domains(cluster):
        built, stated = domain.row.topologies if domain.row else (), domain.scale_up.topology
        if not built:
            continue
        judged = True
        if stated not in built and stated != "other":
            technology = f"{domain.scale_up.technology} {domain.generation}"
            yield Violation(
                at(cluster, *domain.pointer, "topology"),
                f"the topology is {stated}, and published machines have {technology} as {' or '.join(built)}",
                f"write {built[0]}, or correct the technology",
            )
    if not judged:
        raise NotApplicable("no scale-up links whose topologies the catalog lists")


def _switches(cluster: ClusterProfile, domain: _Domain) -> Iterator[Violation]:
    scale_up = domain.scale_up
    place = at(cluster, *domain.pointer, "num_switches")
    if scale_up.num_switches is None:
        return
    if (scale_up.topology == "switched") != (scale_up.num_switches > 0):
        if scale_up.topology in {"hybrid-mesh", "other"}:
            return
        yield Violation(
            place,
            f"a domain with topology {scale_up.topology!r} has {scale_up.num_switches} switches",
            "only a switched domain has switches, and it has at least one",
        )
        return
    needed = _needed_chips(domain)
    if scale_up.num_links and needed is not None and scale_up.num_switches < needed:
        yield Violation(place, _chips(domain), f"at least {needed} have ports enough")


def _num_links(domain: _Domain) -> int | None:
    """Links of one accelerator, as declared, else by the table."""
    return domain.scale_up.num_links or (domain.row.num_links if domain.row else None)


def _needed_chips(domain: _Domain) -> int | None:
    """Switch chips whose ports take all links of a domain; None where ports or links are not known."""
    scale_up, ports, links_ = domain.scale_up, domain.row.num_switch_ports if domain.row else None, _num_links(domain)
    if ports is None or links_ is None or not scale_up.num_switches:
        return None
    return math.ceil(scale_up.domain_num_accelerators * links_ / ports)


def _chips(domain: _Domain) -> str:
    scale_up, ports = domain.scale_up, domain.row.num_switch_ports if domain.row else None
    return (
        f"{scale_up.domain_num_accelerators} accelerators with {_num_links(domain)} links each have "
        f"{scale_up.num_switches:,} switch chip{'' if scale_up.num_switches == 1 else 's'} of {ports} ports"
    )


@rule("TS-CLU-063")
def scale_up_plausible(cluster: ClusterProfile) -> Iterator[Violation]:
    """Rates outside the catalog, sizes of domains and counts of chips are near what is published."""
    domains = [domain for domain in _domains(cluster) if domain.row is not None]
    if not domains:
        raise NotApplicable("no scale-up links of a generation that the table of links has")
    for domain in domains:
        scale_up, row = domain.scale_up, domain.row
        for key in () if _has_listed_links(domain) else _RATE_KEYS:
            own, nominal = getattr(scale_up, key), getattr(row, key)
            if own is not None and nominal is not None and own > nominal * (1 + _RATE_TOLERANCE):
                yield _wrong_rate(cluster, domain, key, own, nominal)
                break
        largest = row.max_domain_num_accelerators if row else None
        if largest is not None and scale_up.domain_num_accelerators > largest:
            yield Violation(
                at(cluster, *domain.pointer, "domain_num_accelerators"),
                f"published domains of {scale_up.technology} {domain.generation} join at most {largest} accelerators, "
                f"not {scale_up.domain_num_accelerators}",
                f"write {largest} or less, or waive this with the name of the product",
            )
        needed = _needed_chips(domain)
        if needed is not None and (scale_up.num_switches or 0) > _MAX_SWITCH_FACTOR * needed:
            place = at(cluster, *domain.pointer, "num_switches")
            yield Violation(place, _chips(domain), f"{needed} to {_MAX_SWITCH_FACTOR * needed} are plausible")


def _reduction(cluster: ClusterProfile, domain: _Domain) -> Iterator[Violation]:
    scale_up = domain.scale_up
    if not scale_up.in_network_reduction:
        return
    place = at(cluster, *domain.pointer, "in_network_reduction")
    if scale_up.topology != "switched":
        message = f"a domain with topology {scale_up.topology!r} has no switch that could reduce"
    elif scale_up.technology == "nvlink" and domain.generation in {"1", "2", "3"}:
        message = f"switches of nvlink {domain.generation} do not reduce; those of generation 4 are the first"
    else:
        return
    yield Violation(place, message, "write false")


@rule("TS-CLU-015")
def torus_extents(cluster: ClusterProfile) -> Iterator[Violation]:
    """The axes of a torus multiply to its accelerators, and each says whether it is closed."""
    judged = False
    for domain in _domains(cluster):
        scale_up = domain.scale_up
        if not scale_up.dimensions and not scale_up.wraparound:
            continue
        judged = True
        wrong = _torus(scale_up)
        if wrong is not None:
            key, message, told = wrong
            yield Violation(at(cluster, *domain.pointer, key), message, told)
    if not judged:
        raise NotApplicable("no domain states the axes of a torus")


def _torus(scale_up: ScaleUp) -> tuple[str, str, str] | None:
    """Key, message and help of the first thing that is wrong with the axes."""
    extents, wraparound = scale_up.dimensions, scale_up.wraparound
    size = used_domain(scale_up)
    if scale_up.topology != "torus":
        key = "dimensions" if extents else "wraparound"
        message = f"{key} are given for topology {scale_up.topology!r}"
        return key, message, "write topology: torus, or leave the key out"
    if math.prod(extents) not in {scale_up.domain_num_accelerators, size}:
        product = f"{' x '.join(map(str, extents))} is {math.prod(extents)}"
        return (
            "dimensions",
            f"{product}, but a domain has {size} accelerators",
            f"give extents that multiply to {size}",
        )
    if len(wraparound) != len(extents):
        key = "wraparound" if wraparound else "dimensions"
        given = f"wraparound has {len(wraparound)} of their values" if wraparound else "wraparound is not given"
        return key, f"{len(extents)} axes, but {given}", f"write wraparound with {len(extents)} values, one per axis"
    return None
