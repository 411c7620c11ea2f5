"""Every kind of damage changes what it says, is the same each time, and is noticed by the check meant for it."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from streams_made.damage import BASES, Damage, Files, few_kinds, kinds, undamaged
from streams_made.mllog import MARKER, entries, make_log, text_of
from streams_made.mllog_damage import LogDamage, log_kinds
from streams_made.run import make_run
from streams_made.score import damaged_log, judge, judge_log, log_texts

from tests.every import every
from trainspec_validate.telemetry.checks import all_checks

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED_CHECKS = {f"TS-TEL-{number:03}" for number in range(1, 55)}
PUBLISHED_CHECKS |= {f"TS-REC-{number:03}" for number in range(1, 15)}
WITHOUT_DAMAGE = {"TS-TEL-065"}
"""Needs a plan with a ramp of its batch, which no made run has."""


@cache
def base(name: str) -> Files:
    return undamaged(name)


def test_there_are_many_kinds_with_names_of_their_own() -> None:
    names = [kind.name for kind in kinds()]
    assert len(names) == len(set(names)) > 150
    names = [kind.name for kind in log_kinds()]
    assert len(names) == len(set(names)) > 35 - 1


def test_every_check_has_a_kind_that_is_meant_for_it() -> None:
    meant = {requirement for kind in kinds() for requirement in kind.requirements}
    assert meant >= PUBLISHED_CHECKS
    assert meant <= set(all_checks())
    assert set(all_checks()) - meant <= WITHOUT_DAMAGE


@every("kind", [*kinds(), *log_kinds()], ids=lambda kind: kind.name)
def test_a_kind_says_what_it_does_in_one_sentence(kind: Damage | LogDamage) -> None:
    assert re.fullmatch(r"[A-Z][^\n]+[^.\n]\.", kind.what)
    assert kind.requirements or getattr(kind, "beyond", "")


@pytest.mark.slow
@every("kind", kinds(), ids=lambda kind: kind.name)
def test_damage_changes_the_run_and_is_the_same_each_time(kind: Damage) -> None:
    run = make_run(BASES[kind.base])
    files = kind.apply(run)
    assert files != base(kind.base)
    assert files == kind.apply(run)
    assert {name for name in files if name.endswith(".yaml")} == set(run.documents)


# --- logs


def test_the_made_log_is_one_object_in_a_line() -> None:
    text = text_of(make_log())
    assert all(line.startswith(MARKER) for line in text.splitlines())
    assert entries(text) == make_log() != make_log(seed=2)
    times = [entry["time_ms"] for entry in make_log()]
    assert times == sorted(times)


@every("kind", log_kinds(), ids=lambda kind: kind.name)
def test_damage_changes_the_made_log(kind: LogDamage) -> None:
    damaged = damaged_log(kind, "made log")
    assert damaged
    assert damaged == damaged_log(kind, "made log")


@pytest.mark.slow
@pytest.mark.parametrize("name", log_texts())
def test_damage_fits_every_log(name: str) -> None:
    changed = [kind.name for kind in log_kinds() if damaged_log(kind, name)]
    assert len(changed) >= 24


# --- what notices it


QUICK = ("cut-line", "missing-metric", "frozen-loss", "hole", "unbalanced-interval")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind.name in QUICK], ids=lambda kind: kind.name)
def test_some_damage_is_caught(kind: Damage) -> None:
    verdict = judge(kind)
    assert verdict.caught, verdict


def test_damage_to_a_log_is_caught() -> None:
    kind = next(kind for kind in log_kinds() if kind.name == "negative-step-time")
    verdict = judge_log(kind, "made log")
    assert verdict
    assert verdict.caught, verdict


def test_the_short_form_has_damage_for_every_requirement() -> None:
    few = few_kinds()
    meant = [{requirement for kind in each for requirement in kind.requirements} for each in (few, kinds())]
    assert meant[0] == meant[1]
    assert len(few) < len(kinds())


@pytest.mark.parametrize(
    ("options", "num_kinds"),
    [
        pytest.param(["--short"], len(few_kinds()), id="short", marks=pytest.mark.slow),
        pytest.param([], len(kinds()), id="all", marks=pytest.mark.long),
    ],
)
def test_damage_is_caught(options: list[str], num_kinds: int) -> None:
    """Runs the benchmark, which judges each kind in a process with compiled loops and fails below its least share."""
    command = [sys.executable, str(ROOT / "benchmarks" / "score_streams.py"), "--runs-only", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "CRASHED" not in done.stdout
    assert f"of {num_kinds} (" in done.stdout
