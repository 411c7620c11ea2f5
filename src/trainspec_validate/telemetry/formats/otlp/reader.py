"""Reads OTLP/JSON: lines of metrics and logs, or one document over many lines, and log records as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainspec_validate.documents.types.stream import Event, Head, MetricValue, Sample
from trainspec_validate.model.metrics import by_name, catalog
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found, Record, Refusal
from trainspec_validate.telemetry.formats.json_text import open_brackets, plain_of
from trainspec_validate.telemetry.formats.otlp import own
from trainspec_validate.telemetry.formats.otlp.metrics import Metrics
from trainspec_validate.telemetry.formats.otlp.owner import Owner, Owners, first
from trainspec_validate.telemetry.formats.otlp.values import SCOPE, objects, plain_attributes, unix_us
from trainspec_validate.telemetry.formats.transcript import Transcript

_MAX_JOINED = 100_000
"""Headers by whose numbers it is seen that a file was joined of several exports."""
_MAX_DOCUMENT_BYTES = int(Limit("a text of OTLP/JSON", 64 * 1024 * 1024, "bytes").most)
_ID = ("event.id", "train.event.id", "id")
_STEPS = ("train.step", "step", "global_step")
_COORDINATES = {"host.id": "host", "hw.id": "device"}


class Reader:
    """Reads one file; what `write` wrote is read back as it was, the rest by the catalog and its aliases."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._owners = Owners(transcript)
        self._metrics = Metrics(transcript)
        self._events = _Events(transcript)
        self._parts: list[str] = []
        self._size = self._depth = self._start = 0
        self._resource_taken: Mapping[str, Any] | None = None
        self._resources: dict[Any, Mapping[str, Any]] = {}
        self._owner: tuple[str | None, int | None] = (None, None)
        """Emitter and attempt of records that name none, in a file that several exports were joined in."""
        self._samples = own.Samples()

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of a line, or of a document that ends on it."""
        if self._parts:
            yield from self._more(text)
            return
        is_whole = text.rstrip().endswith("}")
        entry = plain_of(text) if is_whole else None
        if entry is None or (isinstance(entry, Refusal) and entry.code == "cut-off"):
            depth = open_brackets(text, 0)
            if depth > 0 and text.lstrip().startswith("{"):
                self._parts, self._size, self._depth, self._start = [text], len(text), depth, offset
                return
        yield from self._document(offset, plain_of(text) if entry is None else entry)

    def _more(self, text: str) -> Iterator[Found]:
        self._depth = open_brackets(text, self._depth)
        self._size += len(text)
        if self._size > _MAX_DOCUMENT_BYTES:
            self._parts = []
            message = f"the document is larger than {_MAX_DOCUMENT_BYTES // 1024**2} MiB"
            yield self._start, Refusal(message, "write one object on each line, as the exporter to files does", "size")
            return
        self._parts.append(text)
        if self._depth <= 0:
            whole, self._parts = "\n".join(self._parts), []
            yield from self._document(self._start, plain_of(whole))

    def _document(self, offset: int, entry: Any) -> Iterator[Found]:
        if isinstance(entry, Refusal):
            yield offset, entry
            return
        known = ("resourceMetrics", "resourceLogs", "resourceSpans")
        if not isinstance(entry, dict) or not any(name in entry for name in known):
            yield (
                offset,
                Refusal("the line is no metrics and no logs of OTLP", "resourceMetrics or resourceLogs", "value"),
            )
            return
        if "resourceSpans" in entry:
            self._transcript.lose("unknown-name", "resourceSpans", "spans are not converted", offset)
        for part in objects(entry.get("resourceMetrics")):
            yield from self._resource(offset, part, "scopeMetrics", "metrics")
        for part in objects(entry.get("resourceLogs")):
            yield from self._resource(offset, part, "scopeLogs", "logRecords")

    def _resource(self, offset: int, part: Mapping[str, Any], scopes: str, entries: str) -> Iterator[Found]:
        described = part.get("resource")
        resource = plain_attributes(described.get("attributes")) if isinstance(described, dict) else {}
        content = list(objects(part.get(scopes)))
        if own.is_own(resource) and all(_scope_name(scope) == SCOPE for scope in content):
            yield from self._counted(self._own(offset, resource, content, entries))
            return
        taken = self._metrics.take if entries == "metrics" else self._events.take
        for scope in content:
            found = list(taken(offset, self._owners.of(resource), objects(scope.get(entries))))
            yield from self._owners.head(offset, resource, found)
            yield from found

    def _own(self, offset: int, resource: Mapping[str, Any], content: list[Any], entries: str) -> Iterator[Found]:
        self._transcript.sequenced = True
        if resource != self._resource_taken:
            self._resource_taken = resource
            yield from self._samples.flush()
            head = own.head_of(resource)
            self._own_records_of(resource, head)
            yield offset, head
        for scope in content:
            if entries == "metrics":
                yield from self._samples.take(offset, scope.get(entries))
            else:
                yield from self._samples.flush()
                yield from ((offset, own.event_of(entry)) for entry in objects(scope.get(entries)))

    def _own_records_of(self, resource: Mapping[str, Any], head: Record | Refusal) -> None:
        """Note whose the records are that follow a header, where its number was that of another one before."""
        index = str(own.index_of(resource))
        is_joined = len(self._resources) < _MAX_JOINED and self._resources.setdefault(index, resource) != resource
        if (is_joined or self._owner[0]) and isinstance(head, Head):
            self._owner = (head.emitter, head.att)

    def _counted(self, found: Iterable[Found]) -> Iterator[Found]:
        for offset, item in found:
            self._transcript.num_records += not isinstance(item, Refusal)
            if isinstance(item, Sample | Event) and item.emitter is None and self._owner[0] is not None:
                named = {name: getattr(item, name) for name in item.__struct_fields__}
                item = type(item)(**{**named, "emitter": self._owner[0], "att": self._owner[1]})  # noqa: PLW2901
            yield offset, item

    def end(self) -> Iterator[Found]:
        """Records that wait for further points, and a document that does not end."""
        yield from self._counted(self._samples.flush())
        if self._parts:
            yield self._start, Refusal("the document ends before its JSON does", "copy the file again", "cut-off")


def _scope_name(scope: Mapping[str, Any]) -> Any:
    described = scope.get("scope")
    return described.get("name") if isinstance(described, dict) else None


class _Events:
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
