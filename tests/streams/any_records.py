"""Any records that a stream can hold, for round trips."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from trainspec_validate.documents.types.stream import Event, ExtensionMetric, Head, HistogramValue, Producer, Sample
from trainspec_validate.model.metrics import events, metrics
from trainspec_validate.telemetry.formats import Record

identities = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12)
times = st.integers(0, 9_007_199_254_740_991)
numbers = st.floats(allow_nan=False, allow_infinity=False)
names = st.from_regex(r"[a-z][a-z0-9_.]{0,12}", fullmatch=True)
tricky = st.sampled_from(
    ["host.id", "hw.id", "train.rank.id", "trainspec.seq", "trainspec.a", "json", "seq", "train.step"]
)
attribute_names = names | tricky
inner = st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="{}"), min_size=1, max_size=10)
series = st.lists(st.tuples(attribute_names, inner), max_size=3).map(
    lambda pairs: ",".join(f"{name}={value}" for name, value in sorted(dict(pairs).items()))
)
metric_names = st.sampled_from(sorted(metrics())) | names | tricky
metric_keys = st.builds(
    lambda name, braces: f"{name}{{{braces}}}" if braces else name, metric_names, series | inner | st.just("")
)
histograms = st.builds(
    HistogramValue,
    count=st.integers(0, 2**40),
    sum=numbers,
    min=st.none() | numbers,
    max=st.none() | numbers,
    bounds=st.lists(numbers, max_size=3).map(tuple),
    counts=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
)
values = numbers | st.sampled_from(["NaN", "+Inf", "-Inf"]) | histograms
scalars = st.booleans() | st.integers(-(2**70), 2**70) | numbers | st.text(st.characters(blacklist_categories=["Cs"]))
items = st.integers(-(2**40), 2**40) | numbers | identities
attribute_values = scalars | st.lists(items, max_size=3)
attributes = st.dictionaries(attribute_names, attribute_values, max_size=3)
steps = st.none() | st.integers(0, 999_999_999_999)
places: dict[str, Any] = {
    "run": st.none() | identities,
    "att": st.none() | st.integers(0, 1_000_000),
    "emitter": st.none() | identities,
    "rank": st.none() | st.integers(0, 99_999_999),
    "host": st.none() | identities,
    "device": st.none() | identities,
}
json_values: Any = st.recursive(
    st.none() | scalars,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(identities, inside, max_size=3),
    max_leaves=6,
)
extensions = st.builds(
    ExtensionMetric, unit=identities, instrument=st.sampled_from(["counter", "gauge", "updowncounter"])
)
heads = st.builds(
    Head,
    apiVersion=st.just("trainspec/v1"),
    kind=st.just("MetricStream"),
    run=identities,
    att=st.integers(0, 1_000_000),
    emitter=identities,
    time_us=times,
    scopes=st.lists(st.sampled_from(["job", "rank", "device", "node"]), min_size=1, max_size=3).map(tuple),
    world_size=st.none() | st.integers(1, 100_000_000),
    rank=places["rank"],
    host=places["host"],
    device=places["device"],
    cadence_seconds=st.dictionaries(st.sampled_from(["C10", "C30"]), st.sampled_from([1.0, 30.0, 0.1]), max_size=2),
    report_interval_steps=st.integers(1, 1_000_000),
    counters_start_us=st.none() | times,
    declared=attributes,
    unsupported=st.dictionaries(metric_names, identities, max_size=2),
    extension_metrics=st.dictionaries(names, extensions, max_size=2),
    redaction=st.sampled_from(["none", "keyed-hash"]),
    producer=st.none() | st.builds(Producer, name=identities, version=st.none() | identities),
    extensions=st.dictionaries(st.just("org.example.data"), json_values, max_size=1),
)
samples = st.builds(
    Sample,
    time_us=times,
    seq=st.just(0),
    m=st.dictionaries(metric_keys, values, max_size=4),
    step=steps,
    start_us=st.none() | times,
    observed_us=st.none() | times,
    a=attributes,
    nr=st.lists(metric_keys, max_size=2).map(tuple),
    **places,
)
plain_samples = st.builds(
    Sample,
    time_us=times,
    seq=st.just(0),
    m=st.dictionaries(metric_keys, numbers, min_size=1, max_size=4),
    step=steps,
    **{name: places[name] for name in ("att", "emitter", "rank", "host", "device")},
)
happenings = st.builds(
    Event,
    time_us=times,
    seq=st.just(0),
    name=st.sampled_from(sorted(events())) | names,
    id=st.none() | identities,
    severity=st.none() | st.integers(1, 24),
    step=steps,
    observed_us=st.none() | times,
    a=attributes,
    m=st.dictionaries(metric_keys, values, max_size=3),
    **places,
)


def numbered(head: Head, rest: list[Record]) -> list[Record]:
    """A stream of these records: a head first, and sequence numbers that count up."""
    import msgspec

    return [
        head,
        *(r if isinstance(r, Head) else msgspec.structs.replace(r, seq=number) for number, r in enumerate(rest)),
    ]


streams = st.builds(
    numbered, heads, st.lists(samples | plain_samples | happenings | samples | happenings | heads, max_size=8)
)
