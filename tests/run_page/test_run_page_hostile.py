"""Whatever stands in a stream, its page shows it as text and keeps its form."""

from __future__ import annotations

from dataclasses import replace

import pytest
from full_run import full_report, full_run
from hypothesis import given
from hypothesis import strategies as st
from run_page_makers import (
    NOBODY,
    SECOND,
    START_US,
    emitter,
    event,
    finding,
    head,
    job,
    report,
    series,
    trail,
    view,
    windows,
)
from run_page_parser import Element, parse

from tests.examples import examples
from trainspec_validate.model.finding import Evidence, Related
from trainspec_validate.report.run_page import page
from trainspec_validate.report.run_page.markup import Html, cut, element, join
from trainspec_validate.system.neutral import hazard
from trainspec_validate.telemetry.view.run_view import Damage, Location, RunView, StreamFile, Subject, Trouble

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>1</script>",
    "</svg></title></desc><b>",
    "' onmouseover='x",
    "&lt;b&gt; &amp; ]]> <!-- -->",
    "\u202eevil\u2066\x00\x1b[31m\ud800",
    "A" * 5_000,
    "`code` ` odd",
]

CHOSEN = (
    *("train.checkpoint.location", "train.checkpoint.durability", "train.fault.id", "train.fault.class"),
    *("train.fault.domain", "train.fault.component", "train.fault.vendor_code", "train.recovery.action"),
    *("train.rank.ids", "train.reason", "train.gap.start"),
)


def told_by_a_stranger(word: str) -> RunView:
    """A run in which every text that a producer chooses is this one."""
    short = word[:200]
    subject = Subject(1, short, short)
    named = (f"train.loss.mean{{train.loss.name={short}}}", f"train.goodput.time{{train.time.category={short}}}")
    attributes = dict.fromkeys(CHOSEN, short)
    opened = (
        *("train.checkpoint.begin", "train.fault.detected", "train.recovery.begin"),
        *("train.straggler.detected", "train.telemetry.gap"),
    )
    return view(
        run=word,
        files=(StreamFile(word, short, 1, 1, is_open=True, has_head=True, starts_with_head=True),),
        heads=(head(declared={"train.flops.convention": word}, unsupported={"train.token.rate": word}),),
        job=[job(text, [1.0, 2.0, 3.0]) for text in named] + [job("train.flops.utilization", [0.4, 0.5])],
        series=[series("hw.gpu.utilization", subject, [0.5, 0.6]), series("train.rank.slowdown", subject, [1.0, 2.0])],
        windows=[windows("hw.gpu.utilization", [(1, 0.5, 0.5, 0.5)] * 3)],
        events=tuple(event(name, 1.0 + place, id=short, a=attributes) for place, name in enumerate(opened)),
        emitters=(emitter(word, num_missing=1),),
        trails=(trail(Trouble.GAP, named[0], at=9, before=4, subject=subject),),
        damage=(Damage("TS-TEL-001", Location(0, 0), word, word),),
    )


def names_of(found: Element) -> set[str]:
    return {each.name for each in found.all()}


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_names_are_text(word: str) -> None:
    evidence = Evidence(word, word, START_US, START_US + SECOND, 3, (word,))
    related = (Related(word, word, ()),)
    hostile = finding(message=word, path=word, help=word, name=word, url=word, evidence=evidence, related=related)
    found = parse(page(told_by_a_stranger(word), report(hostile)))
    plain = parse(page(told_by_a_stranger("plain"), report(finding(related=related))))
    assert names_of(found) <= names_of(plain) | {"code"}
    assert not [key for each in found.all() for key in each.attributes if key.startswith("on")]
    assert not [each for each in found.all("a") if not each.attributes["href"].startswith("#")]


def test_what_a_stream_says_is_still_readable() -> None:
    found = parse(page(told_by_a_stranger("<b>bold</b>"), report(finding(message="x < 1 & y > 2"))))
    assert "Run <b>bold</b>" in next(found.all("title")).text
    assert "x < 1 & y > 2" in found.find("findings").text


def test_the_page_holds_no_command_of_a_build_system() -> None:
    """Also where it is a file: a job prints it, or `--output /dev/stdout` does."""
    word = "##[error]a##vso[b]##teamcity[c::error::d"
    text = page(told_by_a_stranger(word), report(finding(message=word, path=word)), unread=(word,))
    assert hazard(text) == ""
    assert f"Run {word}" in next(parse(text).all("title")).text


def test_what_hides_or_turns_text_is_written_out() -> None:
    text = page(told_by_a_stranger("a\u202eb\x00c\ud800"), report())
    assert "a\\u202eb\\x00c\\ud800" in text
    assert not {char for char in text if not char.isprintable()} - {"\n"}


def test_long_names_do_not_make_a_long_page() -> None:
    assert len(page(told_by_a_stranger("A" * 5_000), report())) < 150_000


@pytest.mark.parametrize(
    "changes",
    [
        {"first_time_us": 0},
        {"last_time_us": 9_007_199_254_740_991},
        {"first_time_us": 0, "last_time_us": 9_007_199_254_740_991},
        {"last_time_us": START_US - 5},
        {"last_time_us": START_US + 1},
    ],
)
def test_any_span_of_time_has_an_axis(changes: dict[str, int]) -> None:
    assert parse(page(replace(full_run(), **changes), full_report()))


def test_a_few_wrong_times_do_not_squeeze_the_charts() -> None:
    times = [*(5.0 * number for number in range(99)), 5e8]
    made = view(job=[job("train.loss.mean", [2.0] * 100, times=times)], last_time_us=START_US + 500_000_000 * SECOND)
    found = parse(page(made, report()))
    chart = found.find("chart-train-loss-mean")
    line = [each for each in chart.all("path") if each.classes == {"l0"}][-1]
    assert float(line.attributes["d"].split("L")[-1].split()[0]) > 800
    assert "wrong times" in next(found.all("aside")).text


@examples(60)
@given(st.lists(st.floats(), min_size=1, max_size=30), st.integers(0, 3))
def test_any_values_make_a_page(values: list[float], metric: int) -> None:
    name = ("train.loss.mean", "train.gradient.norm", "train.step.duration", "train.flops.utilization")[metric]
    finite = [value for value in values if abs(value) < 1e300] or [0.0]
    rows = [series("hw.gpu.utilization", Subject(None, "h", "g"), finite)]
    cells = [(1, value, value, value) for value in finite]
    made = view(job=[job(name, values)], series=rows, windows=[windows("hw.gpu.utilization", cells)])
    text = page(made, report())
    found = parse(text)
    drawn = [each.attributes.get("d", "") for each in found.all("path")]
    assert not [path for path in drawn if "nan" in path or "inf" in path]


# --- the one place that escapes -----------------------------------------------------------------------------


@pytest.mark.slow
@given(st.text(), st.text())
def test_text_and_attributes_come_back_as_they_were(text: str, value: str) -> None:
    found = parse(element("p", text, title=value))
    printable = "".join(char for char in text + value if char.isprintable())
    assert (
        "".join(char for char in found.text + found.attributes["title"] if char.isprintable()).startswith(printable)
        or not (text + value).isprintable()
    )


def test_only_html_goes_through_as_it_is() -> None:
    inner = element("b", "x")
    assert join(inner, "<b>", None, [inner, 1234]) == "<b>x</b>&lt;b&gt;<b>x</b>1,234"
    assert isinstance(join(inner), Html)
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@given(st.text(max_size=50), st.integers(5, 60))
def test_cut_keeps_to_its_length(text: str, length: int) -> None:
    assert len(cut(text, length)) == min(len(text), length)


def test_nobody_is_named() -> None:
    made = view(series=[series("train.rank.slowdown", NOBODY, [1.0, 1.2])])
    assert parse(page(made, report()))
