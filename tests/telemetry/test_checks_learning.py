"""The loss of a run stays finite and close to what it was, and ends below its start."""

from __future__ import annotations

import pytest
from telemetry_makers import Stream, judged, line_of, messages, refused, view

LOSS = "train.loss.mean{train.loss.name=total}"
SKIPPED = "train.step.skipped{train.skip.reason=overflow}"
GOOD = [2.5 + 6 * 0.9**report for report in range(60)]
END = 40
"""Report from which a run diverges."""


def losses(values: list[float | str], name: str = LOSS, **head: object) -> Stream:
    stream = Stream(**head)
    for step, value in enumerate(values, 1):
        stream.sample(10.0 * step, {name: value}, step=step)
    return stream


def changed(*parts: tuple[int, list[float]]) -> list[float | str]:
    values: list[float | str] = list(GOOD)
    for begin, part in parts:
        values[begin : begin + len(part)] = part
    return values


SPIKES = {
    "none": [],
    "first report": [(0, [300.0])],
    "third report": [(2, [300.0])],
    "one report": [(4, [100.0])],
    "three reports": [(4, [200.0, 190.0, 180.0])],
    "first four reports": [(0, [300.0] * 4)],
    "eight reports": [(10, [300.0] * 8)],
}
ENDS = {
    "twice": [6.25] * 20,
    "fourfold": [10.0] * 20,
    "growing": [2.5 * 1.1**report for report in range(20)],
    "hundredfold": [250.0] * 20,
}


@pytest.mark.parametrize("spike", SPIKES)
@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_diverges_is_found_whatever_came_before(spike: str, end: str) -> None:
    recovered = messages("TS-TEL-055", view(losses(changed(*SPIKES[spike]))))
    found = messages("TS-TEL-055", view(losses(changed(*SPIKES[spike], (END, ENDS[end])))))
    assert set(recovered) < set(found)
    assert any("ends at" in message or f"from step {END + 1}" in message for message in set(found) - set(recovered))


def test_an_explosion_that_stays_has_one_finding() -> None:
    assert messages("TS-TEL-055", view(losses(changed((END, [250.0, 400.0] * 10))))) == [
        f"{LOSS} rises from 3.26999 to 250 and stays above 10 times from step 41 on"
    ]


@pytest.mark.parametrize(
    ("num", "factor", "is_found"), [(30, 7.0, True), (10, 6.0, True), (9, 7.0, False), (30, 4.0, False)]
)
def test_a_loss_that_is_fivefold_for_long_is_found(num: int, factor: float, is_found: bool) -> None:
    """Each tenth report is more than tenfold, which alone is no explosion."""
    values = [4.0 + 0.01 * (report % 7) for report in range(120)]
    values[60 : 60 + num] = [
        value * (10.5 if place % 10 == 3 and is_found else factor) for place, value in enumerate(values[60 : 60 + num])
    ]
    found = [message for message in messages("TS-TEL-055", view(losses(values))) if "stays above" in message]
    assert found == [f"{LOSS} rises from 4.03 to {values[60]:.6g} and stays above 5 times from step 61 on"] * is_found


@pytest.mark.parametrize(
    ("values", "is_found"),
    [
        ([*GOOD[:30], *[-value for value in GOOD[30:]]], True),
        ([*GOOD[:30], -2.6, -2.5], False),  # not yet three
        ([*GOOD[:30], *[-2.6] * 5, 2.5], False),  # comes up again, which makes spikes
        ([3 - 0.1 * report for report in range(60)], False),  # a log-likelihood of densities
        ([0.7 * (-0.9) ** report for report in range(60)], False),  # of a policy
        ([-1.5] * 30, False),
    ],
)
def test_a_loss_that_jumps_below_zero_for_good_is_found(values: list[float | str], is_found: bool) -> None:
    found = [message for message in messages("TS-TEL-055", view(losses(values))) if "below 0" in message]
    assert found == [f"{LOSS} falls from 2.78261 to -2.75435 and stays below 0 from step 31 on"] * is_found


# --- a loss that is not finite to the end


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_loss_that_is_not_finite_to_the_end_is_an_error(value: str) -> None:
    stream = losses([*GOOD[:20], *[value] * 3])
    (found,) = judged("TS-TEL-088", view(stream))
    assert line_of(found, stream) == 21
    assert found.message == f"{LOSS} is not finite in 3 reports to the end from step 21 on"
    assert judged("TS-TEL-055", view(stream)) == []


@pytest.mark.parametrize(("loss", "norm", "wrong"), [(0.0, "NaN", 1), (0.0, 1.0, 0), (0.5, "NaN", 0), (0.0, "+Inf", 0)])
def test_a_loss_of_nothing_beside_a_norm_that_is_no_number_is_none(loss: float, norm: float | str, wrong: int) -> None:
    stream = Stream()
    for step in range(1, 12):
        is_end = step > 8
        values = {LOSS: loss if is_end else 3 - step / 100, "train.gradient.norm": norm if is_end else 1.0 + step / 7}
        stream.sample(10.0 * step, values, step=step)
    found = messages("TS-TEL-088", view(stream))
    assert (
        found
        == [f"{LOSS} is 0 where train.gradient.norm is not a number, in 3 reports to the end from step 9 on"] * wrong
    )


def test_a_loss_that_recovers_is_none() -> None:
    assert judged("TS-TEL-088", view(losses([*GOOD[:20], *["NaN"] * 5, 3.0]))) == []
    assert judged("TS-TEL-088", view(losses([*GOOD[:20], "NaN", "NaN"]))) == []
    assert len(judged("TS-TEL-055", view(losses([*GOOD[:20], "NaN", "NaN"])))) == 1
    assert refused("TS-TEL-088", view(losses([3.0, 2.9]))).startswith("fewer than 3 reports")


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_a_short_run_without_a_finite_loss_is_an_error(num: int) -> None:
    (found,) = judged("TS-TEL-088", view(losses(["NaN"] * num)))
    assert found.message.startswith(f"{LOSS} is not finite in {num} report")
    assert judged("TS-TEL-055", view(losses(["NaN"] * num))) == []


@pytest.mark.parametrize("values", [[2.0, "NaN"], [2.0, "NaN", 1.9], ["NaN", "NaN", 9.0], [2.0, *["NaN"] * 2]])
def test_a_loss_of_a_short_run_stays_finite(values: list[float | str]) -> None:
    (found,) = judged("TS-TEL-055", view(losses(values)))
    assert found.message.startswith(f"{LOSS} is not finite in {values.count('NaN')} report")
    assert judged("TS-TEL-088", view(losses([*values, 2.0, 2.0]))) == []


def test_a_short_run_with_finite_losses_is_not_judged() -> None:
    assert refused("TS-TEL-055", view(losses([3.0, 2.9, 900.0]))).startswith("fewer than 6 reports")


def test_a_run_is_judged_by_its_last_attempt() -> None:
    first = losses([*GOOD[:20], *["NaN"] * 5])
    again = Stream(att=1).every((), {})
    for step in range(20, 30):
        again.sample(1000 + 10.0 * step, {LOSS: 3.0}, step=step)
    assert judged("TS-TEL-088", view(first, again)) == []
    assert len(judged("TS-TEL-055", view(first, again))) == 1


def test_updates_that_are_counted_as_skipped_leave_the_weights() -> None:
    def run(grows: int) -> Stream:
        stream = Stream()
        for step in range(1, 31):
            bad = max(step - 20, 0)
            values = {LOSS: "NaN" if bad else 3.0, SKIPPED: min(bad, grows)}
            stream.sample(10.0 * step, values, step=step)
        return stream

    assert judged("TS-TEL-088", view(run(grows=30))) == []
    assert len(judged("TS-TEL-088", view(run(grows=1)))) == 1


@pytest.mark.parametrize("has_whole", [True, False])
def test_a_part_of_the_loss_is_not_the_loss(has_whole: bool) -> None:
    stream = Stream()
    for step in range(1, 11):
        values = {"train.loss.mean{train.loss.name=rare}": "NaN", "train.loss.mean{train.loss.name=usual}": 3.0}
        stream.sample(10.0 * step, values | ({LOSS: 3.0} if has_whole else {}), step=step)
    assert judged("TS-TEL-088", view(stream)) == []


def test_a_loss_around_zero_has_no_end_above_its_start() -> None:
    signed = [-0.012 + 0.0003 * place + 0.003 * (-1) ** place for place in range(60)]
    assert judged("TS-TEL-055", view(losses(signed))) == []
    (found,) = messages("TS-TEL-055", view(losses([value + 0.1 for value in signed])))
    assert "ends at a median of 0.10495, above 0.0922" in found


def flat(num: int, size: float = 0.02, slope: float = 0.0) -> list[float]:
    """Losses around one level, in an order without a trend but for a slope."""
    return [1.4 + size * ((37 * report) % 11 - 5) / 5 - slope * report for report in range(num)]


def test_a_loss_that_never_falls_is_found() -> None:
    (found,) = messages("TS-TEL-055", view(losses(flat(60))))
    assert (
        found
        == f"{LOSS} does not fall in 59 optimizer steps: 1.398 in its first reports, 1.398 in its last from step 1 on"
    )


@pytest.mark.parametrize(
    "values",
    [flat(30), flat(60, slope=0.002), [1.4] * 60],
    ids=["few optimizer steps", "falls a little", "one value"],
)
def test_a_loss_that_may_fall_is_no_finding(values: list[float]) -> None:
    assert judged("TS-TEL-055", view(losses(values))) == []


def test_a_loss_need_not_fall_in_warm_up_nor_late_in_training_nor_as_a_part() -> None:
    warm, late = Stream(), Stream()
    for step, value in enumerate(flat(60), 1):
        warm.sample(10.0 * step, {LOSS: value, "train.learning_rate": 1e-6 * step}, step=step)
        late.sample(10.0 * step, {LOSS: value}, step=step + 60)
    part = losses(flat(60), "train.loss.mean{train.loss.name=balance}")
    restored = losses(flat(60)).event(1.0, "checkpoint.restore.begin", {}, id="r")
    assert [judged("TS-TEL-055", view(each)) for each in (warm, late, part, restored)] == [[], [], [], []]


@pytest.mark.parametrize("first", [[11.0], [11.0, 10.9]])
def test_a_loss_that_explodes_in_its_first_reports_is_found(first: list[float]) -> None:
    (found,) = messages("TS-TEL-055", view(losses([*first, 5e4, *[9e4] * 9])))
    assert "from 1" in found
    assert f"from step {len(first) + 1} on" in found
    for values in ([0.0, 0.01, 0.02, *[0.05] * 9], [*first, 5e4, 9e4, *GOOD]):
        assert not any("stays above" in message for message in messages("TS-TEL-055", view(losses(values))))


@pytest.mark.parametrize(("num", "is_judged"), [(15, False), (25, False), (40, False), (41, True), (60, True)])
def test_an_end_above_the_start_is_judged_after_40_updates(num: int, is_judged: bool) -> None:
    values = [2.5 + 0.02 * step for step in range(num)]
    assert any("ends at" in message for message in messages("TS-TEL-055", view(losses(values)))) is is_judged


JUMP = [12.44, 12.45, 44.2, 48.1, 47.5, *(47 - 1.4 * report for report in range(25))]
"""First reports of a public run, whose loss rises fourfold after its second update and comes back to 12."""


@pytest.mark.parametrize(
    ("rest", "is_judged"),
    [
        ([12 + 0.28 * report for report in range(32)], True),
        ([12 - 0.28 * report for report in range(32)], False),
        ([12.0, 26.0] * 16, False),
    ],
    ids=["rises to its end", "falls", "scatters"],
)
def test_the_start_is_what_comes_before_a_jump_of_the_first_reports(rest: list[float], is_judged: bool) -> None:
    found = messages("TS-TEL-055", view(losses([*JUMP, *rest])))
    assert any("above 12.45 of its first reports" in message for message in found) is is_judged


# --- the size of steps

NORM, RATE = "train.gradient.norm", "train.learning_rate"
NORMS = [1.5 - 0.01 * report for report in range(20)]


@pytest.mark.parametrize(
    ("end", "is_found"),
    [
        ([1e6] * 6, True),
        ([2000.0] * 3, True),
        ([2000.0] * 2, False),  # not yet three
        ([2000.0] * 5 + [1.4], False),  # comes down again
        ([900.0] * 10, False),
        ([0.0, 2000.0, 0.0, 2000.0, 2000.0], True),
    ],
)
def test_a_gradient_norm_that_stays_a_thousand_times_as_large_is_found(end: list[float], is_found: bool) -> None:
    found = messages("TS-TEL-090", view(losses([*NORMS, *end], NORM)))
    assert bool(found) == is_found
    assert all(message.startswith(f"{NORM} rises from 1.") for message in found)


def test_the_norms_of_another_attempt_are_no_measure() -> None:
    run = view(losses(NORMS, NORM), losses([1e6] * 10, NORM, att=1))
    assert messages("TS-TEL-090", run) == []


WARM_UP = [1e-6 * report for report in range(1, 30)]


@pytest.mark.parametrize(
    ("rates", "is_found"),
    [
        ([*WARM_UP, 15.0], True),
        ([*WARM_UP, 0.03, 3e-5, 3e-5], True),
        (WARM_UP, False),
        ([0.0] * 30 + WARM_UP, False),
        ([1e-9] * 5 + [3e-4] * 30, False),  # a warm-up of few reports
        ([3e-4 * 0.7**report for report in range(40)] * 2, False),  # begins again
        ([*WARM_UP, 2e-3], False),
    ],
)
def test_a_learning_rate_above_all_before_it_is_found(rates: list[float], is_found: bool) -> None:
    found = messages("TS-TEL-090", view(losses(rates, RATE)))
    assert bool(found) == is_found
    assert all("at most before" in message for message in found)


def test_the_size_of_steps_needs_reports() -> None:
    assert refused("TS-TEL-090", view(losses(NORMS[:7], NORM))).startswith("fewer than 8 reports")
