"""The only place that tells whether boxes cover a tensor exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a tensor: where it begins and how far it reaches, for each dimension."""

    begin: tuple[int, ...]
    size: tuple[int, ...]

    def __str__(self) -> str:
        ranges = (f"{begin:,}:{begin + size:,}" for begin, size in zip(self.begin, self.size, strict=True))
        return f"[{', '.join(ranges)}]"


def fault(shape: Sequence[int], boxes: Iterable[Box]) -> str:
    """What keeps the boxes from covering the shape exactly once; empty where nothing does."""
    kept = [box for box in boxes if prod(box.size)]
    for box in kept:
        if len(box.begin) != len(shape) or len(box.size) != len(shape):
            return f"a piece has {len(box.size)} dimensions, and the tensor {len(shape)}"
        if any(begin + size > whole for begin, size, whole in zip(box.begin, box.size, shape, strict=True)):
            return f"the piece {box} reaches beyond the shape {list(shape)}"
    covered = sum(prod(box.size) for box in kept)
    twins = _overlap(kept)
    if twins:
        return f"the pieces {twins[0]} and {twins[1]} overlap"
    if covered != prod(shape):
        return f"the pieces cover {covered:,} of {prod(shape):,} elements"
    return ""


def _overlap(boxes: list[Box]) -> tuple[Box, Box] | None:
    """Two boxes that share an element: a sweep along the dimension in which most of them begin apart."""
    if len(boxes) < 2 or not boxes[0].size:
        return (boxes[0], boxes[1]) if len(boxes) > 1 else None
    axis = max(range(len(boxes[0].size)), key=lambda axis: len({box.begin[axis] for box in boxes}))
    active: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.begin[axis]):
        active = [other for other in active if other.begin[axis] + other.size[axis] > box.begin[axis]]
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
