"""Defines what a reader of a foreign format returns: facts, unknowns and remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.quantities import singular_of_one
from trainspec_validate.system.foreign import ForeignFormatError

__all__ = ["ForeignFormatError", "ForeignText", "Fragment", "Kind", "Remark", "Unknown"]

Kind = Literal["ClusterProfile", "TrainingPlan", "CheckpointPolicy"]


@dataclass(frozen=True, slots=True)
class ForeignText:
    """The text of one file, read within bounds; every line ends with a line feed alone."""

    name: str
    """Name for messages; never opened again."""
    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that the format cannot state, with the reason; it stays out of the document."""

    pointer: Pointer
    """Path in the document, for example `("node_groups", 0, "host", "memory_bytes")`."""
    reason: str
    """Why it is not known and where a person finds it."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something odd in the source that a person should look at; nothing was dropped silently because of it."""

    message: str
    line: int | None = None
    pointer: Pointer = ()
    """The key of the document that it is about, where it is about one."""
    is_unread: bool = False
    """Whether it names a value that the source states and that cannot be, so that nothing was read of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", singular_of_one(self.message))


@dataclass(frozen=True, slots=True)
class Fragment:
    """Facts of one foreign file, as part of a document in plain values."""

    kind: Kind
    format: str
    """Name of the format, for example `nccl-topology-xml`."""
    name: str
    """Name of the file."""
    facts: Mapping[str, Any]
    """Part of a document in plain values and base units; only keys of the kind's schema, none invented."""
    unknown: tuple[Unknown, ...] = ()
    remarks: tuple[Remark, ...] = ()
    derived: Mapping[Pointer, str] | None = None
    """How a fact was derived, where it is not written in the source word for word."""
    defaults: frozenset[Pointer] = frozenset()
    """Facts among `derived` that rest on a default of a framework: what another file states goes before them."""
    devices: tuple[Mapping[str, Any], ...] = ()
    """Accelerators one by one, where the source shows them so: keys of `DescribedAccelerators`, and `name`."""
    partial: bool = False
    """Whether the source may show a part of the devices of the node."""
    inputs: Mapping[Pointer, tuple[Pointer, ...]] = field(default_factory=dict)
    """Facts among `derived` that are computed from others, with those: where one changes, they are computed again."""
