"""Checks on logs of other programs: what they owe, what they show without times, and clocks of another zone."""

from __future__ import annotations

from pathlib import Path

import pytest
from telemetry_makers import Stream, judged, line_of, messages, micros, refused, view

from trainspec_validate.telemetry.fold.engine import read_run, run_file
from trainspec_validate.telemetry.view.run_view import RunView


def log(folder: Path, *texts: str) -> RunView:
    files = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.log"
        path.write_text(text, encoding="utf-8")
        files.append(run_file(number, path, path.name))
    return read_run(files)


def iterations(*seconds: float, first: int = 1, before: str = "") -> str:
    return "".join(
        f"{before} iteration {first + n}/ 1000 | elapsed time per iteration (s): {each} | global batch size: 8 |\n"
        for n, each in enumerate(seconds)
    )


def test_a_log_owes_no_metric_that_it_has_nowhere(tmp_path: Path) -> None:
    run = log(tmp_path, iterations(*[900.0] * 10))
    assert refused("TS-TEL-004", run) == "a log of the format megatron-log requires no metric"


def test_slow_updates_are_found_without_times(tmp_path: Path) -> None:
    (found,) = judged("TS-TEL-036", log(tmp_path, iterations(*[900.0] * 5, *[960.0] * 4)))
    assert found.message == "optimizer steps take 16 min in 4 reports from step 6 to 9, 6.7 % more than before"


@pytest.mark.parametrize(
    "seconds",
    [
        [900.0] * 5 + [960.0] * 2 + [900.0] * 3,
        [900.0] * 5 + [920.0] * 4,
        [900.0, 700.0, 1100.0, 960.0, 870.0] + [1500.0] * 4,
        [9.0] * 5 + [9.6] * 4,
    ],
    ids=["short", "little", "unsteady before", "minutes"],
)
def test_what_is_not_slow_without_times(seconds: list[float], tmp_path: Path) -> None:
    assert judged("TS-TEL-036", log(tmp_path, iterations(*seconds))) == []


def test_another_run_in_the_same_log_is_no_slow_stretch(tmp_path: Path) -> None:
    text = iterations(*[900.0] * 7) + iterations(*[1200.0] * 6)
    assert judged("TS-TEL-036", log(tmp_path, text)) == []
    few = iterations(900.0, 900.0) + iterations(1200.0, 1200.0)
    assert refused("TS-TEL-036", log(tmp_path, few)).startswith("the lines have no times, and fewer than 6")


def test_times_without_a_zone_are_told_once(tmp_path: Path) -> None:
    kernel = "2026-01-01 00:00:{:02d} NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
    run = log(tmp_path, kernel.format(1) + kernel.format(2))
    assert messages("TS-TEL-016", run) == ["times have no zone, and are taken for UTC"]
    zoned = log(tmp_path, kernel.format(1).replace("01 NVRM", "01+00:00 NVRM"))
    assert messages("TS-TEL-016", zoned) == []


def test_a_format_that_has_no_zone_is_not_asked_for_one(tmp_path: Path) -> None:
    run = log(tmp_path, iterations(9.0, 9.0, before="[2026-01-01 00:00:00]"))
    assert messages("TS-TEL-016", run) == []
    assert "times have no zone; they are taken for UTC (1)" in run.files[0].losses
    assert refused("TS-TEL-016", log(tmp_path, iterations(9.0, 9.0))).startswith("times count from a start")


@pytest.mark.parametrize("clock", ["relative", "none"])
def test_a_stream_without_moments_is_not_judged_by_the_calendar(clock: str) -> None:
    stream = job()
    origin = stream.lines[0]["extensions"] = {"org.trainspec.import": {"clock": clock}}
    for line in stream.lines:
        line["time_us"] -= micros(0)
    assert refused("TS-TEL-016", view(stream)).startswith("times count from a start that is not stated")
    origin["org.trainspec.import"] = {"clock": "utc"}
    assert "before 2000" in messages("TS-TEL-016", view(stream))[0]


# --- an emitter beside its run ------------------------------------------------------------------------------


def job() -> Stream:
    stream = Stream().event(0, "run.start")
    for step in range(1, 10):
        stream.sample(60 * step, {"train.step.count": step}, step=step)
    return stream.event(600, "run.end")


def agent(begin: float, num: int = 10) -> Stream:
    stream = Stream("node/n1", ("node",), host="n1")
    return stream.every((begin + 60 * n for n in range(num)), {"hw.power{hw.type=enclosure}": 5_000.0})


@pytest.mark.parametrize(("begin", "num"), [(0, 0), (-1_700, 0), (1_700, 0), (7 * 3600, 1), (-7 * 3600, 1)])
def test_an_emitter_hours_off_its_run(begin: float, num: int) -> None:
    other = agent(begin)
    found = judged("TS-TEL-016", view(job(), other))
    assert len(found) == num
    if num:
        assert found[0].message.startswith("emitter 'node/n1' writes ")
        assert line_of(found[0], other, 1) == (len(other.lines) - 1 if begin > 0 else 1)


def test_an_emitter_hours_late_does_not_make_the_others_silent() -> None:
    run = view(job().event(600, "attempt.end", {"train.run.attempt": 0}), agent(7 * 3600))
    assert messages("TS-TEL-033", run) == []


# --- slow for a while ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "num"), [([3, 4, 5], 0), ([3, 4, 5, 6], 1), ([3, 4, 6, 7], 0), ([50, 51, 52, 53], 1)])
def test_a_rank_is_slow_for_a_while(slow: list[int], num: int) -> None:
    stream = Stream("ranks", ("rank",))
    for number in range(100):
        stream.sample(60 * number, {"train.rank.slowdown": 1.9 if number in slow else 1.0}, rank=3)
    found = judged("TS-TEL-035", view(stream))
    assert len(found) == num
    if num:
        assert line_of(found[0], stream) == slow[0] + 1
        assert "above 1.5 in 4 windows in a row, up to 1.9" in found[0].message


def test_an_evaluation_that_gives_the_same_each_time() -> None:
    stream = Stream()
    for number in range(1, 6):
        loss = {"train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}": 2.7590169}
        stream.sample(60 * number, loss, step=number)
    (found,) = messages("TS-TEL-026", view(stream))
    assert found.endswith("is 2.7590169 for 5 evaluations in a row")


@pytest.mark.parametrize(("num_lost", "wrong"), [(29, False), (30, True), (60, True)])
def test_a_gradient_norm_that_is_no_number_for_long(num_lost: int, wrong: bool) -> None:
    stream = Stream()
    for number in range(1, 101):
        norm = ("NaN", "+Inf")[number % 2] if 20 < number <= 20 + num_lost else 1.0 + number / 7
        stream.sample(60 * number, {"train.gradient.norm": norm}, step=number)
    found = messages("TS-TEL-026", view(stream))
    assert len(found) == wrong
    assert all(f"for {num_lost} optimizer steps in a row" in each for each in found)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("metric", ["train.sample.count", "train.rank.step", "hw.energy{hw.type=gpu}"])
@pytest.mark.parametrize("text", ["+Inf", "NaN"])
def test_values_that_are_not_finite_disturb_no_check(metric: str, text: str) -> None:
    job_stream = Stream("all", ("job", "rank", "device"), host="n1")
    for number in range(30):
        subject = {"rank": number % 3} if "rank" in metric else {"device": "G"} if "energy" in metric else {}
        job_stream.sample(10 * number, {metric: text}, step=number, **subject)
        job_stream.sample(10 * number, {"train.batch.size": 8.0})
    run = view(job_stream)
    for requirement in ("TS-TEL-013", "TS-TEL-032", "TS-TEL-038", "TS-TEL-040"):
        assert refused(requirement, run) or judged(requirement, run) == []


def test_a_step_that_takes_far_longer_than_any_other_is_a_stall_without_times(tmp_path: Path) -> None:
    (found,) = judged("TS-TEL-033", log(tmp_path, iterations(*[2.0] * 20, 3600.0, *[2.0] * 9)))
    assert found.message == "step 21 takes 1 h, and no other more than 2 s"
    (tmp_path / "short").mkdir()
    (found,) = judged("TS-TEL-033", log(tmp_path / "short", iterations(*[2.0] * 8, 612.0, *[2.0] * 4)))
    assert found.message == "step 9 takes 10.2 min, and no other more than 2 s"


@pytest.mark.parametrize(
    "seconds",
    [
        (3600.0, *[2.0] * 30),  # builds its programs
        (*[2.0] * 20, 590.0, *[2.0] * 9),
        (*[2.0] * 20, 3600.0, *[2.0] * 5, 1300.0),
        (*[2.0] * 3, 3600.0),
    ],
    ids=["first", "minutes", "another", "few-reports"],
)
def test_a_longer_step_without_times_is_not_judged(tmp_path: Path, seconds: tuple[float, ...]) -> None:
    assert refused("TS-TEL-033", log(tmp_path, iterations(*seconds))) == "the source of the stream has no times"


def test_a_step_with_an_evaluation_is_no_stall_without_times(tmp_path: Path) -> None:
    each = "iter {}: loss 2.5, time {:.2f}ms, mfu 30.00%\n"
    before = "".join(each.format(n, 250) for n in range(30))
    after = "".join(each.format(n, 250) for n in range(31, 40))
    slow, result = each.format(30, 3.6e6), "step 30: train loss 2.0000, val loss 2.1000\n"
    assert refused("TS-TEL-033", log(tmp_path, before + result + slow + after))
    (tmp_path / "b").mkdir()
    assert judged("TS-TEL-033", log(tmp_path / "b", before + slow + after))
