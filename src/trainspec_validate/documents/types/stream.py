"""Declares the records of a metric stream: stream header, wide sample and event, one on each line."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import Extensions, Record, Text

Identity = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
Attempt = Annotated[int, Meta(ge=0, le=1_000_000)]
Rank = Annotated[int, Meta(ge=0, le=99_999_999)]
Step = Annotated[int, Meta(ge=0, le=999_999_999_999)]
Sequence = Annotated[int, Meta(ge=0, le=999_999_999_999_999)]
TimeMicroseconds = Annotated[
    int, Meta(ge=0, le=9_007_199_254_740_991, extra_json_schema={"x-unit": "us", "x-requirement": "TS-TEL-016"})
]
MetricName = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[a-z][a-z0-9_.]*(\{[^{}\x00-\x1f]+\})?$")]
EventName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[a-z][a-z0-9_.]*$")]
AttributeName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[a-z][a-z0-9_.]*$")]
AttributeValue = bool | int | float | Annotated[str, Meta(max_length=4000)] | list[int | float | str]
CadenceName = Literal["C1", "C10", "C30", "C60", "C300"]
Cadences = Annotated[
    dict[CadenceName, Annotated[float, Meta(gt=0, le=86_400)]],
    Meta(extra_json_schema={"propertyNames": {"enum": list(get_args(CadenceName))}}),
]
ScopeName = Literal["job", "rank", "group", "device", "link", "nic", "node", "pair", "emitter"]
NotFinite = Literal["NaN", "+Inf", "-Inf"]


class HistogramValue(Record, frozen=True, kw_only=True):
    """Values of one window as a histogram: what was seen since the record before."""

    count: Annotated[int, Meta(ge=0)]
    """Number of values."""
    sum: float
    """Sum of the values, in the unit of the metric."""
    min: float | None = None
    """Smallest value."""
    max: float | None = None
    """Largest value."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets, ascending; the last bucket has none."""
    counts: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Number of values in each bucket, one more than there are bounds."""


MetricValue = float | NotFinite | HistogramValue


class Producer(Record, frozen=True, kw_only=True):
    """The program that writes the stream."""

    name: Identity
    """Program or library that writes the stream, such as `trainspec-record`."""
    version: Identity | None = None
    """Exact release of that program, without a range."""


class ExtensionMetric(Record, frozen=True, kw_only=True):
    """A metric of a vendor that the catalog does not have."""

    unit: Annotated[str, Meta(min_length=1, max_length=64)]
    """UCUM unit of its values."""
    instrument: Literal["counter", "updowncounter", "gauge", "histogram"]
    """Whether values count up, move both ways, represent a moment, or are histograms."""
    description: Text | None = None
    """Meaning of the metric."""


class Head(Record, frozen=True, kw_only=True, tag_field="k", tag="head"):
    """Says who writes a stream, how often, and what it cannot give; the first record of every file."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815
    """Version of the specification that the stream follows."""
    kind: Literal["MetricStream"]
    """Kind of the document, which selects its schema together with `apiVersion`."""
    run: Identity
    """Identifier of the run, the same in all its attempts."""
    att: Attempt
    """Attempt of the run, from 0; one more each time that the process group is formed again."""
    emitter: Identity
    """Name of the writer, unique in the run; each has its own `seq`."""
    time_us: TimeMicroseconds
    """When the stream starts, in microseconds since 1970 UTC."""
    scopes: Annotated[tuple[ScopeName, ...], Meta(min_length=1)]
    """Scopes of the metrics that this emitter writes."""
    world_size: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    """Ranks that the attempt was started with."""
    rank: Rank | None = None
    """Rank of the records that name none."""
    host: Identity | None = None
    """`host.id` of the records that name none."""
    device: Identity | None = None
    """`hw.id` of the records that name none."""
    cadence_seconds: Cadences = {}
    """Real interval of each cadence class that the emitter writes; a class that is not named has its longest."""
    report_interval_steps: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """Optimizer steps between two reports of metrics with cadence C0."""
    counters_start_us: TimeMicroseconds | None = None
    """Moment from which counters count, where it is not the start of the stream."""
    declared: dict[AttributeName, AttributeValue] = {}
    """Attributes that hold for the whole attempt, such as the peak that utilization is measured against."""
    unsupported: dict[MetricName, Text] = {}
    """Metrics required of the stream that it cannot give, each with the reason."""
    extension_metrics: dict[MetricName, ExtensionMetric] = {}
    """Metrics of vendors that the stream carries in addition to those of the catalog."""
    redaction: Literal["none", "keyed-hash"] = "none"
    """How names of hosts and devices are hidden: `keyed-hash` writes `h:` and 16 or more hexadecimal digits."""
    producer: Producer | None = None
    """Program that writes the stream."""
    extensions: Extensions = {}
    """Vendor data, by reverse domain name."""


class Sample(Record, frozen=True, kw_only=True, tag_field="k", tag="m"):
    """Values of many metrics of one subject at one moment."""

    time_us: TimeMicroseconds
    """When the values hold, in microseconds since 1970 UTC."""
    seq: Sequence
    """Number of the record; counts up by 1 for each emitter and attempt, samples and events together."""
    m: dict[MetricName, MetricValue]
    """Value of each metric; the key is its name, or its name and series attributes as `name{key=value,key=value}`."""
    step: Step | None = None
    """Optimizer steps completed when the values hold."""
    run: Identity | None = None
    """Run, where it is not that of the head."""
    att: Attempt | None = None
    """Attempt, where it is not that of the head."""
    emitter: Identity | None = None
    """Emitter, where it is not that of the head."""
    rank: Rank | None = None
    """Rank that the values are of, where it is not that of the head."""
    host: Identity | None = None
    """`host.id` that the values are of, where it is not that of the head."""
    device: Identity | None = None
    """`hw.id` that the values are of, where it is not that of the head."""
    start_us: TimeMicroseconds | None = None
    """Moment from which the counters of this record count, where it is not that of the head."""
    observed_us: TimeMicroseconds | None = None
    """When the record was written, where a collector knows it."""
    a: dict[AttributeName, AttributeValue] = {}
    """Attributes that go with the values of this record, such as `train.step.warmup`."""
    nr: tuple[MetricName, ...] = ()
    """Metrics that were asked for and gave no value."""


class Event(Record, frozen=True, kw_only=True, tag_field="k", tag="e"):
    """Something that happened at one moment; two events that open and close an interval carry the same `id`."""

    time_us: TimeMicroseconds
    """When it happened, in microseconds since 1970 UTC."""
    seq: Sequence
    """Number of the record; counts up by 1 for each emitter and attempt, samples and events together."""
    name: EventName
    """Event of the catalog, such as `train.fault.detected`."""
    id: Identity | None = None
    """Key that ties the events of one interval together."""
    severity: Annotated[int, Meta(ge=1, le=24)] | None = None
    """Severity number of OpenTelemetry, where it is not that of the catalog."""
    step: Step | None = None
    """Optimizer steps completed when it happened."""
    run: Identity | None = None
    """Run, where it is not that of the head."""
    att: Attempt | None = None
    """Attempt, where it is not that of the head."""
    emitter: Identity | None = None
    """Emitter, where it is not that of the head."""
    rank: Rank | None = None
    """Rank that it is about, where it is not that of the head."""
    host: Identity | None = None
    """`host.id` that it is about, where it is not that of the head."""
    device: Identity | None = None
    """`hw.id` that it is about, where it is not that of the head."""
    observed_us: TimeMicroseconds | None = None
    """When the record was written, where a collector knows it."""
    a: dict[AttributeName, AttributeValue] = {}
    """Attributes of the event."""
    m: dict[MetricName, MetricValue] = {}
    """Values that the event carries."""


StreamRecord = Head | Sample | Event


def encode_record(record: StreamRecord) -> bytes:
    """One line of a stream, without its line end.

    Raises:
        ValueError: a number is not finite; such a value is written as a text.
    """
    return msgspec.json.encode(record)


def plain_record(record: StreamRecord) -> dict[str, Any]:
    """The record as plain values."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found
