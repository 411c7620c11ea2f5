"""Reads the specification's own streams for a conversion, each line as strictly as the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trainspec_validate.budget import Limit
from trainspec_validate.documents.stream import Event, Head, Sample
from trainspec_validate.streams.items import Record, Refusal
from trainspec_validate.streams.json_text import decode
from trainspec_validate.streams.read import Found
from trainspec_validate.streams.transcript import ORIGIN, Transcript

_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Head | Sample | Event)
_PLAIN_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
_MOST_OBJECTS: Final = Limit("a text of OTLP/JSON", 2_000_000, "objects and lists")


def record_of(text: str) -> Record | Refusal:
    """The record on a line, or why there is none."""
    line = text.strip().encode("utf-8", "replace")
    try:
        fast = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fast = None
    # A line that is written as we write it has no key twice; any other is read again with care.
    if fast is not None and _ENCODER.encode(fast) == line:
        return fast
    plain = decode(text)
    return plain if isinstance(plain, Refusal) else record_from(plain)


def record_from(plain: Any) -> Record | Refusal:
    """The record that plain values make, or why they make none."""
    try:
        return msgspec.convert(plain, Head | Sample | Event)
    except msgspec.ValidationError as error:
        return Refusal(f"the line is no record: {error}", "see the schema of metric streams", "value")


def encoded(value: Any) -> bytes:
    """Plain values as JSON."""
    return _ENCODER.encode(value)


def plain_of(text: str) -> Any | Refusal:
    """The plain values of a line of JSON, as `decode` gives them; fast where it is written as we write it."""
    if len(text) > _MOST_OBJECTS.most:
        _MOST_OBJECTS.check(text.count("{") + text.count("["))
    line = text.strip().encode("utf-8", "replace")
    try:
        fast = _PLAIN_DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decode(text)
    return fast if _ENCODER.encode(fast) == line else decode(text)


class Placed:
    """Gives each record the emitter and attempt of the head before it, as a file with several heads needs."""

    def __init__(self) -> None:
        self._head: Head | None = None

    def place(self, record: Record) -> Record:
        """The record, with its emitter and attempt."""
        if isinstance(record, Head):
            self._head = record
            return record
        if self._head is None:
            return record
        emitter = self._head.emitter if record.emitter is None else record.emitter
        attempt = self._head.att if record.att is None else record.att
        return msgspec.structs.replace(record, emitter=emitter, att=attempt)


class Reader:
    """Reads lines that hold one record each."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        transcript.sequenced = True

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of the line."""
        found = record_of(text)
        if not isinstance(found, Refusal):
            self._transcript.num_records += 1
            origin = found.extensions.get(ORIGIN) if isinstance(found, Head) else None
            if isinstance(origin, dict) and origin.get("clock") in {"local", "relative", "none"}:
                self._transcript.clock = origin["clock"]
        yield offset, found

    def end(self) -> Iterator[Found]:
        """Nothing is left."""
        return iter(())
