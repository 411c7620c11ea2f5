"""Assigns the roles of ranks: groups, ring neighbours, tree parents, edges between stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.performance.costs.placement import Span, span


@dataclass(frozen=True, slots=True)
class RingNeighbours:
    """The ranks that a rank receives from and sends to in a ring."""

    previous: int
    next: int


@dataclass(frozen=True, slots=True)
class TreeRole:
    """The place of a rank in one binary tree; ranks are those of the job."""

    parent: int | None
    """None for the root."""
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """Role of one rank in the groups of one axis."""

    axis: str
    members: tuple[int, ...]
    """Ranks of the group, in its order."""
    ring: RingNeighbours
    trees: tuple[TreeRole, TreeRole]
    """The two complementary trees of a double binary tree: an inner rank of one is a leaf of the other."""


def group_of(where: Span, rank: int) -> tuple[int, ...]:
    """Ranks of the group of one axis that holds a rank, in order.

    >>> group_of(Span(stride=8, degree=4), 13)
    (5, 13, 21, 29)

    Raises:
        ValueError: the rank is negative.
    """
    if rank < 0:
        raise ValueError(f"rank {rank} is negative")
    first = rank - rank // where.stride % where.degree * where.stride
    return tuple(range(first, first + where.num_ranks, where.stride))


def num_groups(where: Span, num_ranks: int) -> int:
    """Groups of one axis in a job.

    >>> num_groups(Span(8, 4), 64)
    16
    """
    return num_ranks // where.degree


def ring(members: Sequence[int], rank: int) -> RingNeighbours:
    """Neighbours in the ring that follows the order of the members, which is the order of the topology.

    >>> ring((5, 13, 21, 29), 29)
    RingNeighbours(previous=21, next=5)
    """
    place = members.index(rank)
    return RingNeighbours(members[place - 1], members[(place + 1) % len(members)])


def double_tree(members: Sequence[int], rank: int) -> tuple[TreeRole, TreeRole]:
    """Roles in two binary trees over the members; each but the first of an odd group is an inner node of one at most.

    The second tree is the first one shifted by a member (odd sizes) or mirrored (even sizes): Sanders, Speck and
    Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35 (2009).

    >>> [role.parent for role in double_tree((0, 1, 2, 3), 1)]
    [2, 3]
    """
    size, place = len(members), members.index(rank)

    def shown(parent: int | None, children: Sequence[int], move: int | None) -> TreeRole:
        def back(index: int) -> int:
            return members[size - 1 - index if move is None else (index + move) % size]

        return TreeRole(None if parent is None else back(parent), tuple(back(child) for child in children))

    first = shown(*_tree(size, place), 0)
    if size % 2:
        return first, shown(*_tree(size, (place - 1) % size), 1)
    return first, shown(*_tree(size, size - 1 - place), None)


def _tree(size: int, place: int) -> tuple[int | None, list[int]]:
    """Parent and children in the tree where the lowest set bit of a place is its height; place 0 is the root."""
    if size == 1:
        return None, []
    if place == 0:
        top = 1 << ((size - 1).bit_length() - 1)
        return None, [top]
    bit = place & -place
    above = (place ^ bit) | (bit << 1)
    parent = above if above < size else place ^ bit
    children = []
    if bit > 1:
        low = bit >> 1
        children.append(place - low)
        while low and place + low >= size:
            low >>= 1
        if low:
            children.append(place + low)
    return parent, children


def roles_of(order: Sequence[str], degrees: Mapping[str, int], rank: int) -> Iterator[Roles]:
    """Roles of a rank in the groups of every axis with a degree above 1, in the order of the axes.

    Raises:
        ValueError: an axis has a degree below 1.
    """
    for axis in order:
        where = span(order, degrees, axis)
        if where.degree < 2:
            continue
        members = group_of(where, rank)
        yield Roles(axis, members, ring(members, rank), double_tree(members, rank))


def stage_edges(where: Span, rank: int) -> tuple[int | None, int | None]:
    """The ranks of the previous and of the next pipeline stage; None at the ends.

    >>> stage_edges(Span(8, 4), 5), stage_edges(Span(8, 4), 13)
    ((None, 13), (5, 21))
    """
    members = group_of(where, rank)
    place = members.index(rank)
    return (members[place - 1] if place else None, members[place + 1] if place + 1 < len(members) else None)
