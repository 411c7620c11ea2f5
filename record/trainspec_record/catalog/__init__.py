"""The catalog of metrics and events, for writers of streams."""

from __future__ import annotations

from trainspec_record.catalog.attributes import ATTRIBUTES
from trainspec_record.catalog.entries import Attribute, Event, Metric
from trainspec_record.catalog.events import EVENTS
from trainspec_record.catalog.metrics import CADENCE_SECONDS, METRICS

__all__ = ["ATTRIBUTES", "CADENCE_SECONDS", "EVENTS", "METRICS", "Attribute", "Event", "Metric"]
