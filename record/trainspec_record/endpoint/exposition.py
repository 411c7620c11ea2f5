"""Writes the latest values of streams in the text format of Prometheus, version 0.0.4.

Names, labels and types are those of `trainspec export --to prometheus`. Values have no time stamp, so that Prometheus
ends a series that is no longer served.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trainspec_record.catalog.prometheus import EXPOSED
from trainspec_record.values import EXACT

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOT_FINITE = frozenset({"NaN", "+Inf", "-Inf"})
_TAKEN = frozenset(name for each in EXPOSED.values() for name in (each.name, each.histogram))
_LABELS = {"run": "train_run_id", "att": "train_run_attempt", "rank": "train_rank_id", "host": "host_id"}
_NAME = re.compile(r"[a-z][a-z0-9_.]{0,255}")
_UNFIT = re.compile(r"[^a-zA-Z0-9_:]")
Labels = tuple[tuple[str, str], ...]


class Histogram(NamedTuple):
    """All windows of a histogram together."""

    num: int
    sum: float
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """Values of each bucket, one more than bounds; empty where windows had different bounds."""


class Subject(NamedTuple):
    """Rank, host and device of a value, where its record names them."""

    rank: int | None
    host: str | None
    device: str | None


class Family:
    """All series of one name."""

    def __init__(self, type_: str, help_: str) -> None:
        self.type, self.help = type_, help_
        self.series: dict[Labels, float | str | Histogram] = {}


def value_of(told: Any) -> float | str | Histogram | None:
    """A value of a record; None for what is none.

    >>> value_of(1.5), value_of("NaN"), value_of("high"), value_of(True)
    (1.5, 'NaN', None, None)
    """
    if isinstance(told, Mapping):
        return _histogram(told)
    if isinstance(told, str):
        return told if told in NOT_FINITE else None
    if isinstance(told, float):
        return told if math.isfinite(told) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(told, "NaN")
    return told if type(told) is int and -EXACT <= told <= EXACT else None


def _histogram(told: Mapping[str, Any]) -> Histogram | None:
    count, total = value_of(told.get("count")), value_of(told.get("sum"))
    bounds, counts = (_numbers(told.get(name, [])) for name in ("bounds", "counts"))
    if not isinstance(count, int) or isinstance(total, str | Histogram | None) or bounds is None or counts is None:
        return None
    whole = tuple(each for each in counts if isinstance(each, int))
    has_buckets = len(whole) == len(counts) == len(bounds) + 1
    return Histogram(count, total, bounds if has_buckets else (), whole if has_buckets else ())


def _numbers(told: Any) -> tuple[float, ...] | None:
    found = [value_of(each) for each in told] if isinstance(told, list) else [None]
    numbers = tuple(each for each in found if isinstance(each, int | float))
    return numbers if len(numbers) == len(found) else None


def together(before: object, value: float | str | Histogram) -> float | str | Histogram:
    """The value, or both windows of a histogram, which counts from its start in Prometheus."""
    if not isinstance(before, Histogram) or not isinstance(value, Histogram):
        return value
    is_same = before.bounds == value.bounds and len(before.counts) == len(value.counts)
    counts = tuple(a + b for a, b in zip(before.counts, value.counts, strict=True)) if is_same else ()
    return Histogram(before.num + value.num, before.sum + value.sum, value.bounds if is_same else (), counts)


class Exposition:
    """Series by name; a name has one type, and a series one value."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, head: Mapping[str, Any], subject: Subject, key: str, value: float | str | Histogram) -> None:
        """The latest value of a key of a stream with this head; what is no name of a metric is left out."""
        metric, attributes = _split(key)
        written, family = _family(metric, is_histogram=isinstance(value, Histogram))
        if not _NAME.fullmatch(metric) or (metric not in EXPOSED and written in _TAKEN):
            return
        known = self._families.setdefault(written, family)
        if (known.type, known.help) == (family.type, family.help):
            known.series[_labels(head, subject, attributes)] = value

    def text(self) -> bytes:
        """All series, sorted by name and labels."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines += [f"# HELP {name} {family.help}"] if family.help else []
            lines.append(f"# TYPE {name} {family.type}")
            for labels, value in sorted(family.series.items(), key=lambda item: item[0]):
                lines += _lines(name, dict(labels), value)
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _family(metric: str, *, is_histogram: bool) -> tuple[str, Family]:
    exposed = EXPOSED.get(metric)
    if exposed is None:
        return _UNFIT.sub("_", metric), Family("histogram" if is_histogram else "gauge", "")
    if is_histogram:
        return exposed.histogram, Family("histogram", exposed.help)
    return exposed.name, Family(exposed.type, exposed.help)


def _split(key: str) -> tuple[str, dict[str, str]]:
    """Metric and attributes of a key; the whole key as an attribute where it is not as the recorder writes it."""
    metric, brace, rest = key.partition("{")
    if not brace:
        return metric, {}
    pairs = [pair.partition("=") for pair in rest.removesuffix("}").split(",")]
    attributes = {name: value for name, _, value in pairs}
    is_plain = all(equals and _NAME.fullmatch(name) for name, equals, _ in pairs) and len(attributes) == len(pairs)
    return metric, attributes if is_plain else {"key": key}


def _labels(head: Mapping[str, Any], subject: Subject, attributes: Mapping[str, str]) -> Labels:
    found = {label: head.get(key) for key, label in _LABELS.items()}
    found |= {"hw_id": head.get("device")}
    told = {"train_rank_id": subject.rank, "host_id": subject.host, "hw_id": subject.device}
    found |= {label: value for label, value in told.items() if value is not None}
    found |= {name.replace(".", "_"): value for name, value in attributes.items()}
    return tuple(sorted((label, str(value)) for label, value in found.items() if value is not None))


def _lines(name: str, labels: Mapping[str, str], value: float | str | Histogram) -> Iterable[str]:
    if not isinstance(value, Histogram):
        yield f"{name}{_label_text(labels)} {value}"
        return
    seen = 0
    for bound, count in zip(value.bounds, value.counts, strict=False):
        seen += count
        yield f"{name}_bucket{_label_text({**labels, 'le': repr(float(bound))})} {seen}"
    yield f"{name}_bucket{_label_text({**labels, 'le': '+Inf'})} {value.num}"
    yield f"{name}_sum{_label_text(labels)} {value.sum}"
    yield f"{name}_count{_label_text(labels)} {value.num}"


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
