"""The limits that the pages on streams state are the constants of the reader and of the checks."""

from __future__ import annotations

import pytest

from trainspec_validate.model.requirements import load_index
from trainspec_validate.telemetry.checks import all_checks, owed, scale, times, transport
from trainspec_validate.telemetry.decode import names as reading
from trainspec_validate.telemetry.formats.native import MAX_LINE_BYTES
from trainspec_validate.telemetry.kernels import fold

DAY_US = 86_400_000_000
MINE = [f"TS-TEL-{number:03}" for number in (*range(1, 20), 51, 52, 53, *range(70, 74))]
STATED = {
    "TS-TEL-001": (f"{MAX_LINE_BYTES:,} bytes",),
    "TS-TEL-003": ("of a minute or more",),
    "TS-TEL-013": (
        f"below {scale.MOST_FRACTION:g}",
        f"memory from {scale.MIB / 2**20:g} MiB",
        f"up to {scale.MOST_WATTS / 1e3:g} kW",
        f"from {scale.LEAST_HERTZ / 1e6:g} MHz",
    ),
    "TS-TEL-016": (
        "at most a day before",
        f"{reading._LONGEST_RUN_US / DAY_US:g} days after",
        f"{times.TOLERANCE_US / 60e6:g} minutes ahead",
    ),
    "TS-TEL-051": (f"{100 * transport.LAG_SHARE:g} of 100", f"at most {transport.LONGEST_LAG_SECONDS:g} s after"),
    "TS-TEL-053": (f"at most {transport.ROOM:g} times",),
    "TS-TEL-071": (", ".join(f"`{scope}`" for scope in owed.SCOPES[:-1]) + f" and `{owed.SCOPES[-1]}`",),
    "TS-TEL-073": (f"1 of {1 / transport.LARGEST_LOSS:,.0f} records",),
}


@pytest.mark.parametrize("identifier", STATED)
def test_a_limit_is_the_constant_of_its_check(identifier: str) -> None:
    entry = load_index().by_id[identifier]
    text = " ".join(f"{entry.statement} {entry.details}".split())
    assert [part for part in STATED[identifier] if part not in text] == []


def test_what_is_written_as_a_day_and_a_minute_is_one() -> None:
    assert reading._DAY_US == DAY_US
    assert owed.SHORT_SECONDS == 60
    assert f"count for {transport.FREE_VALUES} values" in load_index().by_id["TS-TEL-053"].why


def test_only_guesses_counted_losses_and_metrics_of_the_full_profile_are_warnings() -> None:
    warnings = {i for i in MINE if load_index().by_id[i].severity.value == "warning"}
    assert warnings == {f"TS-TEL-{number}" for number in ("006", "013", "051", "052", "070", "071", "072", "073")}
    assert {i for i in MINE if load_index().by_id[i].profile == "full"} == {"TS-TEL-070"}


def test_every_number_has_its_check() -> None:
    assert set(MINE) <= set(all_checks())
    assert [i for i in MINE if all_checks()[i].documents] == []


def test_a_fraction_has_the_size_that_the_fold_counts_by() -> None:
    assert scale.MOST_FRACTION == fold.ABOVE
