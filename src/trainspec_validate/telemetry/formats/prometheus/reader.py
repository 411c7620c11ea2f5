"""Reads an exposition of Prometheus or OpenMetrics, or an answer of the query API, as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from trainspec_validate.documents.types.stream import HistogramValue, MetricValue, ScopeName
from trainspec_validate.model.metrics import Metric, catalog, metrics
from trainspec_validate.model.metrics.prometheus import HISTOGRAM_SERIES, prometheus_label, prometheus_names
from trainspec_validate.system.budget import Count, Limit
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.prometheus import device_state
from trainspec_validate.telemetry.formats.prometheus.points import Answer, Comment, Point, parse
from trainspec_validate.telemetry.formats.transcript import Transcript

ECOSYSTEMS = ("opentelemetry", "dcgm", "gpud", "amd", "node-exporter", "nccl")
_DEVICE = ("hw_id", "UUID", "uuid", "gpu_uuid", "GPU_UUID", "serial_number")
_INDEX = ("gpu", "gpu_id", "device", "nvswitch")
_HOST = ("host_id", "Hostname", "hostname", "node", "instance", "k8s_node_name")
_PASSED = frozenset(
    {"__name__", "gpud_component", "job", "le", "train_run_id", "train_run_attempt", "service_instance_id"}
)
_USED = frozenset({*_DEVICE, *_INDEX, *_HOST, *_PASSED, "rank", "port"})
_MOST_SUBJECTS: Final = Limit("an exposition of Prometheus", 200_000, "devices, hosts and ranks at a moment")
_MOST_VALUES: Final = Limit("an exposition of Prometheus", 4_000_000, "values")
_END = "# EOF"
"""The last line of an exposition; https://prometheus.io/docs/specs/om/open_metrics_spec/, "Overall Structure"."""
_UNITS = ("_seconds", "_bytes", "_bytes_per_second", "_watts", "_joules")
_OTHER_UNITS = frozenset(
    {
        *("milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "ms", "us", "ns"),
        *("kilobytes", "megabytes", "gigabytes", "kib", "mib", "gib", "kb", "mb", "gb"),
        *("milliwatts", "kilowatts", "millijoules", "kilojoules"),
    }
)
_MOST_TOLD = 10_000
_MOST_COUNT = 2**53
"""Whole numbers up to here are exact in a double."""


@dataclass(slots=True)
class _Subject:
    """Values of one device, host or rank at one moment."""

    offset: int
    values: dict[str, MetricValue] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)
    sums: dict[str, dict[str, float]] = field(default_factory=dict)


@cache
def _by_name() -> Mapping[str, tuple[Metric, str, str]]:
    """Metric of every name that the catalog has in Prometheus, with its name there and the ending of a histogram."""
    found: dict[str, tuple[Metric, str, str]] = {}
    for metric in metrics().values():
        for name in prometheus_names(metric):
            ending = name.rpartition("_")[2]
            is_part = ending in HISTOGRAM_SERIES and not metric.name.endswith(f".{ending}")
            written = metric.name
            if metric.synonym and name.startswith(metric.synonym.replace(".", "_")):
                written = metric.synonym
            found[name] = (metric, written, ending if is_part else "")
    return found


@cache
def _by_base() -> Mapping[str, str]:
    """Names of this specification by what comes before their unit."""
    names = {name.removesuffix("_total"): name for name in _by_name() if name.startswith("train_")}
    return {short.rpartition("_")[0]: name for short, name in names.items() if short.endswith(_UNITS)}


@cache
def _attributes() -> Mapping[str, str]:
    return {prometheus_label(name): name for name in catalog().attributes}


class Reader:
    """Reads one exposition; a file of several scrapes has time stamps that distinguish them."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._names = Names(ECOSYSTEMS, transcript.tally, dict(transcript.given.quantities))
        self._subjects: dict[tuple[Any, ...], _Subject] = {}
        self._num_values = Count(_MOST_VALUES)
        self._seen: dict[int, fit.Number] = {}
        """Values by the hash of their series and time, which Python salts anew in each process."""
        self._states: dict[tuple[Any, ...], float] = {}
        """Newest value of each series that says what errors a device had."""
        self._errors: list[tuple[int, int, dict[str, str], dict[str, Any]]] = []
        """Place, time, attributes and subject of each such error."""
        self._answer: Answer | None = None
        self._num_lines = 0
        self._has_ended = self._is_told = False
        self._told: set[str] = set()
        self._run: str | None = None

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """Take the value of a line; values of one subject are one record, at the end."""
        if self._answer is None and not self._num_lines and text.lstrip().startswith("{"):
            self._answer = Answer(self._transcript)
        self._num_lines += bool(text.strip())
        if self._answer is not None:
            yield from self._points(self._answer.line(offset, text))
            return
        found = parse(text)
        if self._has_ended and found is not None and not self._is_told:
            self._is_told = True
            message = f"the line is below {_END}, which ends an exposition, and readers of OpenMetrics stop there"
            yield offset, Refusal(message, f"one {_END}, as the last line", "value")
        self._has_ended = self._has_ended or text.strip() == _END
        if isinstance(found, Refusal):
            yield offset, found
        elif isinstance(found, Comment) and found.word == "TYPE":
            yield from ((offset, refusal) for refusal in self._stated(found))
        elif isinstance(found, Comment) and found.word == "UNIT":
            message = "units are those that the catalog gives to names, not those of UNIT lines"
            self._transcript.lose("meaning", "UNIT", message, offset)
        elif isinstance(found, Point) and (problem := self._point(offset, found)):
            yield offset, problem

    def _points(self, found: Iterable[tuple[int, Point | Refusal]]) -> Iterator[Found]:
        for offset, point in found:
            problem = point if isinstance(point, Refusal) else self._point(offset, point)
            if problem:
                yield offset, problem

    def _stated(self, comment: Comment) -> Iterator[Refusal]:
        """Note the TYPE of a metric, of which OpenMetrics leaves the ending of counters out."""
        endings = ("", "_total", "_bucket")
        known = next((found for ending in endings if (found := _by_name().get(comment.name + ending))), None)
        if known and comment.text in {"counter", "gauge", "histogram"}:
            self._transcript.state(known[1], None, comment.text)
            metric = known[0]
            wanted = metric.instrument if metric.instrument in {"counter", "histogram"} else "gauge"
            plain = wanted == "histogram" and comment.text == "gauge"  # its values are numbers, one for each reading
            if comment.text != wanted and not plain and comment.text not in metric.also:
                message = f"{comment.name} is a {wanted}, and its TYPE is {comment.text}"
                yield Refusal(message, f"# TYPE {comment.name} {wanted}", "instrument")

    def _point(self, offset: int, point: Point) -> Refusal | None:
        if point.name in device_state.NAMES:
            return self._state(offset, point)
        known = _by_name().get(point.name)
        implied = () if known else self._names.aliases(point.name)
        metric = known[0] if known else metrics()[implied[0].metric] if implied else None
        if metric is None:
            self._names.take(point.name, point.value, offset, {})
            return self._other_unit(point.name)
        self._run = self._run or fit.identity(point.labels.get("train_run_id"))
        place, series = self._place(offset, point, metric)
        time_us = point.time_us
        if time_us is None:
            time_us = self._transcript.given.start_us
        subject = self._subject((time_us, *sorted(place.items())), offset)
        series_at = hash((time_us, point.name, frozenset(point.labels.items())))
        if series_at in self._seen:
            return self._again(offset, point, self._seen[series_at])
        self._seen[series_at] = point.value
        if known:
            self._own(subject, known, series, point)
            return None
        values: dict[str, MetricValue] = {}
        self._names.take(point.name, point.value, offset, values)
        for key, value in values.items():
            parts = keys.split(key) or (key, {})
            self._put(subject, keys.join(parts[0], {**series, **parts[1]}), value, offset)
        return None

    def _again(self, offset: int, point: Point, before: fit.Number) -> Refusal | None:
        """A series that is there again at the same time."""
        if before != point.value:
            return _twice(point, before)
        message = "series are there again with the same labels, time and value; each is read once"
        self._transcript.lose("value", "series", message, offset)
        return None

    def _state(self, offset: int, point: Point) -> Refusal | None:
        """The error that a value says a device has had, where it is not that of the value before."""
        if not isinstance(point.value, float):
            return None
        place, _ = self._place(offset, point, metrics()[device_state.THROTTLED])
        time_us = self._transcript.given.start_us if point.time_us is None else point.time_us
        self._num_values.add()
        series = (point.name, point.labels.get("xid"), *sorted(place.items()))
        before, self._states[series] = self._states.get(series), point.value
        code = device_state.vendor_code(point.name, point.value, point.labels)
        if code is not None and point.value != before:
            if before is None:
                message = f"{point.name} does not say when: the error is not newer than its first value"
                self._transcript.lose("time", point.name, message, offset)
            told = {"train.fault.vendor_code": code}
            if how_bad := device_state.severity(point.name):
                told["train.error.severity"] = how_bad
            self._errors.append((offset, time_us or 0, told, place))
        for key, value in device_state.throttled(point.name, point.value):
            subject = self._subject((time_us, *sorted(place.items())), offset)
            subject.values.setdefault(key, value)
        return None

    def _other_unit(self, name: str) -> Refusal | None:
        """The refusal of a name of this catalog that ends in another unit; once for each."""
        base, _, unit = name.removesuffix("_total").rpartition("_")
        known = _by_base().get(base) if unit in _OTHER_UNITS else None
        if known is None or name in self._told or len(self._told) >= _MOST_TOLD:
            return None
        self._told.add(name)
        return Refusal(f"{name} is not in the unit of {known}", f"convert it, and write {known}", "unit")

    def _subject(self, identity: tuple[Any, ...], offset: int) -> _Subject:
        self._num_values.add()
        subject = self._subjects.get(identity)
        if subject is None:
            _MOST_SUBJECTS.check(len(self._subjects) + 1)
            subject = self._subjects[identity] = _Subject(offset)
        return subject

    def _put(self, subject: _Subject, key: str, value: MetricValue, offset: int) -> None:
        if key in subject.values:
            message = "labels that the catalog does not know distinguished series; the first of them is taken"
            self._transcript.lose("attribute", key, message, offset)
        elif keys.fits(key):
            subject.values[key] = value

    def _own(self, subject: _Subject, known: tuple[Metric, str, str], series: Mapping[str, str], point: Point) -> None:
        _, written, ending = known
        key = keys.join(written, series)
        if not ending:
            self._put(subject, key, point.value, subject.offset)  # type: ignore[arg-type]
        elif isinstance(point.value, float):
            if ending == "bucket":
                bound = fit.number(point.labels.get("le"))
                edge = float("inf") if bound == "+Inf" else bound
                if isinstance(edge, float):
                    subject.buckets.setdefault(key, {})[edge] = point.value
            else:
                subject.sums.setdefault(key, {})[ending] = point.value

    def _place(self, offset: int, point: Point, metric: Metric) -> tuple[dict[str, Any], dict[str, str]]:
        """The coordinates that labels tell, and the series attributes among them."""
        labels = point.labels
        device = next((fit.identity(labels[name]) for name in _DEVICE if labels.get(name)), None)
        index = next((name for name in _INDEX if labels.get(name)), None)
        if device is None and index and {"device", "nic", "link"} & set(metric.scopes):
            message = f"the label {index} is an index or a name of the host, not an identifier that survives a restart"
            self._transcript.lose("identity", index, message, offset)
            port = f"/{labels['port']}" if labels.get("port") else ""
            kind = index if index == "nvswitch" else ""
            device = fit.identity(f"{kind}{labels[index]}{port}")
        host = next((fit.identity(labels[name]) for name in _HOST if labels.get(name)), None)
        rank = fit.rank(labels.get("train_rank_id", labels.get("rank")))
        place = {"device": device, "host": host or self._transcript.given.host, "rank": rank}
        known = {*metric.attributes, *metric.optional_attributes} - {"hw.id", "host.id"}
        series: dict[str, str] = {}
        for label, value in labels.items():
            name = _attributes().get(label)
            if name in known:
                series[name] = keys.attribute_text(value)
            elif name is None and label not in _USED and not device_state.is_code(label, point.name):
                self._transcript.lose("attribute", label, f"the label {label} has no place in the catalog", offset)
        return {name: value for name, value in place.items() if value is not None}, series

    def end(self) -> Iterator[Found]:
        """The head, and a sample for each subject and moment."""
        if self._answer is not None:
            yield from self._points(self._answer.end())
        if not self._subjects and not self._errors:
            return
        times = [identity[0] for identity in self._subjects if identity[0] is not None]
        times += [time_us for _, time_us, _, _ in self._errors if time_us]
        if len(times) < len(self._subjects) + len(self._errors):
            self._transcript.clock = "none"
            self._transcript.lose("time", "time", "values have no time stamps; their times are 0", 0)
        scopes = self._scopes()
        first = min([*(s.offset for s in self._subjects.values()), *(error[0] for error in self._errors)])
        yield (
            first,
            self._transcript.head(min(times, default=0), scopes, run=self._transcript.given.run or self._run),
        )
        for identity, subject in self._subjects.items():
            for key in sorted({*subject.buckets, *subject.sums}):
                histogram = _histogram(subject.buckets.get(key, {}), subject.sums.get(key, {}))
                if histogram is not None:
                    self._transcript.lose("meaning", key, "a histogram counts from a start, not of one window", 0)
                    subject.values[key] = histogram
            if subject.values:
                place = dict(identity[1:])
                yield subject.offset, self._transcript.sample(identity[0] or 0, subject.values, **place)
        for offset, time_us, told, place in self._errors:
            yield offset, self._transcript.event(time_us, "train.device.error", a=told, **place)

    def _scopes(self) -> tuple[ScopeName, ...]:
        found: dict[Any, None] = {}
        for subject in self._subjects.values():
            for key in subject.values:
                metric = metrics().get(key.partition("{")[0])
                scopes = metric.scopes if metric else ("emitter",)
                found["nic" if "nic" in scopes and "hw.type=network" in key else scopes[0]] = None
        if self._errors:
            found["device"] = None
        return tuple(found) or ("emitter",)


def _twice(point: Point, before: fit.Number) -> Refusal:
    message = f"{point.name[:80]} has the value {before} above and {point.value} here, with the same labels and time"
    scrapes = "; lines of several scrapes need time stamps" if point.time_us is None else ""
    return Refusal(message, f"each series once at a time{scrapes}", "value")


def _histogram(buckets: Mapping[float, float], sums: Mapping[str, float]) -> HistogramValue | None:
    """A histogram of counts up to each bound."""
    bounds = sorted(bound for bound in buckets if bound != float("inf"))
    total = sums.get("count", buckets.get(float("inf"), 0.0))
    if not 0 <= total <= _MOST_COUNT or any(not 0 <= value <= _MOST_COUNT for value in buckets.values()):
        return None
    upto = [*(buckets[bound] for bound in bounds), buckets.get(float("inf"), total)]
    counts = [int(now - before) for now, before in zip(upto, [0.0, *upto], strict=False)]
    if min(counts, default=0) < 0:
        return None
    shape: dict[str, Any] = {"bounds": tuple(bounds), "counts": tuple(counts)} if buckets else {}
    return HistogramValue(count=int(total), sum=sums.get("sum", 0.0), **shape)
