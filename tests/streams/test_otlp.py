"""OTLP/JSON of other programs: names and units of the catalog, aliases, counters, histograms, events."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from otlp_documents import NANO, event, gauge, histogram, logs, metrics, point, total
from reading import read_text

from trainspec_validate.documents.types.stream import Head, HistogramValue, Sample
from trainspec_validate.telemetry.formats.otlp.values import SCOPE
from trainspec_validate.telemetry.formats.otlp.write import write

HEAD = Head(apiVersion="trainspec/v1", kind="MetricStream", run="r", att=0, emitter="e", time_us=5, scopes=("job",))
RESOURCE = {
    "service.name": "trainer",
    "service.version": "2.1",
    "service.instance.id": "run7-rank12",
    "host.name": "node-3",
    "train.run.id": "run7",
    "train.run.attempt": 1,
    "train.world.size": 64,
}


def test_values_of_one_moment_are_one_sample() -> None:
    text = metrics(
        gauge("train.loss.mean", point(2.5, attributes={"train.loss.name": "total", "step": 9})),
        gauge("train.learning_rate", point(0.5, attributes={"step": 9})),
        total("train.step.count", point(9, startTimeUnixNano=str(2 * NANO), attributes={"step": 9}), unit="{step}"),
        gauge("train.learning_rate", point(0.25, 6.0, attributes={"step": 10})),
        resource=RESOURCE,
    )
    found = read_text(text)
    (head,) = found.heads
    assert (head.run, head.att, head.emitter, head.host, head.rank) == ("run7", 1, "trainer/run7-rank12", "node-3", 12)
    assert (head.world_size, head.scopes, head.time_us) == (64, ("job",), 5_000_000)
    assert head.producer is not None
    assert (head.producer.name, head.producer.version) == ("trainer", "2.1")
    assert [(s.time_us, s.start_us, s.step, s.m) for s in found.samples] == [
        (5_000_000, None, 9, {"train.loss.mean{train.loss.name=total}": 2.5, "train.learning_rate": 0.5}),
        (5_000_000, 2_000_000, 9, {"train.step.count": 9.0}),
        (6_000_000, None, 10, {"train.learning_rate": 0.25}),
    ]
    assert {sample.emitter for sample in found.samples} == {"trainer/run7-rank12"}
    assert not [entry for entry in found.losses.entries if entry.reason in {"unit", "attribute", "unknown-name"}]
    assert found.losses.stated["train.step.count"].instrument == "counter"
    assert found.losses.stated["train.loss.mean"].unit == "1"


@pytest.mark.parametrize(("unit", "value"), [("s", 2.5), ("ms", 0.0025), ("us", 2.5e-6), ("", 2.5)])
def test_units_are_converted(unit: str, value: float) -> None:
    found = read_text(metrics(gauge("train.step.duration", point(2.5), unit=unit)))
    assert found.values("train.step.duration") == [pytest.approx(value)]
    assert (("unit", "train.step.duration") in found.lost) == (unit == "")


@pytest.mark.parametrize("unit", ["By", "fortnight", "%"])
def test_units_that_do_not_convert_are_refused(unit: str) -> None:
    found = read_text(metrics(gauge("train.step.duration", point(2.5), unit=unit)))
    assert [refusal.code for refusal in found.refusals] == ["unit"]
    assert not found.samples


def test_names_of_other_programs() -> None:
    found = read_text(
        metrics(
            gauge("megatron.training.memory_allocated_gb", point(2.0), unit="GB"),
            gauge("DCGM_FI_DEV_GPU_UTIL", point(50, attributes={"hw.id": "GPU-a"})),
            gauge("train.accelerator.busy", point(0.5, attributes={"hw.id": "GPU-a"})),
            gauge("http.server.duration", point(1.0), point(2.0)),
        )
    )
    values = {key: value for sample in found.samples for key, value in sample.m.items()}
    assert values == {
        "train.memory.allocator.active": 2.0 * 2**30,
        "hw.gpu.utilization": 0.5,
        "train.accelerator.busy": 0.5,
    }
    assert found.lost["unknown-name", "http.server.duration"] == 2
    assert found.samples[1].device == "GPU-a"


def test_no_recorded_value_is_not_a_number() -> None:
    found = read_text(metrics(gauge("train.learning_rate", {"timeUnixNano": str(NANO), "flags": 1, "asDouble": 7.0})))
    assert [(sample.m, sample.nr) for sample in found.samples] == [({}, ("train.learning_rate",))]


@pytest.mark.parametrize(("written", "value"), [("NaN", "NaN"), ("Infinity", "+Inf"), ("-Infinity", "-Inf")])
def test_values_that_are_not_finite(written: str, value: str) -> None:
    assert read_text(metrics(gauge("train.gradient.norm", point(written)))).values("train.gradient.norm") == [value]


def test_whole_numbers_of_64_bits() -> None:
    found = read_text(metrics(total("hw.energy", point(2**53), point("x"), {**point(1), "asInt": 5}, unit="J")))
    assert found.values("hw.energy") == [2.0**53, 5.0]
    assert [refusal.code for refusal in found.refusals] == ["value"]


@pytest.mark.parametrize("written", [1.5, "1.5", "NaN", 2**64])
def test_an_integer_that_is_none_is_a_damaged_point(written: object) -> None:
    damaged = {key: value for key, value in point(1).items() if key != "asInt"} | {"asInt": written}
    found = read_text(metrics(gauge("train.gradient.norm", point(3), damaged)))
    assert found.values("train.gradient.norm") == [3.0]
    assert [refusal.message for refusal in found.refusals] == [
        f"a point of train.gradient.norm has asInt {written}, which is no integer of 64 bits"
    ]


@pytest.mark.parametrize("written", [7, "7", 7.0, "7e0"])
def test_an_integer_may_be_written_as_any_number_of_json(written: object) -> None:
    damaged = {**point(1), "asInt": written}
    assert read_text(metrics(gauge("train.gradient.norm", damaged))).values("train.gradient.norm") == [7.0]


def test_deltas_are_added_up() -> None:
    text = "".join(metrics(total("hw.energy", point(5.0, n), unit="J", temporality=1)) for n in (1.0, 2.0, 3.0))
    found = read_text(text)
    assert found.values("hw.energy") == [5.0, 10.0, 15.0]
    assert ("meaning", "hw.energy") in found.lost


def test_a_counter_that_is_not_written_as_one() -> None:
    found = read_text(metrics(gauge("hw.energy", point(5.0), unit="J")))
    assert ("meaning", "hw.energy") in found.lost
    assert found.losses.stated["hw.energy"].instrument == "gauge"


def window(count: int, counts: list[int], seconds: float = 5.0, total_seconds: float = 1.0) -> dict[str, Any]:
    shape = {"bucketCounts": [str(each) for each in counts], "explicitBounds": [0.1, 1.0]}
    return {"timeUnixNano": str(int(seconds * NANO)), "count": str(count), "sum": total_seconds, **shape}


def test_histograms_of_a_window() -> None:
    found = read_text(metrics(histogram("train.step.duration", {**window(3, [1, 2, 0]), "min": 0.05, "max": 0.5})))
    assert found.values("train.step.duration") == [
        HistogramValue(count=3, sum=1.0, min=0.05, max=0.5, bounds=(0.1, 1.0), counts=(1, 2, 0))
    ]


def test_histograms_that_count_from_a_start() -> None:
    points = [(3, [1, 2, 0], 1.0), (5, [1, 3, 1], 4.0), (2, [1, 1, 0], 0.5)]
    text = "".join(
        metrics(histogram("train.step.duration", window(num, counts, n, s), temporality=2))
        for n, (num, counts, s) in enumerate(points, 1)
    )
    found = read_text(text).values("train.step.duration")
    assert [(value.count, value.sum, value.counts) for value in found] == [
        (3, 1.0, (1, 2, 0)),
        (2, 3.0, (0, 1, 1)),
        (2, 0.5, (1, 1, 0)),
    ]


@pytest.mark.parametrize(
    ("sides", "bounds", "counts"),
    [
        ({"positive": {"offset": 1, "bucketCounts": ["0", "2"]}, "zeroCount": "1"}, (2, 4, 8), (1, 0, 2, 0)),
        ({"negative": {"offset": 0, "bucketCounts": ["3", "1"]}}, (-4, -2, -1), (0, 1, 3, 0)),
        ({"zeroCount": 4}, (), (4,)),
        (
            {"positive": {"bucketCounts": [5]}, "negative": {"offset": -1, "bucketCounts": [6]}, "zeroCount": 7},
            (-1, -0.5, 1, 2),
            (0, 6, 7, 5, 0),
        ),
    ],
)
def test_exponential_histograms(sides: dict[str, Any], bounds: tuple[float, ...], counts: tuple[int, ...]) -> None:
    data = {"timeUnixNano": str(NANO), "count": sum(counts), "sum": 1.0, "scale": 0, **sides}
    found = read_text(metrics(histogram("train.step.duration", data, kind="exponentialHistogram")))
    (value,) = found.values("train.step.duration")
    assert (value.bounds, value.counts) == (bounds, counts)


def test_a_finer_scale() -> None:
    data = {
        "timeUnixNano": str(NANO),
        "count": 1,
        "sum": 1.0,
        "scale": 2,
        "positive": {"offset": 4, "bucketCounts": [1]},
    }
    found = read_text(metrics(histogram("train.step.duration", data, kind="exponentialHistogram")))
    low, high = found.values("train.step.duration")[0].bounds
    assert math.isclose(low, 2.0)
    assert math.isclose(high, 2 ** (5 / 4))


@pytest.mark.parametrize(
    "change",
    [
        {"bucketCounts": ["1"]},
        {"explicitBounds": [1.0, 0.5]},
        {"explicitBounds": "x"},
        {"count": -1},
        {"count": "x"},
        {"sum": "x"},
        {"bucketCounts": ["1", None, "2"]},
    ],
)
def test_histograms_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    found = read_text(metrics(histogram("train.step.duration", window(3, [1, 2, 0]) | change)))
    assert [refusal.code for refusal in found.refusals] == ["value"]


@pytest.mark.parametrize(
    "change", [{"scale": 99}, {"scale": "x"}, {"positive": {"offset": 2**40, "bucketCounts": [1]}}]
)
def test_exponential_histograms_that_do_not_fit(change: dict[str, Any]) -> None:
    data = {"timeUnixNano": str(NANO), "count": 1, "sum": 1.0, "positive": {"bucketCounts": [1]}} | change
    found = read_text(metrics(histogram("train.step.duration", data, kind="exponentialHistogram")))
    assert [refusal.code for refusal in found.refusals] == ["value"]


def test_attributes_that_are_none_of_the_metric_are_lost() -> None:
    found = read_text(metrics(gauge("train.learning_rate", point(0.5, attributes={"job": "a", "rank": 3}))))
    assert found.values("train.learning_rate") == [0.5]
    assert {("attribute", "job"), ("attribute", "rank")} <= set(found.lost)


def test_the_same_series_twice_is_two_samples() -> None:
    found = read_text(metrics(gauge("train.learning_rate", point(0.5), point(0.25))))
    assert found.values("train.learning_rate") == [0.5, 0.25]


def test_series_attributes_stand_in_the_key() -> None:
    entry = gauge(
        "train.evaluation.loss", point(2.0, attributes={"train.evaluation.set": "a,b={c}", "train.loss.name": "t"})
    )
    found = read_text(metrics(entry))
    assert list(found.samples[0].m) == ["train.evaluation.loss{train.evaluation.set=a_b__c_,train.loss.name=t}"]


def test_resources_have_a_head_each() -> None:
    texts = [metrics(gauge("train.learning_rate", point(0.5)), resource={"service.instance.id": n}) for n in "aba"]
    found = read_text("".join(texts))
    assert [head.emitter for head in found.heads] == ["a", "b"]
    assert [(sample.emitter, sample.seq) for sample in found.samples] == [("a", 0), ("b", 0), ("a", 1)]


def test_events() -> None:
    text = logs(
        event(
            "train.checkpoint.commit",
            observedTimeUnixNano=str(6 * NANO),
            severityNumber=13,
            attributes={
                "train.checkpoint.id": "ck-1",
                "event.id": "i-1",
                "step": 7,
                "train.checkpoint.size": 5.0,
                "train.rank.id": 3,
                "host.id": "node-1",
                "color": "red",
            },
        ),
        event("train.node.drained", attributes={"host.id": "node-2", "train.reason": "heat"}),
        event("user.login"),
        {"timeUnixNano": str(NANO), "body": {"stringValue": "text"}},
        {"observedTimeUnixNano": str(7 * NANO), "eventName": "train.run.end"},
        {"eventName": "train.run.end"},
        {
            "timeUnixNano": str(8 * NANO),
            "attributes": [{"key": "event.name", "value": {"stringValue": "train.run.end"}}],
        },
        resource=RESOURCE,
    )
    found = read_text(text)
    commit, drained, observed, named = found.events
    assert (commit.id, commit.step, commit.severity, commit.observed_us) == ("i-1", 7, 13, 6_000_000)
    assert (commit.a, commit.m) == ({"train.checkpoint.id": "ck-1"}, {"train.checkpoint.size": 5.0})
    assert (commit.rank, commit.host) == (3, "node-1")
    assert (drained.a, drained.host) == ({"host.id": "node-2", "train.reason": "heat"}, None)
    assert (observed.time_us, named.time_us) == (7_000_000, 8_000_000)
    assert [refusal.code for refusal in found.refusals] == ["time"]
    assert set(found.lost) >= {
        *(("attribute", "color"), ("unknown-name", "user.login"), ("text", "logRecords"), ("time", "train.run.end")),
    }
    assert found.heads[0].scopes == ("job", "node")


@pytest.mark.parametrize(
    ("number", "severity"),
    [(0, None), (1, 1), (24, 24), (25, None), (-1, None), ("13", None), (13.0, None), (None, None)],
)
def test_severities_of_events_are_1_to_24(number: Any, severity: int | None) -> None:
    text = logs(event("train.run.end", severityNumber=number), resource=RESOURCE)
    (found,) = read_text(text).events
    assert found.severity == severity


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_a_document_over_many_lines(indent: int | None) -> None:
    text, later = (
        json.dumps(json.loads(metrics(gauge("train.learning_rate", point(0.5, seconds)))), indent=indent)
        for seconds in (5.0, 6.0)
    )
    found = read_text(f"{text}\n{later}\n")
    assert not found.refusals
    assert found.values("train.learning_rate") == [0.5, 0.5]
    assert [offset for offset, item in found.items if item in found.samples] == [0, len(text) + 1]


@pytest.mark.parametrize(
    "first", ['{"a": {"b": 1}', '{"a": "}"', '{"resourceMetrics": [], "a": {}', '{"resourceMetrics":']
)
def test_a_first_line_that_looks_whole(first: str) -> None:
    rest = " []}" if first.endswith(":") else ', "resourceLogs": []}'
    found = read_text(f"{first}\n{rest}\n", "otlp")
    assert not found.refusals


def test_points_of_a_sample_may_stand_on_several_lines() -> None:
    """A collector splits what is large."""
    record = Sample(time_us=5, seq=0, m={"train.learning_rate": 0.5, "hw.energy": 5.0, "train.loss.mean": 2.0})
    second = Sample(time_us=5, seq=1, m={"train.learning_rate": 0.25})
    (line,) = write([HEAD, record, second])
    whole = json.loads(line)["resourceMetrics"][0]
    metric_list = whole["scopeMetrics"][0]["metrics"]
    text = "".join(
        json.dumps({"resourceMetrics": [whole | {"scopeMetrics": [{"scope": {"name": SCOPE}, "metrics": [entry]}]}]})
        + "\n"
        for entry in metric_list
    )
    assert read_text(text).records == [HEAD, record, second]
    later = "".join(text.splitlines(keepends=True)[1:])
    assert [refusal.code for refusal in read_text(later).refusals] == ["sequence"] * 2


def test_a_document_that_ends_early() -> None:
    text = json.dumps(json.loads(metrics(gauge("train.learning_rate", point(0.5)))), indent=2)
    found = read_text(text[:-20])
    assert [(refusal.code, refusal.message) for refusal in found.refusals] == [
        ("cut-off", "the document ends before its JSON does")
    ]


def test_spans_are_not_converted() -> None:
    assert read_text('{"resourceSpans": []}').lost == {("unknown-name", "resourceSpans"): 1}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"name": "train.learning_rate"}, "value"),
        ({"gauge": {"dataPoints": []}}, "value"),
        (gauge("train.learning_rate", {"asDouble": 1.0}), "time"),
        (gauge("train.learning_rate", {"asDouble": 1.0, "timeUnixNano": "0"}), "time"),
        (gauge("train.learning_rate", {"timeUnixNano": str(NANO)}), "value"),
        (gauge("train.learning_rate", {"asDouble": "1.5", "timeUnixNano": str(NANO)}), "value"),
        (gauge("train.learning_rate", {"asDouble": True, "timeUnixNano": str(NANO)}), "value"),
        (gauge("train.learning_rate", {"asDouble": 1.0, "timeUnixNano": str(2**64)}), "time"),
    ],
)
def test_points_that_are_refused(entry: dict[str, Any], code: str) -> None:
    assert [refusal.code for refusal in read_text(metrics(entry)).refusals] == [code]


@pytest.mark.parametrize(
    "text",
    [
        '{"resourceMetrics": 5}',
        '{"resourceMetrics": [5, null, {"resource": 5, "scopeMetrics": {"a": 1}}]}',
        '{"resourceMetrics": [{"scopeMetrics": [{"scope": [], "metrics": [[], {"name": "a", "gauge": []}]}]}]}',
        '{"resourceLogs": [{"resource": {"attributes": [{"key": 5}, 7]}, "scopeLogs": [{"logRecords": [1]}]}]}',
    ],
)
def test_any_shape_is_read_or_refused(text: str) -> None:
    assert not read_text(text).samples


def written() -> list[dict[str, Any]]:
    """What `write` makes of a gauge, a counter and a histogram, as it is in JSON."""
    values = {
        "train.learning_rate": 0.5,
        "train.step.count": 9.0,
        "train.network.latency": HistogramValue(count=1, sum=2.0),
    }
    sample = Sample(time_us=6, seq=0, m=values)
    return [json.loads(line) for line in write([HEAD, sample])]


def metrics_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    return found


@pytest.mark.parametrize(
    ("place", "change", "code"),
    [
        (0, {"unit": "ms"}, "unit"),
        (1, {"sum": {"aggregationTemporality": 1}}, "value"),
        (1, {"sum": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA"}}, "value"),
        (2, {"histogram": {"aggregationTemporality": 2}}, "value"),
    ],
)
def test_what_was_changed_on_its_way_is_refused_and_not_taken(place: int, change: dict[str, Any], code: str) -> None:
    documents = written()
    changed = metrics_of(documents[-1])[place]
    for key, value in change.items():
        changed[key] = {**changed[key], **value} if isinstance(value, dict) else value
    found = read_text("".join(json.dumps(document) + "\n" for document in documents))
    assert [refusal.code for refusal in found.refusals] == [code]
    [sample] = found.samples
    assert len(sample.m) == 2
    assert changed["name"] not in sample.m


def test_what_is_left_as_it_was_is_read_back() -> None:
    found = read_text("".join(json.dumps(document) + "\n" for document in written()))
    assert (len(found.refusals), len(found.samples[0].m)) == (0, 3)


@pytest.mark.parametrize("own", [True, False])
def test_a_point_with_two_numbers_is_refused(own: bool) -> None:
    if own:
        documents = written()
        metrics_of(documents[-1])[0]["gauge"]["dataPoints"][0]["asInt"] = "7"
        text = "".join(json.dumps(document) + "\n" for document in documents)
    else:
        text = metrics(gauge("train.learning_rate", point(2.5, asInt="7")))
    found = read_text(text)
    assert [refusal.code for refusal in found.refusals] == ["value"]
    assert not found.values("train.learning_rate")
