"""Values that follow from each other agree, and time and optimizer steps that were lost are all counted."""

from __future__ import annotations

import pytest
from telemetry_makers import Stream, judged, line_of, messages, refused, view

TOKENS = "train.token.count{train.token.kind=all}"
PEAK = {"train.flops.per_token": 4e11, "train.flops.peak": 1e15, "train.flops.precision": "bf16"}
SKIPPED = "train.step.skipped{train.skip.reason=non_finite}"
GOODPUT = "train.goodput.time{train.time.category=%s}"


def rates(rate: float, *times: float, growth: float = 8000.0) -> Stream:
    stream = Stream()
    for number, seconds in enumerate(times):
        stream.sample(seconds, {"train.token.rate": rate, TOKENS: 100_000 + growth * 10 * number})
    return stream


def test_the_rate_leaves_evaluations_out() -> None:
    assert judged("TS-TEL-038", view(rates(8000, 10, 20, 30, 40))) == []
    assert len(judged("TS-TEL-038", view(rates(8000, 10, 20, 90, 100)))) == 1
    assert judged("TS-TEL-038", view(rates(8000, 10, 20, 90, 100).between(21, 80, "evaluation"))) == []


def test_padding_counts_in_the_rate() -> None:
    stream = Stream()
    for number in range(1, 5):
        values = {TOKENS: 80_000 * number, "train.token.count{train.token.kind=non_padding}": 60_000 * number}
        stream.sample(10 * number, {"train.token.rate": 8000.0, **values})
    assert judged("TS-TEL-038", view(stream)) == []


def test_samples_grow_by_the_batch_that_held() -> None:
    stream = Stream().sample(1, {"train.batch.size": 40})
    for step, count in enumerate((40, 80, 120, 200, 280), start=1):
        values = {"train.sample.count": count, **({"train.batch.size": 80} if step == 4 else {})}
        stream.sample(10 * step, values, step=step)
    assert judged("TS-TEL-038", view(stream)) == []
    stream.sample(60, {"train.sample.count": 320}, step=6)
    (found,) = judged("TS-TEL-038", view(stream))
    assert found.message == "train.sample.count grows by 40 in 1 optimizer steps of 80 samples, which are 80"
    assert line_of(found, stream) == 7


def test_rates_need_counts() -> None:
    run = view(Stream().every((10, 20, 30), {"train.token.rate": 1.0}))
    assert refused("TS-TEL-038", run).startswith("neither train.token.rate with")


# --- utilisation --------------------------------------------------------------------------------------------


def utilised(value: float, more: dict[str, float] | None = None, **head: object) -> Stream:
    values = {"train.token.rate": 8000.0, "train.flops.utilization": value, **(more or {})}
    return Stream(**{"world_size": 8, "declared": PEAK, **head}).sample(30, values)


@pytest.mark.parametrize(("value", "num"), [(0.4, 0), (0.407, 0), (0.41, 1), (0.05, 1), (0.8, 1)])
def test_utilisation_is_that_of_the_rate(value: float, num: int) -> None:
    assert len(judged("TS-TEL-039", view(utilised(value)))) == num


def test_two_ranks_may_share_an_accelerator() -> None:
    ranks = Stream("ranks", ("rank",), world_size=8)
    for rank in range(8):
        ranks.sample(30, {"train.rank.step": 1}, rank=rank, host="n1", device=f"GPU-{rank // 2}")
    assert judged("TS-TEL-039", view(utilised(0.8), ranks)) == []
    assert judged("TS-TEL-039", view(utilised(0.4), ranks)) == []
    assert len(judged("TS-TEL-039", view(utilised(0.6), ranks))) == 1


def test_recomputation_adds_to_utilisation() -> None:
    hardware = "train.flops.hardware_utilization"
    assert judged("TS-TEL-039", view(utilised(0.4, {hardware: 0.5}))) == []
    assert len(judged("TS-TEL-039", view(utilised(0.4, {hardware: 0.3})))) == 1
    assert len(judged("TS-TEL-039", view(utilised(0.4, {hardware: 0.3}, declared={})))) == 1
    assert refused("TS-TEL-039", view(utilised(0.4, declared={}))).startswith("no train.token.rate with declared")


# --- what was lost ------------------------------------------------------------------------------------------


def skipping(counts: list[int], norms: list[float | str]) -> Stream:
    stream = Stream()
    for step, (count, norm) in enumerate(zip(counts, norms, strict=True), start=1):
        stream.sample(10 * step, {SKIPPED: count, "train.gradient.norm": norm}, step=step)
    return stream


def test_a_norm_that_is_not_finite_is_a_skipped_update() -> None:
    assert judged("TS-TEL-042", view(skipping([0, 1, 1, 1], [1.5, "+Inf", 1.4, 1.3]))) == []
    (found,) = messages("TS-TEL-042", view(skipping([0, 0, 0, 0], [1.5, "NaN", 1.4, 1.3])))
    assert found.startswith("train.gradient.norm is not finite at 2026-01-01 00:00:20 UTC")
    finite = view(skipping([0, 0], [1.5, 1.4]))
    assert refused("TS-TEL-042", finite).startswith("no step with a loss or gradient that is not finite")


@pytest.mark.parametrize(("kind", "name", "num"), [("mean", "total", 1), ("max", "total", 1), ("mean", "z", 0)])
def test_an_objective_that_is_not_finite_is_a_skipped_update(kind: str, name: str, num: int) -> None:
    loss = f"train.loss.{kind}{{train.loss.name={name}}}"
    applied, counted = skipping([0, 0, 0, 0], [1.5, 1.4, 1.4, 1.3]), skipping([0, 1, 1, 1], [1.5, 1.4, 1.4, 1.3])
    for stream in (applied, counted):
        stream.sample(20, {loss: "NaN"}, step=2)
    assert judged("TS-TEL-042", view(counted)) == [] if num else refused("TS-TEL-042", view(counted))
    found = messages("TS-TEL-042", view(applied)) if num else []
    assert [each.partition(" at ")[0] for each in found] == [f"{loss} is not finite"] * num


def test_one_update_is_told_of_once() -> None:
    stream = Stream()
    for step, value in enumerate([1.5, "NaN", 1.4, 1.3], start=1):
        norm = {"train.gradient.norm": value, "train.loss.mean{train.loss.name=total}": value}
        stream.sample(10 * step, {SKIPPED: 0, **norm}, step=step)
    assert len(judged("TS-TEL-042", view(stream))) == 1


@pytest.mark.parametrize("value", [1.5, "NaN"])
def test_a_job_that_stops_at_a_gradient_skips_none(value: float | str) -> None:
    """The gradient is reported, and the counters are written once more at the end."""
    stream = skipping([0, 0], [1.5, 1.4]).event(25, "nonfinite.detected", {"train.nonfinite.where": "gradient"})
    stream.sample(30, {"train.loss.mean{train.loss.name=total}": value}, step=3)
    stream.sample(31, {SKIPPED: 0}, step=3)
    assert refused("TS-TEL-042", view(stream)).startswith("no step with a loss or gradient")
    stream.sample(40, {SKIPPED: 0, "train.gradient.norm": "NaN"}, step=4).sample(50, {SKIPPED: 0}, step=5)
    assert messages("TS-TEL-042", view(stream))


@pytest.mark.parametrize(("counts", "num"), [([1, 2, 1, 2, 3], 0), ([1, 2, 2, 3, 4], 1), ([1, 2, 3, 4, 5], 1)])
def test_a_job_that_restores_an_older_state_skips_none(counts: list[int], num: int) -> None:
    stream = Stream()
    for place, count in enumerate(counts, start=1):
        stream.sample(10 * place, {SKIPPED: 0, "train.step.count": count}, step=count)
    stream.event(25, "nonfinite.detected", {"train.nonfinite.where": "gradient"})
    assert len(judged("TS-TEL-042", view(stream))) == num if num else refused("TS-TEL-042", view(stream))


def test_a_value_of_the_weights_is_no_skipped_update() -> None:
    stream = skipping([0, 0, 0], [1.5, 1.4, 1.3]).event(25, "nonfinite.detected", {"train.nonfinite.where": "weights"})
    assert refused("TS-TEL-042", view(stream)).startswith("no step with")


def spent(*moments: tuple[float, dict[str, float]], **head: object) -> Stream:
    stream = Stream(**head)
    for seconds, categories in moments:
        stream.sample(seconds, {GOODPUT % name: value for name, value in categories.items()})
    return stream


def test_a_category_that_appears_later_counted_from_zero() -> None:
    late = spent((60, {"productive": 50.0}), (120, {"productive": 80.0, "evaluation": 30.0}))
    assert judged("TS-TEL-049", view(late)) == []
    assert refused("TS-TEL-049", view(spent((60, {"idle": 1.0})))) == "train.goodput.time is not reported twice"


def test_time_between_attempts_is_counted_as_well() -> None:
    first = spent((60, {"productive": 50.0, "fault_wait": 0.0}))
    second = spent((360, {"productive": 90.0, "fault_wait": 260.0}), att=1)
    assert judged("TS-TEL-049", view(first, second)) == []
    forgot = spent((360, {"productive": 90.0, "fault_wait": 0.0}), att=1)
    assert len(judged("TS-TEL-049", view(first, forgot))) == 1


def test_productive_time_is_time_of_updates() -> None:
    stream = spent((60, {"productive": 0.0}), (120, {"productive": 60.0}))
    for step in range(1, 7):
        stream.sample(60 + 10 * step, {"train.step.duration": 8.0}, step=step)
    (found,) = messages("TS-TEL-049", view(stream))
    assert found == "1 min are productive, and the steps of that time took 48 s"


def test_the_update_under_way_can_be_productive_for_as_long_as_the_longest_took() -> None:
    for end, num in ((69, 0), (75, 1)):
        stream = spent((10, {"productive": 0.0}), (end, {"productive": end - 10.0}))
        for step, seconds in enumerate((30, 50), 1):
            stream.sample(seconds, {"train.step.duration": 20.0}, step=step)
        assert len(judged("TS-TEL-049", view(stream))) == num


@pytest.mark.parametrize(
    ("counts", "first", "interval", "num"),
    [
        ({}, 3, 3, 0),  # three steps since nothing, as the head says
        ({60: 0}, 3, 3, 0),
        ({60: 9}, 12, 4, 0),  # three steps since a restore
        ({}, 3, 1, 1),  # each step has a report: those before stand in no record
        ({60: 2}, 3, 3, 1),
    ],
)
def test_the_first_report_stands_for_its_updates(counts: dict[int, int], first: int, interval: int, num: int) -> None:
    stream = Stream(report_interval_steps=interval)
    for seconds, count in counts.items():
        stream.sample(seconds, {"train.step.count": count}, step=count)
    stream.sample(60, {GOODPUT % "productive": 0.0})
    stream.sample(90, {"train.step.duration": 10.0}, step=first)
    stream.sample(120, {"train.step.duration": 10.0}, step=first + 3).sample(120, {GOODPUT % "productive": 60.0})
    assert len(judged("TS-TEL-049", view(stream))) == num


@pytest.mark.parametrize(("factor", "num"), [(1e-3, 1), (1.0, 0), (8.0, 0), (1e3, 1)])
def test_a_time_of_an_update_in_another_unit_contradicts_the_rate(factor: float, num: int) -> None:
    stream = Stream()
    for step in range(1, 41):
        seconds = 0.5 * (factor if step > 30 else 1.0)
        stream.sample(step, {"train.token.rate": 8000.0, "train.step.duration": seconds}, step=step)
    found = [each for each in judged("TS-TEL-038", view(stream)) if "times" in each.message]
    assert len(found) == num
    for each in found:
        assert f"is {4000 * factor:,.0f} tokens in 10 reports from step 31 on, and 4,000 in most others" in each.message


def test_a_rate_in_another_unit_contradicts_the_time_between_reports() -> None:
    stream = Stream()
    for step in range(1, 41):
        stream.sample(10 * step, {"train.sample.rate": 8.0 * (1000 if step > 30 else 1)}, step=step)
    (found,) = judged("TS-TEL-038", view(stream))
    assert "80,000 samples in 10 reports from step 31 on, and 80 in most others" in found.message


def test_a_single_slow_report_is_no_other_unit() -> None:
    stream = Stream()
    for step in range(1, 41):
        stream.sample(10 * step + (9000 if step > 20 else 0), {"train.sample.rate": 8.0}, step=step)
    assert judged("TS-TEL-038", view(stream)) == []
