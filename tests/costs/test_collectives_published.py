"""Collective models against published figures: accuracy on systems left out, and agreement with a tuner."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from statistics import median

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import collective_choices
import collective_fit
import collective_points
import score_collectives
from collective_points import Point

from trainspec_validate.performance.costs.bandwidth import bus_bandwidth_factor
from trainspec_validate.performance.costs.collective_libraries import CALIBRATION, Calibration

MIB = 1 << 20


@pytest.fixture(scope="module")
def every() -> list[Point]:
    return collective_points.points()


def test_rows_are_consistent_and_have_a_source() -> None:
    rows = collective_points.rows("collectives")
    assert len(rows) == 388
    for row in rows:
        assert "/" in row["source"] or "." in row["source"], row
        factor = bus_bandwidth_factor(row["operation"], int(row["num_ranks"]))
        bus = factor * float(row["message_bytes"]) / float(row["seconds"])
        assert float(row["bus_bandwidth_bytes_per_second"]) == pytest.approx(bus, rel=1e-4)
    assert [row["system"] for row in rows if row["excluded"]] == ["Gaudi3 8-card server"]


@pytest.mark.slow
def test_packaged_constants_are_those_of_the_fit(every: list[Point]) -> None:
    fitted = collective_fit.fit(every)
    for field in fields(Calibration):
        if not field.name.endswith("_band"):
            assert getattr(CALIBRATION, field.name) == getattr(fitted, field.name), field.name


def test_packaged_constants_stay_below_every_ceiling(every: list[Point]) -> None:
    errors = []
    for point in every:
        found = collective_points.predicted(point)
        assert found <= score_collectives.ceiling_of(point.network, point.operation) * (1 + 1e-9)
        if not point.excluded and point.message_bytes >= MIB:
            errors.append(abs(found / point.bus_bandwidth - 1))
    assert median(errors) < 0.06


@pytest.mark.slow
def test_systems_left_out_are_predicted(every: list[Point]) -> None:
    found = score_collectives.held_out(every)
    assert {each.point.system for each in found} == {point.system for point in every}
    assert all(each.bus_bandwidth <= each.ceiling * (1 + 1e-9) for each in found)
    assert score_collectives.median_error(found) < 0.06
    assert score_collectives.quantile((abs(each.error) for each in found), 0.9) < 0.30
    systems = score_collectives.by_system(found).values()
    assert median(score_collectives.median_error(mine) for mine in systems) < 0.07
    late = [each for each in found if each.point.system in score_collectives.ADDED_LATE]
    assert max(abs(each.error) for each in late) < 0.07
    # A plain ring at full rate, on the same points.
    assert median(abs(each.textbook_error) for each in found) > 4 * score_collectives.median_error(found)
    for name, band in score_collectives.bands(every, found).items():
        assert getattr(CALIBRATION, name) == band


def test_a_system_is_scored_without_its_own_figures(every: list[Point], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}
    chosen = [point for point in every if point.system in {"GCP A3 Mega", "OCI H100 shape", "NVIDIA DGX H100"}]

    def fit(points: object) -> Calibration:
        given = {point.system for point in points}  # type: ignore[attr-defined]
        seen[next(iter({point.system for point in chosen} - given))] = given
        return CALIBRATION

    monkeypatch.setattr(score_collectives, "fit", fit)
    score_collectives.held_out(chosen)
    assert seen == {
        system: {point.system for point in chosen} - {system} for system in {point.system for point in chosen}
    }


@pytest.fixture(scope="module")
def choices() -> list[collective_choices.Choice]:
    return collective_choices.choices()


def test_choices_agree_with_the_tuner(choices: list[collective_choices.Choice]) -> None:
    by_operation = defaultdict(list)
    for each in choices:
        by_operation[each.operation].append(each)
    shares = {operation: collective_choices.agreement(mine)[0] for operation, mine in by_operation.items()}
    assert len(choices) == 3102
    assert shares["all-reduce"] >= 0.90
    assert shares["all-gather"] >= 0.97
    assert shares["reduce-scatter"] >= 0.97


@pytest.mark.slow
def test_thresholds_of_two_platforms_hold_on_the_third(choices: list[collective_choices.Choice]) -> None:
    found = collective_choices.held_out(choices)
    for platform, (reduces, gathers) in {"p5": (0.83, 1.0), "p5en": (0.91, 0.97), "p6": (0.91, 0.95)}.items():
        assert found[platform][0] >= reduces
        assert found[platform][1] >= gathers


def test_the_report_is_printed(capsys: pytest.CaptureFixture[str], every: list[Point]) -> None:
    score_collectives.print_left_out(every)
    score_collectives.print_constants(CALIBRATION)
    text = capsys.readouterr().out
    assert "hardware" in text
    assert "Gaudi3" in text
