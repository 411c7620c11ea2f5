"""Finds the shape of a scale-up domain from the links between the accelerators of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainspec_validate.model.catalog import links

_NVLINK_MAX = max(row.num_links or 0 for row in links().scale_up.values() if row.technology == "nvlink")
"""Most NVLink links of one accelerator that any generation has."""
_NVLINK_MAX_MESHED = 18
"""Most NVLink links of one accelerator on boards without switches."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of the domains of one node; None is not known."""

    topology: str | None
    num_accelerators: int | None
    """Accelerators that reach each other on the node."""
    num_links: int | None
    """Links of one accelerator."""
    islands: tuple[frozenset[int], ...] = field(default=(), repr=False, compare=False)
    """Sets of positions that the links join."""


def components(size: int, pairs: Mapping[tuple[int, int], int]) -> list[frozenset[int]]:
    """Sets of positions that links join, the largest first; positions without links are left out.

    >>> [sorted(part) for part in components(4, {(0, 1): 2})]
    [[0, 1]]
    """
    neighbours: dict[int, set[int]] = {k: set() for k in range(size)}
    for (one, other), count in pairs.items():
        if count and one != other:
            neighbours[one].add(other)
            neighbours[other].add(one)
    found: list[frozenset[int]] = []
    left = {k for k, near in neighbours.items() if near}
    while left:
        part, front = set[int](), [left.pop()]
        while front:
            here = front.pop()
            part.add(here)
            front.extend(neighbours[here] - part)
        left -= part
        found.append(frozenset(part))
    return sorted(found, key=lambda part: (-len(part), min(part)))


def domain_size(size: int, parts: Sequence[frozenset[int]]) -> int | None:
    """Accelerators of one domain; None where the domains of the node differ in size or leave accelerators out.

    >>> domain_size(4, [frozenset({0, 1}), frozenset({2, 3})]), domain_size(4, [frozenset({0, 1})])
    (2, None)
    """
    sizes = {len(part) for part in parts}
    return sizes.pop() if len(sizes) == 1 and sum(map(len, parts)) == size else None


def meshed(size: int, pairs: Mapping[tuple[int, int], int], *, count_links: bool = True) -> Shape | None:
    """Shape of accelerators that are joined to each other directly; None without any link.

    Every pair of a domain joined by as many links is a full mesh, two neighbours each a ring, anything else a hybrid
    mesh; so are separate pairs, each of which is a domain. Domains that differ in size have no common shape.

    >>> meshed(4, {(a, b): 1 for a in range(4) for b in range(4) if a != b})
    Shape(topology='full-mesh', num_accelerators=4, num_links=3)
    >>> meshed(4, {(0, 1): 1, (1, 0): 1})
    Shape(topology=None, num_accelerators=None, num_links=None)
    """
    parts = tuple(components(size, pairs))
    if not parts:
        return None
    domain = domain_size(size, parts)
    if domain is None:
        return Shape(None, None, None, parts)
    degrees = {sum(pairs.get((k, other), 0) for other in range(size) if other != k) for k in range(size)}
    num_links = degrees.pop() if count_links and len(degrees) == 1 else None
    shapes = {_joined(part, pairs) for part in parts}
    paired = len(parts) > 1 and domain == 2
    return Shape(shapes.pop() if len(shapes) == 1 and not paired else "hybrid-mesh", domain, num_links, parts)


def _joined(part: frozenset[int], pairs: Mapping[tuple[int, int], int]) -> str:
    """Shape of one domain; pairs inside a larger node are the smallest hybrid mesh."""
    counts = {pairs.get((one, other), 0) for one in part for other in part if one != other}
    if len(counts) == 1:
        return "full-mesh"
    degrees = {sum(1 for other in part if other != one and pairs.get((one, other))) for one in part}
    return "ring" if degrees == {2} and len(counts - {0}) == 1 else "hybrid-mesh"


def from_nvlink_matrix(size: int, pairs: Mapping[tuple[int, int], int]) -> Shape | None:
    """Shape of a matrix that shows the links of each pair; through switches every pair shows all of a device's links.

    More links than any generation has cannot be direct, so that they go through switches. Up to 18 in all are taken
    as direct; what is between, or two devices alone, stays open. Each island of accelerators is a domain.
    Source: nvidia-smi manual; links.yaml.

    >>> from_nvlink_matrix(8, {(a, b): 18 for a in range(8) for b in range(8) if a != b})
    Shape(topology='switched', num_accelerators=8, num_links=18)
    >>> from_nvlink_matrix(8, {(a, b): 18 for a in range(8) for b in range(8) if a != b and a // 4 == b // 4})
    Shape(topology='switched', num_accelerators=4, num_links=18)
    >>> from_nvlink_matrix(4, {(0, 1): 4, (1, 0): 4, (2, 3): 4, (3, 2): 4}).topology
    'hybrid-mesh'
    """
    shape = meshed(size, pairs)
    if shape is None or shape.num_accelerators is None or (shape.num_accelerators == 2 and size > 2):
        return shape
    domain = shape.num_accelerators
    counts = {pairs.get((one, other), 0) for part in shape.islands for one in part for other in part if one != other}
    if min(counts) * (domain - 1) > _NVLINK_MAX:
        return replace(shape, topology="switched", num_links=counts.pop() if len(counts) == 1 else None)
    if shape.topology != "full-mesh":
        return shape
    total = counts.pop() * (domain - 1)
    if domain > 2 and total <= _NVLINK_MAX_MESHED:
        return shape
    return replace(shape, topology=None, num_links=total if domain == 2 else None)
