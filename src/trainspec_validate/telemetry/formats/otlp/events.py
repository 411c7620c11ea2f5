"""Reads log records of OTLP that other programs write as events of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.model.metrics import by_name, catalog
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.otlp.owner import Owner, first
from trainspec_validate.telemetry.formats.otlp.values import plain_attributes, unix_us
from trainspec_validate.telemetry.formats.transcript import Transcript

_ID = ("event.id", "train.event.id", "id")
_STEPS = ("train.step", "step", "global_step")
_COORDINATES = {"host.id": "host", "hw.id": "device"}


class Events:
    """Reads the log records of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript

    def take(self, offset: int, owner: Owner, entries: Iterable[Mapping[str, Any]]) -> Iterator[Found]:
        """The events among some log records."""
        for entry in entries:
            attributes = plain_attributes(entry.get("attributes"))
            name = entry.get("eventName") or attributes.pop("event.name", None)
            if not isinstance(name, str):
                message = "log records without eventName are no events; they are passed over"
                self._transcript.lose("text", "logRecords", message, offset)
            elif name not in catalog().events:
                self._transcript.lose("unknown-name", name, f"the catalog has no event {name!r}", offset)
            else:
                yield offset, self._event(offset, owner, name, entry, attributes)

    def _event(self, offset: int, owner: Owner, name: str, entry: Mapping[str, Any], attributes: dict[str, Any]) -> Any:
        observed = unix_us(entry.get("observedTimeUnixNano"))
        time_us = unix_us(entry.get("timeUnixNano"))
        if time_us is None:
            if observed is None:
                return Refusal(f"{name} has no time", "timeUnixNano since 1970", "time")
            self._transcript.lose("time", name, f"{name} has only the time at which it was observed", offset)
            time_us = observed
        known = catalog().events[name]
        wanted = {*known.attributes, *known.optional_attributes}
        more: dict[str, Any] = {"id": first(attributes, _ID), "observed_us": observed, **owner.place}
        more["step"] = next((s for each in _STEPS if (s := fit.step(attributes.get(each))) is not None), None)
        more["rank"] = fit.rank(attributes.get("train.rank.id"))
        for attribute, field in _COORDINATES.items():
            if attribute not in wanted:
                more[field] = first(attributes, (attribute,))
        more["a"], more["m"] = self._content(offset, name, attributes, wanted)
        severity = entry.get("severityNumber")
        if isinstance(severity, int) and 1 <= severity <= 24:
            more["severity"] = severity
        return self._transcript.event(time_us, name, **more)

    def _content(
        self, offset: int, event: str, attributes: Mapping[str, Any], wanted: set[str]
    ) -> tuple[dict[str, Any], dict[str, MetricValue]]:
        """Attributes of the event, and values of metrics that it carries."""
        taken: dict[str, Any] = {}
        values: dict[str, MetricValue] = {}
        for name, value in attributes.items():
            number = fit.number(value)
            if name in wanted and _is_attribute(value):
                taken[name] = value
            elif by_name((keys.split(name) or (name,))[0]) and number is not None and keys.fits(name):
                values[name] = number  # type: ignore[assignment]
            elif name not in {*_ID, *_STEPS, *_COORDINATES, "train.rank.id"}:
                self._transcript.lose("attribute", name, f"{name} is no attribute of {event} in the catalog", offset)
        return taken, values


def _is_attribute(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, int | float | str) and not isinstance(item, bool) for item in value)
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 4000)
