"""Damage brings about no mistake of ours, no exit without a word, no forged line, no change of what is judged."""

from __future__ import annotations

import csv
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import processes
from tests.fuzz.__main__ import COLUMNS, Tally, outcomes, table
from tests.fuzz.cases import Outcome, lay_out, run
from tests.fuzz.commands import COMMANDS, SPARK, Case, case
from tests.spark_sessions import local_session

SEED = 20
NUM_QUICK, NUM_SHORT, NUM_LONG = 60, 800, 100_000
NUM_PROCESSES_SHORT, NUM_PROCESSES_LONG = 25, 600
NUM_SPARK = 150


def told(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")  # noqa: T201


def wrong_of(numbers: range, num_jobs: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    wrong = []
    for number, name, outcome in outcomes(SEED, numbers, num_jobs):
        tallies[name].add(outcome)
        wrong += [f"{number} {name}: {mistake}" for mistake in outcome.mistakes]
    told(capsys, table(tallies))
    assert set(tallies) == {command.name for command in COMMANDS}, "each command has its share"
    assert {code for tally in tallies.values() for code in tally.codes} >= {0, 1, 2}, "some damage is harmless"
    return wrong


def test_damaged_input_is_answered() -> None:
    found = outcomes(SEED, range(NUM_QUICK), 1)
    mistakes = [(number, name, outcome.mistakes) for number, name, outcome in found if outcome.mistakes]
    assert mistakes == []


@pytest.mark.slow
def test_every_command_answers_damaged_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert wrong_of(range(NUM_SHORT), 1, capsys) == []


@pytest.mark.long
def test_every_command_answers_a_hundred_thousand_damaged_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert wrong_of(range(NUM_LONG), os.cpu_count() or 1, capsys) == []


def ended(numbers: range, capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines, mistakes = processes.table(SEED, numbers)
    told(capsys, lines)
    return mistakes


@pytest.mark.slow
def test_processes_end_as_the_manual_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(range(NUM_PROCESSES_SHORT), capsys) == []


@pytest.mark.long
def test_many_processes_end_as_the_manual_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(range(NUM_PROCESSES_LONG), capsys) == []


@pytest.fixture
def session() -> Iterator[None]:
    with local_session("OFF"):
        yield


@pytest.mark.long
@pytest.mark.usefixtures("session")
def test_spark_answers_damaged_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally, wrong = Tally(), []
    for number in range(NUM_SPARK):
        place = tmp_path / str(number)
        place.mkdir()
        try:
            lay_out(case(SEED, number, SPARK), place, random.Random(number))
        except OSError:
            continue  # this system holds no such name
        outcome = run(case(SEED, number, SPARK), place)
        tally.add(outcome)
        wrong += [f"{number}: {mistake}" for mistake in outcome.mistakes]
    told(capsys, f"{SPARK.name}: {dict(tally.codes)}")
    assert wrong == []


def test_a_mistake_of_ours_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself can fail: a reader that raises what nobody expects gives a wrong outcome."""
    monkeypatch.setattr("trainspec_validate.cli.validate_command.run", lambda _request: 1 / 0)
    found = case(SEED, 0, COMMANDS[0])
    lay_out(found, tmp_path, random.Random(0))
    outcome = run(found, tmp_path)
    assert outcome.code == 3
    assert any("ZeroDivisionError" in mistake for mistake in outcome.mistakes)


@pytest.mark.slow
def test_a_case_that_ends_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may end the process; the others of the batch are run all the same."""

    def ending(made: Case, place: Path) -> Outcome:
        if made.arguments == case(1, 7).arguments:
            os.abort()
        return Outcome(0, (), 0, 0)

    monkeypatch.setattr("tests.fuzz.__main__.run", ending)
    found = {number: outcome for number, _, outcome in outcomes(1, range(12), 2)}
    assert [number for number, outcome in found.items() if outcome.mistakes] == [7]
    assert len(found) >= 10


def test_the_recorded_run_has_no_mistake_of_ours() -> None:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "published" / "damaged_input.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == COLUMNS
    assert {row["command"] for row in rows} <= {command.name for command in COMMANDS}
    for row in rows:
        assert int(row["cases"]) == sum(int(row[f"exit_{code}"]) for code in range(4)), row["command"]
        assert row["exit_3"] == row["wrong"] == "0", row["command"]
