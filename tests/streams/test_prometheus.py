"""Expositions of Prometheus and OpenMetrics: one snapshot, with the names of exporters and of the catalog."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import pytest
from reading import read_text

from trainspec_validate.documents.types.stream import HistogramValue
from trainspec_validate.telemetry.formats.detection import detect
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.named_runs import run_named
from trainspec_validate.telemetry.formats.prometheus.points import Comment, Point, parse

DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="H100",Hostname="node-1"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="H100",Hostname="node-1"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="H100",Hostname="node-1"} 1024
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",Hostname="node-1"} 9223372036854775794
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="node-1"} 700
"""


def test_an_exporter_of_devices() -> None:
    found = read_text(DCGM)
    one, two = found.samples
    assert (one.device, one.host, two.device) == ("GPU-a", "node-1", "GPU-b")
    assert one.m == {
        "hw.gpu.utilization": 0.5,
        "hw.gpu.memory.usage": 1024.0 * 2**20,
        "hw.temperature{hw.sensor_location=core}": 9.223372036854776e18,
        "hw.power{hw.type=gpu}": 700.0,
    }
    assert two.m == {"hw.gpu.utilization": 1.0}
    assert found.heads[0].scopes == ("device",)
    assert found.losses.clock == "none"
    assert set(found.lost) >= {("time", "time"), ("attribute", "modelName")}
    assert ("identity", "gpu") not in found.lost


def test_what_gpud_says_of_the_state_of_a_device() -> None:
    name = "accelerator_nvidia_{}{{gpud_component='x',uuid='GPU-a'{}}} {}\n".replace("'", '"')
    values = {
        "ecc_volatile_total_uncorrected": 3,
        "remapped_rows_due_to_uncorrectable_errors": 2,
        "remapped_rows_remapping_pending": 1,
        "remapped_rows_remapping_failed": 0,
        "clock_hw_slowdown": 1,
        "clock_hw_slowdown_thermal": 1,
        "clock_hw_slowdown_power_brake": 0,
        "nvlink_replay_errors": 4,
        "power_current_usage_milli_watts": 650_000,
    }
    text = "".join(name.format(key, "", value) for key, value in values.items())
    found = read_text(text + name.format("xid_errors_total", ',xid="79"', 2))
    (sample,) = found.samples
    assert sample.device == "GPU-a"
    assert sample.m == {
        "hw.errors{error.type=uncorrected,hw.type=gpu}": 3.0,
        "train.accelerator.memory.remapped_rows{error.type=uncorrected}": 2.0,
        "train.accelerator.throttled{train.throttle.reason=hardware}": 1.0,
        "train.accelerator.throttled{train.throttle.reason=thermal}": 1.0,
        "train.accelerator.link.errors{error.type=replay}": 4.0,
        "hw.power{hw.type=gpu}": 650.0,
    }
    assert [event.a["train.fault.vendor_code"] for event in found.events] == ["row-remap:pending", "xid:79"]
    assert not {"attribute", "unknown-name"} & {what for what, _ in found.lost}


def test_errors_of_switches() -> None:
    found = read_text(
        'DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS{nvswitch="0",hostname="n"} 22013\n'
        'DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS{nvswitch="1",hostname="n"} 20034\n'
        'DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS{nvswitch="0",hostname="n"} 0\n'
        'DCGM_FI_DEV_XID_ERRORS{gpu="0",hostname="n"} 79\n'
    )
    assert [(event.device, event.a) for event in found.events] == [
        ("nvswitch0", {"train.fault.vendor_code": "sxid:22013", "train.error.severity": "fatal"}),
        ("nvswitch1", {"train.fault.vendor_code": "sxid:20034", "train.error.severity": "nonfatal"}),
        ("0", {"train.fault.vendor_code": "xid:79"}),
    ]


def test_an_index_is_no_identifier() -> None:
    found = read_text(
        'DCGM_FI_DEV_GPU_UTIL{gpu="3"} 50\nnode_infiniband_symbol_error_total{device="mlx5_0",port="1"} 2\n'
    )
    assert [sample.device for sample in found.samples] == ["3", "mlx5_0/1"]
    assert found.samples[1].m == {"hw.errors{error.type=symbol,hw.type=network}": 2.0}
    assert found.heads[0].scopes == ("device", "nic")
    assert {("identity", "gpu"), ("identity", "device")} <= set(found.lost)


def test_times_of_both_formats() -> None:
    text = 'train_step_duration_seconds{train_rank_id="0"} 2 1700000000000\n# TYPE a gauge\n'
    assert read_text(text).samples[0].time_us == 1_700_000_000_000_000
    text = "# TYPE train_step_duration_seconds gauge\ntrain_step_duration_seconds 2 1700000000.5\n# EOF\n"
    found = read_text(text)
    assert found.samples[0].time_us == 1_700_000_000_500_000
    assert found.heads[0].time_us == 1_700_000_000_500_000
    assert found.losses.clock == "utc"


def test_a_moment_that_is_given() -> None:
    found = read_text(DCGM, start_us=5_000_000)
    assert {sample.time_us for sample in found.samples} == {5_000_000}
    assert found.losses.clock == "utc"


def test_histograms_of_the_catalog() -> None:
    name = "train_checkpoint_duration_seconds"
    label = 'train_checkpoint_phase="total"'
    text = f"""# TYPE {name} histogram
{name}_bucket{{{label},le="1.0"}} 1
{name}_bucket{{{label},le="10.0"}} 3
{name}_bucket{{{label},le="+Inf"}} 4
{name}_sum{{{label}}} 25.5
{name}_count{{{label}}} 4
"""
    found = read_text(text)
    key = "train.checkpoint.duration{train.checkpoint.phase=total}"
    assert found.values(key) == [HistogramValue(count=4, sum=25.5, bounds=(1.0, 10.0), counts=(1, 2, 1))]
    assert ("meaning", key) in found.lost
    assert found.losses.stated["train.checkpoint.duration"].instrument == "histogram"
    assert read_text(text.replace('le="10.0"}} 3', "").replace("} 3", "} 0")).values(key) == []


def test_names_of_the_catalog() -> None:
    text = """# TYPE hw_network_io_bytes_total counter
hw_network_io_bytes_total{hw_id="nic-1",network_io_direction="transmit",host_id="n",job="x"} 5
train_accelerator_busy_ratio{hw_id="tpu-1"} 0.5
train_loss_mean{train_loss_name="total"} NaN
mystery_total 1
"""
    found = read_text(text)
    values = {key: (value, sample.device) for sample in found.samples for key, value in sample.m.items()}
    assert values["hw.network.io{network.io.direction=transmit}"] == (5.0, "nic-1")
    assert values["train.accelerator.busy"] == (0.5, "tpu-1")
    assert ("unknown-name", "mystery_total") in found.lost


def test_series_that_only_foreign_labels_tell_apart() -> None:
    found = read_text('train_learning_rate_ratio{group="a"} 1\ntrain_learning_rate_ratio{group="b"} 2\n')
    assert found.values("train.learning_rate") == [1.0]
    assert found.lost["attribute", "train.learning_rate"] == 1


TYPED = "# TYPE train_learning_rate_ratio gauge\n"


@pytest.mark.parametrize("lines", ["{0} 1 {1}\n{0} -5 {1}\n", '{0}{{job="a"}} 1\n{0}{{job="a"}} -5\n'])
def test_a_series_with_two_values_at_a_time_is_refused(lines: str) -> None:
    found = read_text(TYPED + lines.format("train_learning_rate_ratio", 1_700_000_000_000))
    assert found.values("train.learning_rate") == [1.0]
    [refusal] = found.refusals
    assert "the value 1.0 above and -5.0 here" in refusal.message
    assert ("time stamps" in refusal.help) == ("job" in lines)


@pytest.mark.parametrize("stamp", ["1e308", "-5", "99999999999999999999"])
def test_a_time_out_of_range_is_refused(stamp: str) -> None:
    found = read_text(f"{TYPED}train_learning_rate_ratio 1 1700000000000\ntrain_learning_rate_ratio 2 {stamp}\n")
    assert [refusal.message for refusal in found.refusals] == [f"the time {stamp} is out of range"]
    assert ("time", "time") not in found.lost


def test_a_histogram_with_a_bucket_twice_is_refused() -> None:
    lines = [
        f'train_step_duration_seconds_bucket{{le="{edge}"}} {count}' for edge, count in ((1, 1), (1, 2), ("+Inf", 2))
    ]
    assert len(read_text("\n".join(lines) + "\n").refusals) == 1


@pytest.mark.parametrize(
    "other", ["train_learning_rate_ratio 1 1700000000000", "train_learning_rate_ratio 2 1700000001000"]
)
def test_a_series_may_come_again_with_its_value_or_another_time(other: str) -> None:
    assert not read_text(f"{TYPED}train_learning_rate_ratio 1 1700000000000\n{other}\n").refusals


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e3"])
def test_a_value_that_is_written_twice_is_no_loss(value: str) -> None:
    line = f"train_learning_rate_ratio {value}\n"
    found = read_text(f"{TYPED}{line}{line}")
    assert not found.refusals
    assert ("attribute", "train.learning_rate") not in found.lost


def test_what_follows_the_end_is_refused_once() -> None:
    text = f"{TYPED}train_learning_rate_ratio 1 1700000000\n# EOF\n\n"
    assert not read_text(text).refusals
    found = read_text(f"{text}# TYPE train_loss_mean_ratio gauge\ntrain_learning_rate_ratio 2 1700000001\n")
    assert ["# EOF" in refusal.message for refusal in found.refusals] == [True]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("up 1", Point("up", {}, 1.0, None)),
        ("up{} 1", Point("up", {}, 1.0, None)),
        ('up{a="b",} +Inf', Point("up", {"a": "b"}, "+Inf", None)),
        (r'up{a="x\\y\"z\n"} -1e3', Point("up", {"a": 'x\\y"z\n'}, -1000.0, None)),
        ('up{a="}",b="#"} 1 5 # {id="x"} 2', Point("up", {"a": "}", "b": "#"}, 1.0, 5_000_000)),
        ("# TYPE up gauge", Comment("TYPE", "up", "gauge")),
        ("# HELP up", Comment("HELP", "up", "")),
        ("# EOF", None),
        ("#", None),
    ],
)
def test_a_line(line: str, wanted: object) -> None:
    assert parse(line) == wanted


@pytest.mark.parametrize(
    "line",
    ["5", "up", "up x", 'up{a="b"', "up{a=b} 1", 'up{a="b",a="c"} 1', 'up{a="b" c="d"} 1', "up 1 2 3", "é 1", "up 1_0"],
)
def test_a_line_that_is_refused(line: str) -> None:
    assert isinstance(parse(line), Refusal)


@pytest.mark.parametrize("piece", ['a="b",', "\\", '"', "{", "}", " ", "1", "é", 'a="\\'])
def test_long_lines_are_read_in_linear_time(piece: str) -> None:
    """A quadratic parser would take an hour for a line of a million characters."""
    for start in ("up{", "up ", "# TYPE ", 'up{a="'):
        found = parse(start + piece * (1_000_000 // len(piece)))
        assert found is None or isinstance(found, Refusal | Comment)


def answer(*series: Any, kind: str = "matrix", **around: Any) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}, **around})


def series_of(name: str, *values: Any, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [list(value) for value in values]}


AT = 1_775_721_747.25


@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_to_query_range(indent: int | None) -> None:
    use = series_of("DCGM_FI_DEV_GPU_UTIL", (AT, "50"), (AT + 15, "100"), UUID="GPU-a", Hostname="node-1")
    steps = series_of("train_step_count_total", (AT, "7"), train_run_id="r-7", train_rank_id="3")
    text = "\n" * (indent or 0) + json.dumps(json.loads(answer(use, steps)), indent=indent)
    assert detect(text.encode()) is FORMATS["prometheus"]
    assert run_named(text.encode(), "prometheus", PurePath("answer.json")) == "r-7"
    found = read_text(text)
    assert [(one.time_us, one.device, one.rank, one.m) for one in found.samples] == [
        (int(AT * 1e6), "GPU-a", None, {"hw.gpu.utilization": 0.5}),
        (int(AT * 1e6) + 15_000_000, "GPU-a", None, {"hw.gpu.utilization": 1.0}),
        (int(AT * 1e6), None, 3, {"train.step.count": 7.0}),
    ]
    assert found.heads[0].run == "r-7"
    assert not found.refusals


def test_an_answer_to_query() -> None:
    temperature = {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-a"}, "value": [AT, "32"]}
    found = read_text(answer(temperature, kind="vector", warnings=["a shard did not answer"]))
    (sample,) = found.samples
    assert sample.m == {"hw.temperature{hw.sensor_location=core}": 32.0}
    assert ("value", "warnings") in found.lost


@pytest.mark.parametrize("warnings", [{"a": 1}, "slow", 5, [[]], None])
def test_warnings_of_an_answer_may_be_anything(warnings: Any) -> None:
    found = read_text(answer(series_of("train_loss_total", (AT, "3")), warnings=warnings))
    assert not found.refusals


def test_an_answer_says_when_a_device_had_an_error() -> None:
    values = [(AT, "0"), (AT + 60, "79"), (AT + 120, "79")]
    found = read_text(answer(series_of("DCGM_FI_DEV_XID_ERRORS", *values, UUID="GPU-a")))
    (event,) = found.events
    assert (event.time_us, event.a) == (int(AT * 1e6) + 60_000_000, {"train.fault.vendor_code": "xid:79"})
    assert ("time", "DCGM_FI_DEV_XID_ERRORS") not in found.lost


def test_expressions_and_native_histograms_of_an_answer_are_named() -> None:
    unnamed = {"metric": {"UUID": "GPU-a"}, "values": [[AT, "1"]]}
    native = {"metric": {"__name__": "train_step_duration_seconds"}, "histograms": [[AT, {"count": "1"}]]}
    found = read_text(answer(unnamed, native))
    assert not found.samples
    assert {("unknown-name", "__name__"), ("value", "train_step_duration_seconds")} <= set(found.lost)


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ([1], "a series has no labels"),
        ({"metric": {"__name__": 5}, "values": []}, "a series has no labels"),
        (series_of("train_loss", (-1, "3")), "train_loss holds [-1, '3']"),
        (series_of("train_loss", (AT, 3)), "which is no time and value"),
        (series_of("train_loss", (True, "3")), "which is no time and value"),
        (series_of("train_loss", (1e300, "3")), "which is no time and value"),
        (series_of("train_loss", (AT, "three")), "which is no time and value"),
        ({"metric": {"__name__": "train_loss"}, "values": {"a": 1}}, "train_loss holds {'a': 1}"),
        ({"metric": {"__name__": "train_loss"}, "value": None}, "train_loss holds None"),
    ],
)
def test_what_an_answer_should_not_hold_is_refused(series: Any, words: str) -> None:
    (refusal,) = read_text(answer(series)).refusals
    assert words in refusal.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"status": "error", "errorType": "bad_data", "error": "no such function"}', "bad_data: no such function"),
        (answer(series_of("train_loss", (AT, "3")))[:-1], "the document ends before its JSON does"),
    ],
)
def test_an_answer_without_its_values_is_refused(text: str, words: str) -> None:
    assert detect(text.encode()) is FORMATS["prometheus"]
    (refusal,) = read_text(text).refusals
    assert words in refusal.message
