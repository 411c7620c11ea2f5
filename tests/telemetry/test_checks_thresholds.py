"""The limits that the pages state are the constants of the checks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from spec_text import requirements

from tests.every import every
from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.checks import (
    _pauses,
    accounts,
    all_checks,
    cadence,
    clocks,
    consistency,
    frozen,
    learning,
    members,
    pace,
    profile,
    progress,
    work,
)

SPEC = Path(__file__).resolve().parents[2] / "spec" / "v1"
MINE = [f"TS-TEL-{number:03}" for number in (*range(20, 43), 49, 50, 54, *range(80, 85))]
NUMBERS = {2: "two", 3: "three", 5: "five", 10: "ten", 12: "twelve", 30: "30"}


def percent(share: float) -> str:
    return f"{100 * share:g} %"


STATED = {
    "TS-TEL-020": (percent(1 - cadence.LATE_SHARE), "1.5 times"),
    "TS-TEL-021": (f"more than {NUMBERS[cadence.GAP_CADENCES]} cadences",),
    "TS-TEL-023": (f"more than {NUMBERS[cadence.GAP_CADENCES]} cadences",),
    "TS-TEL-026": (
        f"in {NUMBERS[frozen.FROZEN_VALUES]} steps",
        f"0 in {NUMBERS[frozen.FROZEN_ZEROS]}",
        f"all of {frozen.FROZEN_READINGS} readings",
        f"few digits in {frozen.FROZEN_NORMS} steps",
        f"of a rank in {NUMBERS[frozen.FROZEN_TIMES]} steps",
    ),
    "TS-TEL-027": (
        f"lasts {NUMBERS[members.FEWEST_CADENCES]} cadences",
        f"within {NUMBERS[members.SLOW_START_CADENCES]} cadences",
    ),
    "TS-TEL-032": (
        f"At {NUMBERS[progress.SPREAD_INSTANTS]} moments in a row",
        "one step",
        f"stops {NUMBERS[progress.SPREAD_INSTANTS]} of its intervals",
        f"{NUMBERS[progress.STOPPED_INTERVALS]} of its longest",
        f"and {NUMBERS[int(progress.LEAST_STOP_SECONDS)]} seconds before",
    ),
    "TS-TEL-033": (
        f"more than {NUMBERS[progress.STALL_STEPS]} times the median",
        "60 s",
        f"{NUMBERS[int(_pauses.LIKE_PAUSES)]} times its median",
    ),
    "TS-TEL-055": (
        f"{learning.FEWEST_UPDATES} steps and {learning.FEWEST_OF_COURSE} reports",
        f"{percent(learning.FALLEN)} below",
        f"at most {percent(learning.LOWER)} of the pairs",
    ),
    "TS-TEL-035": (f"above {pace.SLOW_FACTOR} in more than a tenth", f"above {pace.SLOW_FACTOR} times"),
    "TS-TEL-036": (percent(pace.DRIFT), "ten minutes", "half an hour"),
    "TS-TEL-037": (percent(pace.CLOCK_TOLERANCE),),
    "TS-TEL-038": (percent(consistency.TOLERANCE),),
    "TS-TEL-039": (percent(consistency.TOLERANCE),),
    "TS-TEL-040": (percent(work.POWER_TOLERANCE), "10 W to 50 kW", f"over {work.LEAST_ENERGY_SECONDS} s or"),
    "TS-TEL-041": (percent(work.BUSY_SHARE), percent(work.WORK_SHARE), "five minutes"),
    "TS-TEL-049": (percent(accounts.GOODPUT_TOLERANCE),),
    "TS-TEL-050": (f"{clocks.LARGEST_OFFSET_SECONDS} s",),
    "TS-TEL-082": (percent(profile.PEAK_TOLERANCE),),
    "TS-TEL-084": (f"{1000 * profile.LARGEST_LATENCY_SECONDS:g} ms",),
}


@cache
def stated() -> dict[str, dict[str, object]]:
    return {str(entry["id"]): entry for entry in requirements(SPEC)}


@every("identifier", STATED)
def test_a_limit_is_the_constant_of_its_check(identifier: str) -> None:
    text = "{statement} {details}".format(**stated()[identifier])
    assert [part for part in STATED[identifier] if part not in text] == []


def test_what_is_written_in_words_is_what_checks_hold() -> None:
    assert progress.LEAST_STALL_SECONDS == 60
    assert (pace.WINDOW_SECONDS, pace.DRIFT_SECONDS, pace.SLOW_SHARE) == (600, 1800, 0.1)
    assert (work.WORK_SECONDS, work.DEVICE_WATTS) == (300, (10, 50_000))
    assert progress.SPREAD_STEPS == 1


@every("identifier", MINE)
def test_a_check_has_the_name_of_its_requirement(identifier: str) -> None:
    assert all_checks()[identifier].name == stated()[identifier]["name"]


def test_values_that_are_watched_for_standing_still_are_metrics() -> None:
    assert set(metrics()) >= frozen.MOVING
