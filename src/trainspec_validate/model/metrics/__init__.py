"""The catalog of metrics and events of a training run, and their names in other programs."""

from __future__ import annotations

from trainspec_validate.model.metrics.entries import (
    Alias,
    Attribute,
    Cadence,
    Ecosystem,
    Event,
    Metric,
    Owed,
    Unit,
    Word,
)
from trainspec_validate.model.metrics.reading import MetricCatalog, by_alias, by_name, catalog, events, metrics, parse

__all__ = [
    "Alias",
    "Attribute",
    "Cadence",
    "Ecosystem",
    "Event",
    "Metric",
    "MetricCatalog",
    "Owed",
    "Unit",
    "Word",
    "by_alias",
    "by_name",
    "catalog",
    "events",
    "metrics",
    "parse",
]
