"""The catalog of metrics and events: names, units, aliases, pairs and pages agree with each other."""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from pathlib import Path
from typing import get_args, get_type_hints

import catalogs
import metric_pages
import pytest

from tests.every import every
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types.batch import NoiseScale
from trainspec_validate.model import metrics as room
from trainspec_validate.model.metrics import Alias, Event, Metric, by_alias, by_name, catalog, events, metrics, parse

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "spec" / "v1" / "metrics.yaml"
REFERENCE = ROOT / "spec" / "reference"
KNOWN = catalog()
ALIASES = [alias for metric in metrics().values() for alias in metric.aliases]
# UCUM base codes that the catalog may use (ucum.org), beside annotations in braces.
UCUM = {"1", "s", "By", "By/s", "W", "J", "Cel", "Hz"}
ANNOTATION = re.compile(r"\{[a-z_]+\}(?:/s)?")
NAME = re.compile(r"(?:train|hw|system)(?:\.[a-z][a-z0-9]*(?:_[a-z0-9]+)*){1,5}")
UNIT_WORDS = {
    *("second", "seconds", "sec", "ms", "us", "ns", "byte", "bytes", "kb", "mb", "gb", "kib", "mib", "gib", "percent"),
    *("pct", "ratio", "watt", "watts", "joule", "joules", "celsius", "hz", "mhz", "hertz", "total", "tps", "tflops"),
}
INSTRUMENTS = {"counter", "gauge", "updowncounter", "histogram"}
LEVEL_WORD = re.compile(r"\b(must|shall|should|may|required|recommended|optional)\b", re.IGNORECASE)
AMERICAN = re.compile(r"\b\w*(?:ization|izing|yzing|ized|behavior|favorite|data center)\b", re.IGNORECASE)
LINE = re.compile(r"^\| `(?P<name>[^`]+)`")


def metric_id(metric: Metric) -> str:
    return metric.name


def alias_id(alias: Alias) -> str:
    return f"{alias.ecosystem}-{alias.name}"


def event_id(event: Event) -> str:
    return event.name


def all_names() -> list[str]:
    synonyms = [metric.synonym for metric in metrics().values() if metric.synonym]
    return [*metrics(), *synonyms, *events(), *KNOWN.attributes]


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def rows(name: str, under: str = "") -> list[str]:
    """First names of the rows of a page, or of its sections whose title begins so."""
    found, inside = [], not under
    for line in page(name).splitlines():
        if line.startswith("## "):
            inside = not under or line.startswith(f"## {under}")
        if inside and (match := LINE.match(line)):
            found.append(match["name"])
    return found


# --- the table ----------------------------------------------------------------------------------------------


def test_packaged_data_is_the_table() -> None:
    packaged = (ROOT / "src" / "trainspec_validate" / "data" / "metrics.json").read_text(encoding="utf-8")
    assert packaged == catalogs.catalogs(TABLE.parent)["metrics.json"], "run: make generate"
    assert json.loads(packaged) == load_file(TABLE).data
    assert parse(load_file(TABLE).data) == catalog()


@pytest.mark.parametrize("key", ["units", "cadences", "scopes", "levels", "quantities", "ecosystems", "attributes"])
def test_no_entry_hides_another(key: str) -> None:
    assert len(load_file(TABLE).data[key]) == len(getattr(KNOWN, key))


def test_names_are_unique() -> None:
    raw = load_file(TABLE).data
    assert len(raw["metrics"]) == len(metrics())
    assert len(raw["events"]) == len(events())
    assert len(all_names()) == len(set(all_names()))


def test_every_name_has_its_shape() -> None:
    borrowed = {"host.id", "error.type", "network.io.direction"}  # of OpenTelemetry
    assert [name for name in all_names() if name not in borrowed and not NAME.fullmatch(name)] == []


def test_no_name_holds_a_unit() -> None:
    named = [*metrics(), *(metric.synonym for metric in metrics().values())]
    assert [name for name in named if UNIT_WORDS & set(re.split(r"[._]", name))] == []


def test_no_name_is_the_namespace_of_another() -> None:
    names = all_names()
    assert [(a, b) for a in names for b in names if b.startswith(f"{a}.")] == []


def test_the_table_is_as_large_as_it_was_meant_to_be() -> None:
    """Removing an entry of a published catalog is a decision, so it is made here too."""
    assert len(metrics()) >= 62
    assert len(events()) >= 32
    assert {metric.family for metric in metrics().values()} == set(metric_pages.FAMILIES)


@pytest.mark.parametrize("name", ["frobnicated", "falling"])
def test_an_entry_with_a_wrong_key_is_refused(name: str) -> None:
    raw = load_file(TABLE).data
    wrong = {**raw, "events": [{**raw["events"][0], name: 1}]}
    with pytest.raises(TypeError, match=name):
        parse(wrong)


def test_an_alias_with_an_unknown_unit_is_refused() -> None:
    raw = load_file(TABLE).data
    alias = {"ecosystem": "dcgm", "name": "X", "unit": "furlong"}
    with pytest.raises(KeyError, match="furlong"):
        parse({**raw, "metrics": [{**raw["metrics"][0], "aliases": [alias]}]})


# --- metrics ------------------------------------------------------------------------------------------------


@every("metric", metrics().values(), ids=metric_id)
def test_a_metric_uses_words_that_are_explained(metric: Metric) -> None:
    assert metric.unit in UCUM or ANNOTATION.fullmatch(metric.unit)
    assert KNOWN.units[metric.unit].base == metric.unit, "a unit of the catalog is a base unit"
    assert KNOWN.units[metric.unit].factor == 1
    assert {metric.instrument, *metric.also} <= INSTRUMENTS
    assert metric.scopes
    assert set(metric.scopes) <= set(KNOWN.scopes)
    assert metric.level in KNOWN.levels
    assert metric.profile in {"core", "full"}
    assert set(metric.cadences) <= set(KNOWN.cadences)
    assert {*metric.attributes, *metric.optional_attributes} <= set(KNOWN.attributes)
    assert {KNOWN.attributes[name].role for name in metric.attributes} <= {"series", "declared", "reading"}


@every("metric", metrics().values(), ids=metric_id)
def test_a_metric_is_whole(metric: Metric) -> None:
    assert metric.title[0].isupper()
    assert len(metric.definition) >= 60
    assert metric.definition.endswith(".")
    assert metric.why.endswith(".")
    assert metric.source
    assert metric.cadences
    assert (metric.level == "conditional") == bool(metric.capability)
    assert metric.falls in metric_pages.FALLS
    if metric.instrument == "counter":
        assert metric.falls != "any", "a counter falls only where something begins again"
        assert not metric.nonfinite
        assert metric.minimum == 0
        assert set(re.findall(r"since|from 1", metric.definition)), "a counter says what it counts from"
    if metric.minimum is not None and metric.maximum is not None:
        assert metric.minimum < metric.maximum


@every("metric", metrics().values(), ids=metric_id)
def test_texts_of_a_metric_state_no_requirement(metric: Metric) -> None:
    for text in (metric.title, metric.definition, metric.why, metric.note, metric.capability):
        bare = re.sub(r"`[^`]*`", "", text)
        assert not LEVEL_WORD.search(bare)
        assert not AMERICAN.search(bare)


def test_what_a_definition_refers_to_exists() -> None:
    names = set(all_names())
    texts = [text for metric in metrics().values() for text in (metric.definition, metric.note, metric.source)]
    texts += [event.emitted for event in events().values()]
    texts += [attribute.words for attribute in KNOWN.attributes.values()]
    mentioned = {word for text in texts for word in re.findall(r"`((?:train|hw|system|host)\.[\w.]+)`", text)}
    assert len(mentioned) > 10
    assert mentioned - names == set()


def test_fractions_are_bounded() -> None:
    words = ("utilization", "active", "pressure")
    fractions = [m for m in metrics().values() if m.unit == "1" and m.name.rsplit(".", 1)[1].endswith(words)]
    assert len(fractions) >= 8
    assert [m.name for m in fractions if (m.minimum, m.maximum) != (0, 1)] == []


def test_every_listed_attribute_is_used_and_has_values() -> None:
    of_metrics = {name for m in metrics().values() for name in (*m.attributes, *m.optional_attributes)}
    of_events = {name for e in events().values() for name in (*e.attributes, *e.optional_attributes)}
    identity = {name for name in KNOWN.attributes if name.startswith(("train.parallel.", "train.rank.", "train.run."))}
    assert set(KNOWN.attributes) - of_metrics - of_events - identity == set()
    for attribute in KNOWN.attributes.values():
        assert attribute.type in {"string", "int", "double", "boolean", "string[]", "int[]", "double[]"}
        assert attribute.words
        assert len(attribute.values) == len(set(attribute.values))
        assert attribute.values or not attribute.open, "only a list of values can be open"
        if attribute.values:
            assert attribute.type == "string"


def test_values_of_attributes_stand_in_the_definition_that_splits_by_them() -> None:
    """The values of a phase or kind are told apart in the definition, wherever there are no more than six."""
    for name in ("train.checkpoint.phase", "train.recovery.phase", "train.token.kind"):
        (metric,) = [metric for metric in metrics().values() if name in metric.attributes]
        assert [value for value in KNOWN.attributes[name].values if f"`{value}`" not in metric.definition] == []


def test_cadences_are_what_their_names_say() -> None:
    for name, cadence in KNOWN.cadences.items():
        number = name.removeprefix("C")
        assert cadence.seconds == (float(number) if number.isdigit() and number != "0" else None)


def test_what_every_job_owes_is_required_or_recommended() -> None:
    assert [each.title for each in KNOWN.owed] == [
        *("Accelerator utilisation", "Memory pressure", "Inter-node latency", "Gradient variance"),
    ]
    for each in KNOWN.owed:
        levels = [metrics()[name].level for name in each.metrics]
        assert levels[0] == "required"
        assert set(levels) <= {"required", "recommended"}


def test_gradient_variance_is_declared_as_in_a_training_plan() -> None:
    """Settings and their values are those of the noise scale of a plan, so that the two compare."""
    declared = set(metrics()["train.gradient.variance"].attributes)
    settings = set(NoiseScale.__struct_fields__) - {"ratio_of"}
    assert {f"train.gradient.{name}" for name in settings} <= declared
    assert {"train.gradient.ci95", "train.loss.reduction", "train.gradient.parameter_scope"} <= declared
    hints = get_type_hints(NoiseScale)
    for name in ("noise_unit", "tap", "estimator", "accumulation_format"):
        values = KNOWN.attributes[f"train.gradient.{name}"].values
        assert set(values) == set(get_args(hints[name]))
    assert "B (m - q) / (W - 1)" in metrics()["train.gradient.variance"].definition
    assert "(W q - m) / (W - 1)" in metrics()["train.gradient.signal"].definition


# --- aliases ------------------------------------------------------------------------------------------------


@every("alias", ALIASES, ids=alias_id)
def test_an_alias_converts_to_the_unit_of_its_metric(alias: Alias) -> None:
    assert alias.ecosystem in KNOWN.ecosystems
    assert {*alias.times, *alias.over} <= set(KNOWN.quantities)
    for name, value in alias.implies.items():
        attribute = KNOWN.attributes[name]
        assert name in metrics()[alias.metric].attributes
        assert value in attribute.values
    if alias.unit is None:
        assert alias.factor is None
        assert alias.note, "a name that does not convert says why"
        return
    unit = KNOWN.units[alias.unit]
    assert alias.factor == unit.factor
    base = unit.base
    if alias.inverse:
        base = {"1/s": "s", "1": "1"}[base]
    for quantity in alias.times:
        base = base if quantity == "num_accelerators" else base.replace("{sample}", "{token}")
    for _ in alias.over:
        base = {"{operation}/s": "1"}[base]
    assert base == metrics()[alias.metric].unit


def test_no_program_has_a_name_for_one_metric_twice() -> None:
    keys = [(alias.ecosystem, alias.name, alias.metric) for alias in ALIASES]
    assert len(keys) == len(set(keys))


def test_every_ecosystem_has_names_and_a_source() -> None:
    assert {alias.ecosystem for alias in ALIASES} == set(KNOWN.ecosystems)
    assert all(each.source and each.title for each in KNOWN.ecosystems.values())


def test_every_unit_is_used() -> None:
    used = {metric.unit for metric in metrics().values()} | {alias.unit for alias in ALIASES}
    assert {unit for unit in set(KNOWN.units) - used if KNOWN.units[unit].factor == 1} == set()


@pytest.mark.parametrize(
    ("ecosystem", "name", "metric", "value", "known", "expected"),
    [
        ("dcgm", "DCGM_FI_DEV_FB_USED", "hw.gpu.memory.usage", 52129, {}, 52129 * 1024**2),
        ("dcgm", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "hw.energy", 3_600_000, {}, 3600),
        ("dcgm", "DCGM_FI_DEV_GPU_UTIL", "hw.gpu.utilization", 87, {}, 0.87),
        ("dcgm", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "train.accelerator.matrix.active", 0.447, {}, 0.447),
        ("dcgm", "DCGM_FI_DEV_SM_CLOCK", "train.accelerator.clock.frequency", 1980, {}, 1.98e9),
        ("amd", "GPU_ENERGY_CONSUMED", "hw.energy", 5e6, {}, 5),
        ("amd", "gpu_xgmi_nbr_1_beats_tx", "train.accelerator.link.io", 10, {}, 320),
        ("megatron", "elapsed time per iteration (ms)", "train.step.duration", 4250, {}, 4.25),
        ("megatron-otel", "megatron.training.memory_allocated_gb", "train.memory.allocator.active", 2, {}, 2**31),
        ("mlflow", "gpu_3_memory_usage_megabytes", "hw.gpu.memory.usage", 1, {}, 1e6),
        ("nccl", "coll_exec_time_us", "train.collective.duration", 250, {}, 250e-6),
        ("nccl", "coll_busbw_gbs", "train.collective.bandwidth", 370, {}, 3.7e11),
        ("torchtitan", "throughput(tps)", "train.token.rate", 800, {"num_accelerators": 512}, 409_600),
        ("torchtitan", "mfu(%)", "train.flops.utilization", 41, {}, 0.41),
        (
            *("maxtext", "perf/per_device_tflops_per_sec", "train.flops.utilization", 494.5),
            *({"peak_flops_per_second": 989e12}, 0.5),
        ),
        ("huggingface", "train_steps_per_second", "train.step.duration", 0.25, {}, 4),
        ("mlperf", "tracked_stats.throughput", "train.token.rate", 12, {"tokens_per_sample": 8192}, 98_304),
        ("nvml", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "train.accelerator.matrix.active", 44.7, {}, 0.447),
        ("nvrx", "gpu_relative_perf_scores", "train.rank.slowdown", 0.8, {}, 1.25),
        ("goodput", 'badput_time{badput_source="DATA_LOADING_SYNC"}', "train.goodput.time", 12, {}, 12),
        ("megatron", "energy per GPU (J/iter/GPU)", "hw.energy", 2500, {"num_accelerators": 8}, 20_000),
    ],
)
def test_worked_examples(  # noqa: PLR0913, PLR0917
    ecosystem: str, name: str, metric: str, value: float, known: dict[str, float], expected: float
) -> None:
    (alias,) = by_alias(ecosystem, name)
    assert alias.metric == metric
    assert math.isclose(alias.convert(value, known), expected, rel_tol=1e-12)


def test_prefixes_of_units() -> None:
    """What a prefix is, written out here, and not read from the table."""
    expected = {"%": 1 / 100, "ms": 1 / 1000, "us": 1e-6, "ns": 1e-9, "mW": 1 / 1000, "mJ": 1 / 1000, "uJ": 1e-6}
    expected |= {"KiBy": 2**10, "MiBy": 2**20, "GiBy": 2**30, "MBy": 10**6, "GBy/s": 10**9, "MHz": 10**6}
    expected |= {"{beat}": 32, "T{operation}/s": 10**12}
    for unit, factor in expected.items():
        assert KNOWN.units[unit].factor == factor
    assert {unit for unit, each in KNOWN.units.items() if each.factor != 1} == set(expected)


def test_what_does_not_convert_says_so() -> None:
    (undecided,) = by_alias("dcgm", "DCGM_FI_DEV_POWER_VIOLATION")
    with pytest.raises(ValueError, match="does not convert: the exporter says ns"):
        undecided.convert(1)
    (per_device,) = by_alias("torchtitan", "throughput(tps)")
    with pytest.raises(ValueError, match="only where num_accelerators is known"):
        per_device.convert(1)
    (rate,) = by_alias("huggingface", "train_steps_per_second")
    with pytest.raises(ValueError, match="zero"):
        rate.convert(0)
    (flops,) = by_alias("megatron", "throughput per GPU (TFLOP/s/GPU)")
    with pytest.raises(ValueError, match="zero"):
        flops.convert(400, {"peak_flops_per_second": 0})


@every("alias", ALIASES, ids=alias_id)
def test_lookup_finds_one_metric_or_lists_all(alias: Alias) -> None:
    found = by_alias(alias.ecosystem, alias.name)
    assert alias in found
    same = [other for other in ALIASES if (other.ecosystem, other.name) == (alias.ecosystem, alias.name)]
    assert list(found) == same
    everywhere = by_alias(None, alias.name.upper().replace("{I}", "7"))
    assert [other for other in found if other not in everywhere] == []


def test_names_that_stand_for_two_metrics_are_few_and_known() -> None:
    keys = [(alias.ecosystem, alias.name) for alias in ALIASES]
    assert {key for key in keys if keys.count(key) > 1} == {("mlperf", "samples_count")}
    assert {alias.ecosystem for alias in by_alias(None, "grad_norm")} == {"torchtitan", "huggingface"}


@pytest.mark.parametrize("name", ["", "gpu.x.powerWatts", "gpu..powerWatts", "gpu.1", "gpu.1.powerWatts2", "DCGM"])
def test_lookup_of_what_is_not_there(name: str) -> None:
    assert by_alias(None, name) == ()
    assert by_name(name) is None


def test_lookup_by_synonym() -> None:
    assert by_name("train.accelerator.memory.limit") is metrics()["hw.gpu.memory.limit"]
    assert by_name("train.step.count") is metrics()["train.step.count"]


# --- events -------------------------------------------------------------------------------------------------


@every("event", events().values(), ids=event_id)
def test_an_event_is_whole(event: Event) -> None:
    assert event.emitted.endswith(".")
    assert len(event.emitted) >= 40
    assert event.severity in metric_pages.SEVERITIES
    assert event.scope in KNOWN.scopes
    assert event.attributes
    assert {*event.attributes, *event.optional_attributes} <= set(KNOWN.attributes)
    assert set(event.values) <= set(metrics())
    assert not LEVEL_WORD.search(re.sub(r"`[^`]*`", "", event.emitted))


def test_every_pair_is_closed() -> None:
    closers = list(chain.from_iterable(event.closed_by for event in events().values()))
    assert len(closers) == len(set(closers)), "an event closes one kind of interval"
    assert set(closers) <= set(events())
    for event in events().values():
        last = event.name.rsplit(".", 1)[1]
        if last in {"begin", "start"}:
            assert event.closed_by, f"{event.name} is never closed"
        if last in {"end", "commit", "fail", "cleared", "returned"}:
            assert event.name in closers, f"{event.name} closes nothing"
        assert not (event.can_stay_open and not event.closed_by)
        for closer in event.closed_by:
            assert events()[closer].scope == event.scope
            identity = [name for name in event.attributes if name.endswith(".id")]
            assert set(identity) <= set(events()[closer].attributes)


# --- pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", metric_pages.NAMES)
def test_a_page_is_up_to_date_and_keeps_its_form(name: str) -> None:
    text = page(name)
    assert text == metric_pages.pages(TABLE.parent)[name], "run: make generate"
    lines = text.splitlines()
    assert lines[0] == metric_pages.FIRST_LINE
    assert re.fullmatch(r"# [A-Z].+", lines[2])
    assert len(lines) <= (25 * len(metrics()) if name == "metrics.md" else 500)  # a section for each metric
    assert [line for line in lines if len(line) > 140 and not line.startswith("|")] == []
    assert [line for line in lines if line != line.rstrip()] == []
    prose = [re.sub(r"`[^`]*`|\]\(#[^)]*\)", " ", line) for line in lines]
    assert [line for line in prose if LEVEL_WORD.search(line)] == []
    assert [line for line in prose if AMERICAN.search(line)] == []
    assert f"(reference/{name})" in (ROOT / "spec" / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", metric_pages.NAMES)
def test_tables_have_even_rows(name: str) -> None:
    width = 0
    for line in page(name).splitlines():
        width = (width or line.count("|")) if line.startswith("|") else 0
        assert not width or line.count("|") == width, line


def test_pages_list_every_entry_once() -> None:
    found = rows("metrics.md")
    assert sorted(name for name in found if name in metrics()) == sorted(metrics())
    listed = [name for name, each in KNOWN.attributes.items() if each.role != "event"]
    assert rows("metrics.md", under="Attributes") == sorted(listed, key=found.index)
    assert sorted(rows("metrics.md", under="Attributes")) == sorted(listed)
    assert rows("events.md", under="All events") == list(events())
    expected = [alias.name for each in KNOWN.ecosystems for alias in ALIASES if alias.ecosystem == each]
    assert [name for name in rows("metric-names.md") if name not in KNOWN.quantities] == expected


def test_the_room_shows_what_it_promises() -> None:
    assert [name for name in room.__all__ if not hasattr(room, name)] == []
