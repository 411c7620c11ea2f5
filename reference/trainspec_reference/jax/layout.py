"""Maps the entries of parameters to ranks, as rows of one flat matrix."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
ROOT = "root"
"""The unit of all parameters outside the layers."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of the model that a rank computes with."""

    tensor: int = 0
    """Number among the tensor ranks."""
    stage: int = 0
    """Number among the stages of a pipeline."""


@dataclass(frozen=True, slots=True)
class Split:
    """How tensor ranks divide one parameter: seen with the axes `view`, each takes an even range of `axis`."""

    view: Shape
    axis: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries `begin` to `end`, row by row, of the box `start` to `stop` of a parameter seen with the axes `view`."""

    name: str
    view: Shape
    start: Shape
    stop: Shape
    begin: int
    end: int

    def put(self, entries: npt.NDArray[Any], whole: npt.NDArray[Any], filled: npt.NDArray[np.bool_]) -> None:
        """Write the entries to their places in the whole parameter, and mark these as filled."""
        box = tuple(slice(*ends) for ends in zip(self.start, self.stop, strict=True))
        places = np.arange(whole.size).reshape(self.view)[box].ravel()[self.begin : self.end]
        whole.reshape(-1)[places] = entries
        filled.reshape(-1)[places] = True


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters that are gathered together: one layer, or all outside the layers."""

    name: str
    members: tuple[tuple[str, Shape], ...]
    """Name and local shape of each."""
    num_shards: int

    @property
    def width(self) -> int:
        """Entries of one shard; the last shards end in padding."""
        return -(-sum(math.prod(shape) for _, shape in self.members) // self.num_shards)

    def split(self, flat_N: Any) -> dict[str, Any]:
        """The unit's parameters from its flat entries, padding left out."""
        found, offset = {}, 0
        for name, shape in self.members:
            found[name] = flat_N[offset : offset + math.prod(shape)].reshape(shape)
            offset += math.prod(shape)
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Parameters of one part as a matrix [shards W, entries of a shard S]; a row is what a shard owner holds.

    Each unit fills some columns, so that a layer can be gathered alone. Without sharding W is 1. Stages of a pipeline
    take the same number of layers each, and the parameters outside the layers are on all of them: their matrices have
    the same columns, in which layers go by their number in the stage.

    Raises:
        ValueError: the layers do not divide evenly.
    """

    shapes: Mapping[str, Shape]
    """Global shape by name."""
    splits: Mapping[str, Split]
    num_tensor: int
    num_shards: int
    num_stages: int = 1
    units: tuple[Unit, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.num_layers % self.num_stages:
            raise ValueError(f"{self.num_stages} pipeline stages do not divide {self.num_layers} layers evenly")
        members: dict[str, list[tuple[str, Shape]]] = {}
        for name in sorted(self.names(0)):
            members.setdefault(unit_name(name), []).append((name, self._local_shape(name)))
        units = tuple(Unit(name, tuple(members[name]), self.num_shards) for name in sorted(members))
        object.__setattr__(self, "units", units)

    @property
    def num_layers(self) -> int:
        """Layers of all stages."""
        return len({unit_name(name) for name in self.shapes} - {ROOT})

    @property
    def width(self) -> int:
        """Entries of one shard, S."""
        return sum(unit.width for unit in self.units)

    def columns(self, unit: Unit) -> slice:
        """Columns of the matrix that hold the unit."""
        begin = 0
        for other in self.units:
            if other is unit:
                return slice(begin, begin + unit.width)
            begin += other.width
        raise ValueError(f"{unit.name} is no unit of this layout")

    def names(self, stage: int) -> dict[str, str]:
        """Global name of each parameter of a stage, by the name that it has in the stage."""
        each = self.num_layers // self.num_stages
        found = {}
        for name in self.shapes:
            unit = unit_name(name)
            if unit == ROOT:
                found[name] = name
                continue
            prefix, _, number = unit.partition("/")
            if int(number) // each == stage:
                found[f"{prefix}/{int(number) % each}{name.removeprefix(unit)}"] = name
        return found

    def local(self, whole: Mapping[str, npt.NDArray[Any]], part: Part) -> dict[str, npt.NDArray[Any]]:
        """A part's slices of the global parameters, by the names in its stage."""
        found = {}
        for name, global_name in self.names(part.stage).items():
            view, start, stop = self._box(name, part)
            box = tuple(slice(*ends) for ends in zip(start, stop, strict=True))
            own = np.ascontiguousarray(whole[global_name].reshape(view)[box])
            found[name] = own.reshape(self._local_shape(name))
        return found

    def num_holders(self, name: str) -> int:
        """Parts that hold each entry of a parameter."""
        num_tensor = 1 if name in self.splits else self.num_tensor
        return num_tensor * (self.num_stages if unit_name(name) == ROOT else 1)

    def join(self, tree: Mapping[str, Any], xp: Any) -> Any:
        """Matrix [W, S] of local parameters, with zeros as padding; `xp` is numpy or jax.numpy."""
        rows = []
        for unit in self.units:
            flat_N = xp.concatenate([tree[name].reshape(-1) for name, _ in unit.members])
            padded_N = xp.pad(flat_N, (0, unit.width * self.num_shards - flat_N.size))
            rows.append(padded_N.reshape(self.num_shards, unit.width))
        return xp.concatenate(rows, axis=1)

    def divide(self, matrix_WS: Any) -> dict[str, Any]:
        """Local parameters of a matrix [W, S]."""
        found: dict[str, Any] = {}
        for unit in self.units:
            found.update(unit.split(matrix_WS[:, self.columns(unit)].reshape(-1)))
        return found

    def pieces(self, shard: int, part: Part) -> Iterator[tuple[slice, Piece]]:
        """Content of the columns of a row without padding; content that several parts hold belongs to the first."""
        names = self.names(part.stage)
        for unit in self.units:
            column = self.columns(unit).start
            first, offset = shard * unit.width, 0
            for name, shape in unit.members:
                size = math.prod(shape)
                begin, end = max(first - offset, 0), min(first + unit.width - offset, size)
                if begin < end and self._is_owner(name, part):
                    place = column + offset + begin - first
                    yield slice(place, place + end - begin), Piece(names[name], *self._box(name, part), begin, end)
                offset += size

    def _is_owner(self, name: str, part: Part) -> bool:
        is_of_tensor_rank = part.tensor == 0 or name in self.splits
        return is_of_tensor_rank and (part.stage == 0 or unit_name(name) != ROOT)

    def _local_shape(self, name: str) -> Shape:
        if name not in self.splits or self.num_tensor == 1:
            return tuple(self.shapes[name])
        split, shape = self.splits[name], list(self.shapes[name])
        shape[min(split.axis, len(shape) - 1)] //= self.num_tensor
        return tuple(shape)

    def _box(self, name: str, part: Part) -> tuple[Shape, Shape, Shape]:
        shape = tuple(self.shapes[name])
        if name not in self.splits or self.num_tensor == 1:
            return shape, (0,) * len(shape), shape
        view, axis = self.splits[name].view, self.splits[name].axis
        share = view[axis] // self.num_tensor
        start = tuple(part.tensor * share if place == axis else 0 for place in range(len(view)))
        stop = tuple(start[axis] + share if place == axis else size for place, size in enumerate(view))
        return view, start, stop


def unit_name(parameter: str) -> str:
    """The unit that a parameter belongs to.

    >>> unit_name("layers/1/attention/qkv"), unit_name("final_norm/scale")
    ('layers/1', 'root')
    """
    first, *rest = parameter.split("/")
    return f"{first}/{rest[0]}" if first in {"layers", "blocks"} and rest else ROOT


def kept(pieces: Iterator[tuple[slice, Piece]], writer: int, num_writers: int, width: int) -> list[tuple[slice, Piece]]:
    """The share of one of several ranks that hold the same row: an even range of its columns."""
    low, high = width * writer // num_writers, width * (writer + 1) // num_writers
    found = []
    for columns, piece in pieces:
        begin, end = max(columns.start, low), min(columns.stop, high)
        if begin < end:
            shift = piece.begin - columns.start
            cut = Piece(piece.name, piece.view, piece.start, piece.stop, begin + shift, end + shift)
            found.append((slice(begin, end), cut))
    return found
