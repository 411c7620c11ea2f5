"""The page of a run is whole, loads nothing, says what the view holds, and what it does not."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from full_run import DEVICES, full_report, full_run
from run_page_makers import SECOND, START_US, attempt, event, job, report, series, trail, view, windows
from run_page_parser import Element, parse

from trainspec_validate.report.run_page import page
from trainspec_validate.report.run_page.sections import SECTIONS
from trainspec_validate.telemetry.view.run_view import RunView, Subject, Trouble

EMPTY = view(files=(), num_records=0, num_samples=0, first_time_us=-1, last_time_us=-1)
ONE_MOMENT = view(job=[job("train.loss.mean", [3.25])], last_time_us=START_US, num_records=1)
SNAPSHOT = replace(full_run(), snapshot=True)
VIEWS = {"full": full_run(), "empty": EMPTY, "one moment": ONE_MOMENT, "snapshot": SNAPSHOT}


@pytest.fixture(scope="module")
def full() -> Element:
    return parse(page(full_run(), full_report()))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def rows(page_: Element, caption: str) -> list[list[str]]:
    """Cells of the body of the table whose caption begins so."""
    found = next(each for each in page_.all("table") if next(each.all("caption")).text.startswith(caption))
    body = next(found.all("tbody"))
    return [[cell.text for cell in row.children] for row in body.children]


def figures(part: Element) -> dict[str, str]:
    """Names and values of the lists of figures in a part."""
    names = [each.text for each in part.all("dt")]
    return dict(zip(names, [each.text for each in part.all("dd")], strict=True))


# --- form ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWS)
def test_the_page_is_well_formed(name: str) -> None:
    text = page(VIEWS[name], full_report())
    assert text.startswith("<!DOCTYPE html>\n<html")
    found = parse(text)
    identifiers = [each.attributes["id"] for each in found.all() if "id" in each.attributes]
    assert len(identifiers) == len(set(identifiers))
    for each in found.all():
        for reference in each.attributes.get("aria-labelledby", "").split():
            assert reference in identifiers
        if each.attributes.get("href", "").startswith("#"):
            assert each.attributes["href"][1:] in identifiers


@pytest.mark.parametrize("name", VIEWS)
def test_the_page_needs_nothing_beside_itself(name: str) -> None:
    found = parse(page(VIEWS[name], full_report()))
    assert not list(found.all("script", "link", "img", "image", "iframe", "object", "embed", "base", "form", "use"))
    for each in found.all():
        assert not [key for key in each.attributes if key.startswith("on") or key in {"src", "style", "srcset"}]
        link = each.attributes.get("href", "#")
        assert link.startswith("#") or (each.name == "a" and link == "https://example.org/gap")
    style = next(found.all("style")).text
    assert set(re.findall(r"url\(([^)]*)\)", style)) <= {"#hatch"}
    assert "@import" not in style
    policy = next(each for each in found.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("name", VIEWS)
def test_every_picture_has_a_title_and_a_text_or_is_hidden(name: str) -> None:
    found = parse(page(VIEWS[name], full_report()))
    for picture in found.all("svg"):
        if picture.attributes.get("aria-hidden") == "true":
            continue
        assert picture.attributes["role"] == "img"
        title, text = picture.children[:2]
        assert (title.name, text.name) == ("title", "desc")
        assert title.text.strip()
        assert len(text.text) > 20
        assert picture.attributes["aria-labelledby"].split() == [title.attributes["id"], text.attributes["id"]]


def test_every_chart_tells_its_figures_and_units(full: Element) -> None:
    charts = [each for each in full.all("figure") if any(text.classes == {"unit"} for text in each.all("text"))]
    assert len(charts) == 13
    for chart in charts:
        assert figures(chart)
        assert [each.text for each in chart.all("text") if each.classes == {"unit"}] != [""]
        assert {"UTC", "step"} <= {each.text for each in chart.all("text")}


def test_equal_input_makes_equal_text() -> None:
    assert page(full_run(), full_report()) == page(full_run(), full_report())


def test_outline(full: Element) -> None:
    assert [(each.name, squeezed(each.text)) for each in full.all("h1", "h2", "h3")] == [
        ("h1", "run fails"),
        ("h2", "Verdict"),
        ("h2", "Coverage"),
        ("h2", "Pace"),
        ("h3", "Time of a step"),
        ("h3", "Throughput"),
        ("h3", "Model utilisation of the peak (MFU)"),
        ("h2", "Learning"),
        ("h3", "Training loss"),
        ("h3", "Norm of the gradient before clipping"),
        ("h3", "Gradient noise scale"),
        ("h2", "Devices"),
        ("h3", "Busy"),
        ("h3", "Matrix units active"),
        ("h3", "Memory in use"),
        ("h3", "Power"),
        ("h2", "Ranks and network"),
        ("h3", "Distance between ranks"),
        ("h2", "Checkpoints and recoveries"),
        ("h3", "Timeline"),
        ("h2", "Where the time went"),
        ("h2", "Energy"),
        ("h2", "Health of the telemetry"),
        ("h3", "Delay of the stream"),
        ("h3", "Offset of clocks"),
        ("h2", "Findings"),
        ("h3", "error TS-TEL-013 scale-suspect 1 finding"),
        ("h3", "warning TS-TEL-021 gap 1 finding"),
        ("h2", "Not judged"),
    ]


# --- what is told -------------------------------------------------------------------------------------------


def test_figures_at_a_glance_are_those_of_the_view(full: Element) -> None:
    assert figures(next(full.all("header"))) == {
        "lasted": "10 min",
        "optimizer steps": "100",
        "optimizer step, p50": "5 s",
        "tokens/s, p50": "26,000",
        "MFU, p50": "40.0 %",
        "goodput": "80.0 %",
        "energy of devices": "800 Wh",
        "saves": "2",
        "faults": "1",
    }


def test_warm_up_is_in_the_picture_and_not_in_the_quantiles(full: Element) -> None:
    told = figures(full.find("chart-train-step-duration"))
    assert (told["p50"], told["p99"], told["highest"], told["values"]) == ("5 s", "6 s", "6 s", "99")
    assert "the largest 20 s" in full.find("chart-train-step-duration").text


def test_interval_of_the_noise_is_drawn(full: Element) -> None:
    chart = full.find("chart-train-gradient-noise-scale")
    assert "95 % interval" in [each.text for each in chart.all("li")]
    assert figures(chart)["last"] == "1,090 sequences"
    assert [each for each in chart.all("path") if each.classes == {"b0"}]


def test_devices_are_told_apart(full: Element) -> None:
    told = figures(full.find("chart-hw-gpu-utilization"))
    assert told["lowest mean: device GPU-7 on h1"] == "89.0 %"
    assert told["highest mean: device GPU-0 on h0"] == "92.5 %"
    assert figures(full.find("chart-hw-gpu-memory-usage"))["fullest"] == "76.3 % of its memory"


def test_a_device_with_values_that_are_not_finite_has_no_mean() -> None:
    broken = [trail(Trouble.NOT_FINITE, "hw.gpu.utilization", at=5, before=4, subject=DEVICES[7])]
    chart = parse(page(replace(full_run(), trails=tuple(broken)), report())).find("chart-hw-gpu-utilization")
    assert figures(chart)["lowest mean: device GPU-6 on h1"] == "89.5 %"
    assert "7 devices; the mean of all values is 91.5 %." in chart.text


def test_ranks_are_listed_from_the_slowest(full: Element) -> None:
    assert [row[:4] for row in rows(full, "Slowest of 8 ranks")][:2] == [
        ["7", "h1", "1.350", "1.700"],
        ["6", "h1", "1.300", "1.600"],
    ]
    assert figures(full.find("chart-rank-spread"))["farthest"] == "2 steps"
    assert rows(full, "Slowest of 2 pairs")[0][:3] == ["h0", "h9", "9 µs"]


def test_saves_and_faults_are_told_with_their_ends(full: Element) -> None:
    assert rows(full, "Saves") == [
        ["2026-02-25 06:15:00", "20", "10 s", "112.4 GB", "object-store", "site", "committed"],
        ["2026-02-25 06:16:40", "40", "15 s", "", "", "", "failed: no space left"],
        ["2026-02-25 06:18:20", "60", "12 s", "112.4 GB", "object-store", "site", "committed"],
    ]
    assert rows(full, "1 fault and what was done") == [
        ["2026-02-25 06:20:00", "70", "device, xid:79", "infrastructure", "", "restart", "resumed", "1 min 15 s", "9"]
    ]


def test_goodput_and_energy_add_up(full: Element) -> None:
    assert [row[:3] for row in rows(full, "Time by category")] == [
        [" productive", "8 min", "80.0 %"],
        [" checkpoint_save", "1 min", "10.0 %"],
        [" replay", "1 min", "10.0 %"],
    ]
    # Eight devices of 360 kJ by counter and 363 kJ by power, in 10 minutes and for 99 x 130,000 tokens.
    assert [row[:5] for row in rows(full, "By scope")] == [
        ["devices", "energy counters", "800 Wh", "4.8 kW", "0.2238 J"],
        ["devices", "power over time", "806.7 Wh", "4.84 kW", "0.2256 J"],
    ]


def test_holes_and_losses_are_told(full: Element) -> None:
    assert rows(full, "Emitters that miss")[0][:4] == ["node/h0", "0", "100", "5"]
    assert rows(full, "Unusual values")[0][:3] == ["more than three intervals missing", "1", "train.step.count"]
    assert figures(full.find("health"))["dropped, as declared"] == "12"
    assert "2 gaps of the job's own series, 49 s together" in full.find("coverage").text


def test_what_was_not_judged_has_its_reason(full: Element) -> None:
    assert rows(full, "2 requirements without a verdict") == [
        ["no train.clock.error in the stream", "nothing to judge", "1", "TS-TEL-050"],
        ["the exporter has no clock", "declared unsupported", "1", "TS-TEL-051"],
    ]


# --- what is not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "changed"),
    [
        ("train.step.duration", "job"),
        ("train.token.rate", "job"),
        ("train.flops.utilization", "job"),
        ("train.gradient.norm", "job"),
        ("hw.gpu.utilization", "windows"),
        ("hw.gpu.memory.usage", "windows"),
        ("train.telemetry.lag", "windows"),
    ],
)
def test_a_metric_that_is_not_there_is_said_to_be_missing(metric: str, changed: str) -> None:
    kept = {text: each for text, each in getattr(full_run(), changed).items() if each.key.metric != metric}
    found = parse(page(replace(full_run(), **{changed: kept}), report()))
    assert f"No {metric} in this stream." in found.text
    assert not [
        each for each in found.all("figure") if each.attributes.get("id") == f"chart-{metric.replace('.', '-')}"
    ]


def test_a_declared_reason_is_told() -> None:
    from run_page_makers import head

    reason = "the exporter has no matrix counter"
    made = view(heads=(head(unsupported={"train.accelerator.matrix.active": reason}),))
    assert f"Declared unsupported: {reason}." in parse(page(made, report())).text


@pytest.mark.parametrize("made", [EMPTY, view()], ids=["no records", "no values"])
def test_nothing_is_drawn_of_nothing(made: RunView) -> None:
    found = parse(page(made, report()))
    assert not list(found.all("figure"))
    assert set(figures(next(found.all("header"))).values()) <= {"not measured", "10 min"}
    for identifier in SECTIONS:
        assert [each for each in found.find(identifier).all("p", "table") if len(squeezed(each.text)) > 10]


def test_values_of_one_moment_are_told_without_a_picture() -> None:
    found = parse(page(ONE_MOMENT, report()))
    assert not list(found.all("figure"))
    assert figures(found.find("learning"))["last"] == "3.25"
    assert "All of the input is of one moment" in found.text


def test_a_snapshot_has_no_time_axis() -> None:
    found = parse(page(SNAPSHOT, report()))
    assert "one snapshot: nothing about time can be judged" in found.text
    assert [each.attributes["id"] for each in found.all("figure")] == ["chart-goodput"]


# --- size ---------------------------------------------------------------------------------------------------


def test_a_long_run_makes_a_small_page_that_keeps_its_spike() -> None:
    num = 300_000
    values = np.full(num, 5.0)
    values[123_456] = 7.0
    rank = [series("train.rank.slowdown", Subject(n, f"h{n}", None), [1.0, 1.1]) for n in range(3_000)]
    made = view(
        job=[job("train.step.duration", values)],
        series=rank,
        attempts=tuple(attempt(number, number * 900, number * 900 + 800) for number in range(1_500)),
        events=tuple(event("train.fault.detected", 300.0 * number) for number in range(3_000)),
        windows=[windows("hw.power", [(8, 4800.0, 500.0, 700.0)] * 40_000)],
        last_time_us=START_US + 5 * num * SECOND,
    )
    text = page(made, report())
    assert len(text) < 600_000
    chart = parse(text).find("chart-train-step-duration")
    drawn = [path.attributes["d"] for path in chart.all("path") if path.classes <= {"l0", "b0"}]
    points = [pair for path in drawn for pair in re.findall(r"[\d.]+ [\d.]+", path)]
    assert 900 < len(points) <= 2_000
    tops = sorted(float(pair.split()[1]) for pair in points)
    assert tops[0] < tops[1] - 10


@pytest.mark.parametrize(
    ("clock", "below", "said"),
    [
        ("local", "local", "does not state their zone"),
        ("relative", "since start", "counts them from a start"),
        ("none", "line", "each line counts as a second"),
    ],
)
def test_times_that_are_no_moments_are_said_to_be_so(clock: str, below: str, said: str) -> None:
    files = tuple(replace(each, clock=clock, losses=("42 names are not known",)) for each in full_run().files)
    found = parse(page(replace(full_run(), files=files), report()))
    assert said in next(found.all("header")).text
    chart = found.find("chart-train-loss-mean")
    labels = [each.text for each in chart.all("text")]
    assert below in labels
    assert "UTC" not in labels
    assert rows(found, "Lost when")[0][1] == "42 names are not known"
