"""Values of series of Prometheus: of a line of an exposition, or of an answer of the query API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.transcript import Transcript

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*+)"[ \t]*(,|\})')
_START = re.compile(rf"({_NAME})[ \t]*(\{{)?")
_REST = re.compile(r"[ \t]*(\S+)(?:[ \t]+([-+]?[0-9][-+.eE0-9]*))?[ \t]*(?:#[ \t].*)?", re.DOTALL)
_COMMENT = re.compile(rf"#[ \t]+(TYPE|UNIT|HELP)[ \t]+({_NAME})(?:[ \t]+(.*))?", re.DOTALL)
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_MAX_SECONDS = 100_000_000_000
"""A time stamp below this many is in seconds, as OpenMetrics has it; above, in the milliseconds of Prometheus."""
_MOST_STAMP = 1e18
_DEPTH = 3
"""Brackets around the series of an answer, their list included."""
_MOST_WARNINGS = 5


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series."""

    name: str
    labels: Mapping[str, str]
    value: fit.Number
    time_us: int | None


@dataclass(frozen=True, slots=True)
class Comment:
    """Comment on a metric: its TYPE, UNIT or HELP."""

    word: str
    name: str
    text: str


def parse(text: str) -> Point | Comment | Refusal | None:
    r"""Content of a line; None for a comment that says nothing and the mark of the end.

    >>> parse('up{job="a\\"b"} 1 1700000000000')
    Point(name='up', labels={'job': 'a"b'}, value=1.0, time_us=1700000000000000)
    """
    text = text.strip(" \t")
    if text.startswith("#"):
        comment = _COMMENT.fullmatch(text)
        return Comment(comment[1], comment[2], comment[3] or "") if comment else None
    start = _START.match(text)
    if not start:
        return Refusal("the line begins with no name of a metric", 'name{label="value"} 1.5', "value")
    labels, place = (_labels(text, start.end()) if start[2] else ({}, start.end())) or (None, 0)
    rest = _REST.fullmatch(text, place) if labels is not None else None
    value = fit.number(rest[1]) if rest else None
    if labels is None or rest is None or value is None:
        return Refusal(f"the labels or the value of {start[1][:80]} cannot be read", 'name{label="value"} 1.5', "value")
    time_us = _time_us(rest[2])
    if rest[2] and time_us is None:
        return Refusal(f"the time {rest[2][:40]} is out of range", "milliseconds since 1970, or leave it out", "value")
    return Point(start[1], labels, value, time_us)


def _labels(text: str, place: int) -> tuple[dict[str, str], int] | None:
    """Labels, and where they end; None where they are no labels."""
    labels: dict[str, str] = {}
    if text[place:].lstrip(" \t").startswith("}"):
        return labels, text.index("}", place) + 1
    while match := _LABEL.match(text, place):
        if match[1] in labels:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda found: _ESCAPES.get(found[0], found[0]), match[2])
        place = match.end()
        if match[3] == "}":
            return labels, place
        if text[place:].lstrip(" \t").startswith("}"):
            return labels, text.index("}", place) + 1
    return None


def _time_us(text: str | None) -> int | None:
    stamp = fit.number(text) if text else None
    if not isinstance(stamp, float) or not 0 <= stamp <= _MOST_STAMP:
        return None
    as_seconds = fit.time_us(round(stamp * 1_000_000)) if stamp < _MAX_SECONDS else None
    return fit.time_us(round(stamp * 1_000)) if as_seconds is None else as_seconds


class Answer:
    """Points of an answer to `query` or `query_range`.

    Source: https://prometheus.io/docs/prometheus/latest/querying/api/, "Expression query result formats".
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._series = JsonList("result", depth=_DEPTH)

    def line(self, offset: int, text: str) -> Iterator[tuple[int, Point | Refusal]]:
        """The points of the series that end on a line."""
        for place, series in self._series.line(offset, text):
            if isinstance(series, Refusal):
                yield place, series
            else:
                yield from ((place, found) for found in self._points(place, series))

    def _points(self, place: int, series: Any) -> Iterator[Point | Refusal]:
        labels = series.get("metric") if isinstance(series, dict) else None
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            yield Refusal("a series has no labels", '"metric": {"__name__": "..."}', "value")
            return
        name = labels.get("__name__")
        if not name:
            message = "series without a name, as those of a function or a sum, are not read"
            self._transcript.lose("unknown-name", "__name__", message, place)
            return
        if "histogram" in series or "histograms" in series:
            self._transcript.lose("value", name, "native histograms are not read", place)
        values = series.get("values", [series["value"]] if "value" in series else [])
        for entry in values if isinstance(values, list) else [values]:
            yield _point(name, labels, entry)

    def end(self) -> Iterator[tuple[int, Refusal]]:
        """The refusal of an answer that is an error of the server, or is cut off."""
        document = self._series.end()
        if isinstance(document, Refusal):
            yield 0, document
        elif document.get("status") != "success":
            said = f"{document.get('errorType')}: {document.get('error')}"[:200]
            yield 0, Refusal(f"the server gave no values: {said}", "ask again", "value")
        else:
            warnings = document.get("warnings")
            for said in warnings[:_MOST_WARNINGS] if isinstance(warnings, list) else ():
                self._transcript.lose("value", "warnings", f"the server says: {str(said)[:200]}", 0)


def _point(name: str, labels: Mapping[str, str], entry: Any) -> Point | Refusal:
    """The point of a pair of a time in seconds and a value as text."""
    is_pair = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)
    value = fit.number(entry[1]) if is_pair else None
    time_us = fit.time_us(round(entry[0] * 1e6)) if is_pair and _is_time(entry[0]) else None
    if value is None or time_us is None:
        shown = repr(entry)[:60]
        return Refusal(f"{name[:80]} holds {shown}, which is no time and value", '[1700000000.5, "1.5"]', "value")
    return Point(name, labels, value, time_us)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_SECONDS
