"""Declares an entry of the catalog of metrics and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainspec_validate.system.digits import is_digits


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit, and the unit of the catalog that it converts to: value times factor."""

    unit: str
    base: str
    factor: float
    words: str


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a value is written."""

    name: str
    seconds: float | None
    """Longest time between two values; None where steps or changes set it."""
    words: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word that entries use, such as a scope or a level, and what it means."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Ecosystem:
    """Another program or convention that has names for the same things."""

    name: str
    title: str
    source: str


@dataclass(frozen=True, slots=True)
class Owed:
    """A question that every job is to answer, and the metrics that answer it."""

    title: str
    question: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """Attribute of a value or an event."""

    name: str
    role: str
    """`series` separates series, `declared` is stated once for an attempt, `reading` goes with one value, `event`."""
    type: str
    words: str
    values: tuple[str, ...] = ()
    """The values that it can have; empty means any of its type."""
    open: bool = False
    """True where other values than those listed are allowed."""


@dataclass(frozen=True, slots=True)
class Alias:
    """The name that another program has for a metric, and how its value converts."""

    metric: str
    ecosystem: str
    name: str
    """As written there; `{i}` is replaced by the index of a device."""
    unit: str | None
    """Unit as written there; None where its sources do not settle one."""
    factor: float | None
    """From that unit to the one of the metric; None where there is no unit."""
    inverse: bool = False
    """True where the metric is one over the value."""
    times: tuple[str, ...] = ()
    """Quantities of the job to multiply by."""
    over: tuple[str, ...] = ()
    """Quantities of the job to divide by."""
    delta: bool = False
    """True where values are of one interval and are added up."""
    implies: Mapping[str, str] = field(default_factory=dict)
    """Attributes that the name represents."""
    note: str = ""

    def convert(self, value: float, known: Mapping[str, float] | None = None) -> float:
        """The value in the unit of the metric; `known` holds the quantities that `times` and `over` name.

        Raises:
            ValueError: there is no unit to convert from, a quantity is not known, or a divisor is zero.

        Source: the definition of the units; the catalog cites where the name and its unit are written.

        >>> Alias("train.flops.utilization", "torchtitan", "mfu(%)", "%", 0.01).convert(50.0)
        0.5
        """
        if self.factor is None:
            raise ValueError(f"{self.name} does not convert: {self.note}")
        result = value * self.factor
        divisors = [self._known(name, known) for name in self.over] + ([result] if self.inverse else [])
        if 0 in divisors:
            raise ValueError(f"{self.name} does not convert: something to divide by is zero")
        if self.inverse:
            result = 1 / result
        for name in self.times:
            result *= self._known(name, known)
        for name in self.over:
            result /= self._known(name, known)
        return result

    def _known(self, quantity: str, known: Mapping[str, float] | None) -> float:
        if known is None or quantity not in known:
            raise ValueError(f"{self.name} converts only where {quantity} is known")
        return known[quantity]

    def conversion(self) -> str:
        """How to convert, in words.

        >>> Alias("train.step.duration", "huggingface", "train_steps_per_second", "1/s", 1.0, inverse=True).conversion()
        '1 / value'
        """
        if self.factor is None:
            return "does not convert"
        parts = ["1 / value" if self.inverse else "value"]
        if self.factor != 1:
            parts.append(f"x {self.factor:.12g}")
        parts += [f"x {name}" for name in self.times] + [f"/ {name}" for name in self.over]
        return " ".join(parts) + (", added up" if self.delta else "")

    def is_called(self, name: str) -> bool:
        """Whether a name is this one, whatever its case, with the index of any device.

        >>> Alias("hw.power", "wandb", "gpu.{i}.powerWatts", "W", 1.0).is_called("gpu.12.powerwatts")
        True
        """
        mine, other = self.name.casefold(), name.casefold()
        before, index, after = mine.partition("{i}")
        if not index or mine == other:
            return mine == other
        middle = other[len(before) : len(other) - len(after)]
        return other.startswith(before) and other.endswith(after) and is_digits(middle)


@dataclass(frozen=True, slots=True)
class Metric:
    """Definition of one metric."""

    name: str
    title: str
    family: str
    instrument: str
    unit: str
    scopes: tuple[str, ...]
    level: str
    cadences: tuple[str, ...]
    definition: str
    why: str
    source: str
    profile: str = "core"
    also: tuple[str, ...] = ()
    """Other instruments that it can be written as."""
    synonym: str = ""
    """Second name with the same definition."""
    capability: str = ""
    """Condition that a metric depends on."""
    falls: str = "any"
    """When a value can be below the last: at `any` time, at a new `attempt`, at a `restart` of its counter, `never`."""
    minimum: float | None = None
    maximum: float | None = None
    nonfinite: bool = False
    """Whether infinite and not-a-number values are allowed."""
    attributes: tuple[str, ...] = ()
    optional_attributes: tuple[str, ...] = ()
    note: str = ""
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Definition of one event."""

    name: str
    title: str
    scope: str
    severity: str
    emitted: str
    attributes: tuple[str, ...]
    optional_attributes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """Metrics whose value the event carries."""
    closed_by: tuple[str, ...] = ()
    """Events that close the interval that this one opens; empty where it opens none."""
    can_stay_open: bool = False
    """Whether the interval can be open when the run ends."""
