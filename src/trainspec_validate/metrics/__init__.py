"""The only place that knows what the metrics and events of a training run mean, and what other programs call them."""

from __future__ import annotations

from trainspec_validate.metrics.entries import Alias, Attribute, Cadence, Ecosystem, Event, Metric, Owed, Unit, Word
from trainspec_validate.metrics.reading import MetricCatalog, by_alias, by_name, catalog, events, metrics, parse

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
