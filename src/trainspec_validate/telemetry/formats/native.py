"""Reads the specification's own streams, each line as strictly as its schema, and says why a line is no record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from trainspec_validate.documents.types.stream import Event, Head, Sample, StreamRecord
from trainspec_validate.system.budget import Limit
from trainspec_validate.system.structs import converted, described
from trainspec_validate.telemetry.formats.items import Found, Refusal, RefusalCode
from trainspec_validate.telemetry.formats.source import MAX_RECORD_BYTES, SourceError, cut_off
from trainspec_validate.telemetry.formats.transcript import ORIGIN, Transcript

MAX_LINE_BYTES = MAX_RECORD_BYTES
MAX_DEPTH = int(Limit("a record of a stream", 16, "levels of nesting").most)
_MOST_DIGITS = 300
"""Of a whole number; more may be beyond the range of floats."""
_KINDS = {"head": "Head", "m": "Sample", "e": "Event"}
_SUSPECT = re.compile(rb'null|"[ \t\r\n]+:|\\|\d{300}')
"""Where the typed reader may take what the schema refuses: nulls, hidden duplicates, escapes, huge numbers."""
_DECODER = msgspec.json.Decoder(described(StreamRecord))
_WHOLE = frozenset(
    {
        *("time_us", "seq", "step", "att", "rank", "start_us", "observed_us", "severity", "world_size"),
        *("report_interval_steps", "counters_start_us", "count"),
    }
)


def read_line(line: bytes) -> StreamRecord | Refusal:
    """The record of one line, without its line end; exactly those lines are records that the schema accepts.

    >>> read_line(b'{"k":"m","time_us":1,"seq":0,"m":{"train.loss.mean":2.5}}').m
    {'train.loss.mean': 2.5}
    """
    if len(line) <= MAX_LINE_BYTES:
        try:
            record: StreamRecord = _DECODER.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _explained(line)
        if line.count(b'":') == _num_keys(record) and not _SUSPECT.search(line):
            return record
    return _explained(line)


def _num_keys(record: StreamRecord) -> int:
    """Keys that a record has on its line if no key is there twice and none has its default value."""
    if isinstance(record, Head):
        return _num_keys_of_head(record)
    coordinates = (record.step, record.run, record.att, record.emitter, record.rank, record.host, record.device)
    number = 3 + len(coordinates) - coordinates.count(None)
    number += (record.observed_us is not None) + bool(record.a) + len(record.a) + len(record.m)
    if isinstance(record, Sample):
        number += 1 + (record.start_us is not None) + bool(record.nr)
        return number if all(type(value) is float or isinstance(value, str) for value in record.m.values()) else -1
    number += 1 + bool(record.m) + (record.id is not None) + (record.severity is not None)
    return number


def _num_keys_of_head(head: Head) -> int:
    """Keys on the line of a head that has no part of a free form."""
    if head.extensions or head.extension_metrics or head.producer is not None:
        return -1
    number = 8 + sum(
        value is not None for value in (head.world_size, head.rank, head.host, head.device, head.counters_start_us)
    )
    number += sum(bool(part) + len(part) for part in (head.cadence_seconds, head.declared, head.unsupported))
    return number + (head.report_interval_steps != 1) + (head.redaction != "none")


class _RepeatedKeyError(ValueError):
    """A key occurs twice in one object."""


class _NoNumberError(ValueError):
    """A bare NaN or Infinity, which JSON does not have."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(key)
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise _NoNumberError(name)


def _float(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(text[:40])
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(text[:40])
    return int(text)


def _explained(line: bytes) -> StreamRecord | Refusal:
    """The record of a line that the quick way cannot judge, or what is wrong with it."""
    if len(line) > MAX_LINE_BYTES:
        return Refusal(
            f"the line has {len(line):,} bytes", f"a record has at most {MAX_LINE_BYTES:,}; split it", "size"
        )
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Refusal(f"byte {error.start + 1} is not UTF-8", "write the stream in UTF-8")
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_whole
        )
    except _RepeatedKeyError as error:
        remedy = "keep one; readers disagree on which of them counts"
        return Refusal(f"the key {str(error)[:60]!r} appears twice", remedy)
    except _NoNumberError as error:
        remedy = 'write it as text: "NaN", "+Inf" or "-Inf"'
        return Refusal(f"{error} is no JSON number", remedy, "not-finite")
    except json.JSONDecodeError as error:
        return _no_json(text, error)
    except (ValueError, RecursionError):
        return Refusal("the line holds a number or a nesting beyond all limits", "write plain records")
    return _judged(data)


def _no_json(text: str, error: json.JSONDecodeError) -> Refusal:
    if not text.strip():
        return Refusal("the line is empty", "remove it; each line is one record")
    if error.msg.startswith("Extra data"):
        remedy = "write each record on a line of its own; two writers may share a file only line by line"
        return Refusal(f"a second record or other text begins at column {error.colno}", remedy)
    cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
    remedy = "the line is cut off; was the writer stopped?" if cut else "write one JSON object on each line"
    message = f"the line is no JSON: {error.msg.lower()} at column {error.colno}"
    return Refusal(message, remedy, "cut-off" if cut else "syntax")


def _judged(data: Any) -> StreamRecord | Refusal:
    if not isinstance(data, dict):
        return Refusal("the line is no JSON object", 'write an object with the key "k"')
    kind = data.get("k")
    if not isinstance(kind, str) or kind not in _KINDS:
        shown = "is absent" if "k" not in data else f"is {kind!r}"[:60]
        return Refusal(f'"k" {shown}', 'write "head", "m" or "e"')
    if _depth(data) > MAX_DEPTH:
        return Refusal(f"the record is nested more than {MAX_DEPTH} deep", "records are nearly flat")
    try:
        error = next(iter(_validator(kind).iter_errors(data)), None)
    except UnicodeEncodeError:
        return Refusal("a text holds one half of a surrogate pair", "escape characters in pairs, or write UTF-8")
    if error is not None:
        return _schema_fault(error, data)
    try:
        found: StreamRecord = converted(_with_whole_numbers(data), _TYPES[kind])
    except (msgspec.ValidationError, OverflowError) as problem:
        return Refusal(str(problem).replace("$", "record"), "see the schema of records")
    return found


_TYPES: dict[str, Any] = {"head": Head, "m": Sample, "e": Event}


def _with_whole_numbers(data: dict[str, Any]) -> dict[str, Any]:
    """The record with 8 where it says 8.0, which JSON Schema counts as a whole number and the reader does not."""
    found: dict[str, Any] = {
        k: int(v) if k in _WHOLE and isinstance(v, float) and v.is_integer() else v for k, v in data.items()
    }
    if isinstance(found.get("counts"), list):
        found["counts"] = [int(count) for count in found["counts"]]
    if isinstance(found.get("m"), dict):
        values = found["m"].items()
        found["m"] = {k: _with_whole_numbers(v) if isinstance(v, dict) else v for k, v in values}
    return found


def _depth(data: Any) -> int:
    deepest, pending = 0, [(data, 1)]
    while pending:
        value, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(value, (dict, list)) and depth <= MAX_DEPTH:
            items = value.values() if isinstance(value, dict) else value
            pending.extend((item, depth + 1) for item in items)
    return deepest


@cache
def _validator(kind: str) -> Any:
    """The published schema of one kind of record."""
    import jsonschema_rs  # noqa: PLC0415

    from trainspec_validate.documents.schema import load_schema  # noqa: PLC0415

    schema = load_schema("MetricStream")
    one = {"$schema": schema["$schema"], "$ref": f"#/$defs/{_KINDS[kind]}", "$defs": schema["$defs"]}
    return jsonschema_rs.Draft202012Validator(one)


def _schema_fault(error: Any, data: dict[str, Any]) -> Refusal:
    path = [str(step) for step in error.instance_path]
    place = ".".join(path) or "the record"
    keyword = error.kind.name
    code: RefusalCode = "time" if path and path[0].endswith("_us") else "value"
    if path in (["apiVersion"], ["kind"]):
        wanted = "trainspec/v1" if path == ["apiVersion"] else "MetricStream"
        message = f"{place} is {_short(error.instance)}, which this version does not know"
        return Refusal(message, f"write {wanted}", "head")
    if keyword == "propertyNames":
        remedy = "write lower-case letters, digits, dots and underscores, and braces with attributes behind a metric"
        return Refusal(f"{place} has a name that is none: {error.message[:200]}", remedy, code)
    if keyword == "required":
        return Refusal(f"{place} lacks the key '{error.kind.property}'", "add it", code)
    if keyword == "additionalProperties":
        return _unknown(place, str(error.kind.unexpected[0]), data)
    if path and path[0].endswith("_us"):
        remedy = "write whole microseconds since 1970-01-01 UTC, such as 1763722800000000"
        return Refusal(f"{place} is {_short(error.instance)}", remedy, code)
    if path and path[0] == "m":
        remedy = 'write a number, "NaN", "+Inf" or "-Inf" where the metric allows it, or a histogram'
        return Refusal(f"{place} is {_short(error.instance)}", remedy, code)
    return Refusal(f"{place} is {_short(error.instance)}: {error.message[:200]}", "see the schema", code)


def _unknown(place: str, key: str, data: dict[str, Any]) -> Refusal:
    from trainspec_validate.model.suggest import hint  # noqa: PLC0415

    fields = _TYPES[data["k"]].__struct_fields__
    return Refusal(f"{place} has the unknown key {key[:60]!r}", hint(key, fields) or "see the schema of records")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Placed:
    """Gives each record the emitter and attempt of the head before it, as a file with several heads needs."""

    def __init__(self) -> None:
        self._head: Head | None = None

    def place(self, record: StreamRecord) -> StreamRecord:
        """The record, with its emitter and attempt."""
        if isinstance(record, Head):
            self._head = record
            return record
        if self._head is None:
            return record
        emitter = self._head.emitter if record.emitter is None else record.emitter
        attempt = self._head.att if record.att is None else record.att
        return msgspec.structs.replace(record, emitter=emitter, att=attempt)


def record_from(plain: Mapping[str, Any]) -> StreamRecord | Refusal:
    """The record that plain values make, read as strictly as a line."""
    try:
        return read_line(msgspec.json.encode({k: v for k, v in plain.items() if k == "m" or v not in ({}, [])}))
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        return Refusal(f"the values make no record: {error}", "see the schema of records", "value")


def read_lines(lines: Iterable[tuple[int, bytes]], transcript: Transcript) -> Iterator[Found]:
    """The record of each line, or why it is none."""
    transcript.sequenced = True
    offset = 0
    try:
        for offset, line in lines:
            found = read_line(line)
            if not isinstance(found, Refusal):
                transcript.num_records += 1
            origin = found.extensions.get(ORIGIN) if isinstance(found, Head) else None
            if isinstance(origin, dict) and origin.get("clock") in {"local", "relative", "none"}:
                transcript.clock = origin["clock"]
            yield offset, found
    except SourceError as error:
        yield offset, cut_off(error)
