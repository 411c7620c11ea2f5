"""Reads event files of TensorBoard: the scalars of each event, those of one step as one record."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_PACKED = {1: ("<f", 5), 2: ("<d", 6)}
"""How the types of tensors that hold scalars are packed: float and double, with the field of their values."""
_MOST_VALUES = 10_000
_MOST_TAG_CHARACTERS = 300
_TOGETHER_US = 1_000_000
"""Scalars of one step that are written within a second are of one row."""
_Field = tuple[int, int | float | bytes]
"""Number of a field; its value: a whole number, a double, a float, or bytes."""
_FIXED = {1: struct.Struct("<d"), 5: struct.Struct("<f")}
_VARINT, _BYTES = 0, 2
_MOST_BITS = 64


def shortest(value: float) -> float:
    """The decimal number of the fewest digits that reads as the same float of 32 bits.

    >>> shortest(struct.unpack("<f", struct.pack("<f", 0.1))[0])
    0.1
    """
    if not math.isfinite(value):
        return value
    shape = struct.Struct("<f")
    for digits in (6, 7, 8):
        found = float(f"{value:.{digits}g}")
        try:
            if shape.unpack(shape.pack(found))[0] == value:
                return found
        except OverflowError:
            continue
    return value


class Reader:
    """Reads the events of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._scalars = Scalars(transcript)
        self._row: dict[str, float] = {}
        self._place = self._step = self._time_us = 0

    def record(self, number: int, content: bytes) -> Iterator[Found]:
        """The records that are complete with an event."""
        try:
            found = list(fields(content))
            time_us, step = _place_of(found)
            scalars = list(self._values(number, found))
        except (WireError, UnicodeDecodeError) as error:
            yield number, Refusal(f"the record is no event of TensorBoard: {error}", "", "value")
            return
        if not scalars:
            return
        if time_us is None or step is None:
            yield number, Refusal("the event has no time or step", "seconds since 1970 UTC, and a step from 0", "time")
            return
        is_new = step != self._step or abs(time_us - self._time_us) > _TOGETHER_US
        if self._row and (is_new or any(tag in self._row for tag, _ in scalars)):
            yield from self._flush()
        if not self._row:
            self._place, self._step, self._time_us = number, step, time_us
        self._row.update(scalars)

    def _values(self, number: int, event: list[_Field]) -> Iterator[tuple[str, float]]:
        """The scalars of an event by their tag; whatever else it holds is counted."""
        for summary in (each for name, each in event if name == _SUMMARY and isinstance(each, bytes)):
            values = [each for name, each in fields(summary) if name == _VALUE and isinstance(each, bytes)]
            for value in values[:_MOST_VALUES]:
                parts = list(fields(value))
                tag = next((each for name, each in parts if name == _TAG and isinstance(each, bytes)), b"").decode()
                scalar = _scalar(parts)
                if scalar is None or len(tag) > _MOST_TAG_CHARACTERS:
                    message = "the file holds values that are no scalars: texts, images, histograms or graphs"
                    self._transcript.lose("text", "tensor", message, number)
                else:
                    yield tag, scalar

    def _flush(self) -> Iterator[Found]:
        row, self._row = self._row, {}
        yield from self._scalars.row((self._place, self._time_us, self._step, row))

    def end(self) -> Iterator[Found]:
        """The last row, and those that wait for the name of a program."""
        if self._row:
            yield from self._flush()
        yield from self._scalars.end()


def _place_of(event: list[_Field]) -> tuple[int | None, int | None]:
    """Time and step of an event; a field that is 0 is left out of a message."""
    found = dict(event)
    wall, step = found.get(_WALL_TIME, 0.0), found.get(_STEP, 0)
    whole = isinstance(wall, float) and math.isfinite(wall) and 0 <= wall < 1e10
    time_us = fit.time_us(round(wall * 1e6)) if whole and isinstance(wall, float) else None
    return time_us, fit.step(_signed(step)) if isinstance(step, int) else None


def _scalar(value: list[_Field]) -> float | None:
    """The number that a value holds, as a float of its own or as a tensor without dimensions."""
    for name, each in value:
        if name == _SIMPLE_VALUE and isinstance(each, float):
            return shortest(each)
        if name == _TENSOR and isinstance(each, bytes):
            return _of_tensor(list(fields(each)))
    return None


def _of_tensor(tensor: list[_Field]) -> float | None:
    found = dict(tensor)
    kind, shape, content = found.get(_DTYPE), found.get(_SHAPE, b""), found.get(_CONTENT)
    if not isinstance(kind, int) or kind not in _PACKED or shape != b"":
        return None
    form, number = _PACKED[kind]
    value = content if isinstance(content, bytes) and content else found.get(number)
    if isinstance(value, bytes):
        value = struct.unpack(form, value)[0] if len(value) == struct.calcsize(form) else None
    if not isinstance(value, float):
        return None
    return shortest(value) if form == "<f" else value


class WireError(ValueError):
    """The bytes are no message."""


def fields(content: bytes) -> Iterator[_Field]:
    """The fields of a message in their order.

    >>> list(fields(bytes([0x10, 0x96, 0x01, 0x1A, 0x01, 0x41])))
    [(2, 150), (3, b'A')]

    Raises:
        WireError: the bytes are no message.
    """
    place = 0
    while place < len(content):
        head, place = _varint(content, place)
        number, kind = head >> 3, head & 7
        if kind == _VARINT:
            whole, place = _varint(content, place)
            yield number, whole
        elif kind == _BYTES:
            length, place = _varint(content, place)
            if length > len(content) - place:
                raise WireError("a field is longer than its message")
            yield number, content[place : place + length]
            place += length
        elif kind in _FIXED:
            shape = _FIXED[kind]
            if shape.size > len(content) - place:
                raise WireError("a field is longer than its message")
            yield number, shape.unpack_from(content, place)[0]
            place += shape.size
        else:
            raise WireError(f"a field is of the unknown kind {kind}")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while place < len(content) and shift < _MOST_BITS:
        byte = content[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    raise WireError("a number has no end")


def _signed(value: int) -> int:
    """A number of 64 bits that may be negative.

    >>> _signed(2**64 - 1)
    -1
    """
    return value - 2**64 if value >= 2**63 else value
