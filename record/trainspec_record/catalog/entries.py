"""Declares the properties that the recorder keeps of a metric, an event and an attribute."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One metric; values are in its unit, without prefix."""

    name: str
    instrument: str
    unit: str
    scopes: tuple[str, ...]
    cadences: tuple[str, ...]
    level: str
    profile: str = "core"
    series: tuple[str, ...] = ()
    """Attributes that are in the key, without `hw.id` and `host.id`, which are coordinates of the record."""
    optional_series: tuple[str, ...] = ()
    """Attributes that can be in the key."""
    declared: tuple[str, ...] = ()
    """Attributes that are in the head."""
    readings: tuple[str, ...] = ()
    """Attributes that go with one value."""
    also: tuple[str, ...] = ()
    """Other instruments that it can be written as."""
    synonym: str = ""
    """Second name with the same meaning."""
    nonfinite: bool = False
    """Whether infinite and not-a-number values are allowed."""


class Exposed(NamedTuple):
    """How Prometheus names one metric."""

    name: str
    """Series of plain values."""
    type: str
    """`counter` or `gauge`, the type of plain values."""
    histogram: str
    """Base of the series of a histogram."""
    help: str
    """Title of the metric, as a sentence."""


class Event(NamedTuple):
    """One event; its time is a property of the record."""

    name: str
    scope: str
    severity: int
    """Severity number of OpenTelemetry."""
    attributes: tuple[str, ...]
    optional_attributes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """Metrics whose value the event carries."""
    closed_by: tuple[str, ...] = ()
    """Events that close the interval that this one opens, with the same id; empty where it opens none."""


class Attribute(NamedTuple):
    """One attribute of values or of events."""

    name: str
    role: str
    """`series`, `declared`, `reading` or `event`."""
    type: str
    values: tuple[str, ...] = ()
    """The values that it can have; empty means any of its type."""
    open: bool = False
    """Whether other values than those listed are allowed."""
