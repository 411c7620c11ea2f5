"""Checks whether boxes cover a tensor exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainspec_validate.checkpoints.limits import COMPARISONS, within
from trainspec_validate.system.budget import Count

_MOST = 1 << 80
_SHOWN = 8


def volume(shape: Iterable[int]) -> int:
    """Elements of a shape; of one that no file can hold, a number that no file has bytes for."""
    found = 1
    for size in shape:
        found = min(found * size, _MOST)
        if not found:
            return 0
    return found


def shown(shape: Sequence[int]) -> str:
    """A shape in words, and of one with many dimensions the first of them."""
    return str(list(shape)) if len(shape) <= _SHOWN else f"[{', '.join(map(str, shape[:_SHOWN]))}, …]"


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a tensor: where it begins and how far it reaches, for each dimension."""

    begin: tuple[int, ...]
    size: tuple[int, ...]

    def __str__(self) -> str:
        pairs = list(zip(self.begin, self.size, strict=True))
        ranges = [f"{begin:,}:{begin + size:,}" for begin, size in pairs[:_SHOWN]]
        return f"[{', '.join([*ranges, '…'] if len(pairs) > _SHOWN else ranges)}]"


def fault(shape: Sequence[int], boxes: Iterable[Box]) -> str:
    """Reason why the boxes do not cover the shape exactly once; empty where they do.

    Raises:
        LimitError: so many of them begin side by side that to compare them takes too long.
    """
    kept = [box for box in boxes if all(box.size)]
    for box in kept:
        if len(box.begin) != len(shape) or len(box.size) != len(shape):
            return f"a piece has {len(box.size)} dimensions, and the tensor {len(shape)}"
        if any(begin + size > whole for begin, size, whole in zip(box.begin, box.size, shape, strict=True)):
            return f"the piece {box} reaches beyond the shape {shown(shape)}"
    covered = sum(volume(box.size) for box in kept)
    with within():
        twins = _overlap(kept)
    if twins:
        return f"the pieces {twins[0]} and {twins[1]} overlap"
    if covered != volume(shape):
        return f"the pieces cover {covered:,} of {volume(shape):,} elements"
    return ""


def _overlap(boxes: list[Box]) -> tuple[Box, Box] | None:
    """Two boxes that share an element: a sweep along the dimension in which most of them begin apart."""
    if len(boxes) < 2 or not boxes[0].size:
        return (boxes[0], boxes[1]) if len(boxes) > 1 else None
    axis = max(range(len(boxes[0].size)), key=lambda axis: len({box.begin[axis] for box in boxes}))
    active: list[Box] = []
    comparisons = Count(COMPARISONS)
    for box in sorted(boxes, key=lambda box: box.begin[axis]):
        active = [other for other in active if other.begin[axis] + other.size[axis] > box.begin[axis]]
        comparisons.add(len(active))
        for other in active:
            if _meet(box, other):
                return other, box
        active.append(box)
    return None


def _meet(one: Box, other: Box) -> bool:
    return all(
        max(a, b) < min(a + width, b + height)
        for a, width, b, height in zip(one.begin, one.size, other.begin, other.size, strict=True)
    )
