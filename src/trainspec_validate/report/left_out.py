"""Says in words what was not to be judged, by which option, and which settings file was in force."""

from __future__ import annotations

from collections.abc import Sequence

from trainspec_validate.model.finding import LeftOut, Report
from trainspec_validate.system.neutral import printable

_MAX_WORDS = 5


def sentence(entry: LeftOut) -> str:
    """How many requirements, and by what.

    >>> sentence(LeftOut("ignore", ("TS-PAR",), "trainspec.toml", ("TS-PAR-001", "TS-PAR-002")))
    '2 requirements left out by ignore TS-PAR in trainspec.toml'
    >>> sentence(LeftOut("profile", ("core",), "", ("TS-PAR-031",)))
    '1 requirement left out by --profile core'
    """
    number = len(entry.requirements)
    words = ", ".join(entry.words[:_MAX_WORDS])
    more = f" and {len(entry.words) - _MAX_WORDS} more" if len(entry.words) > _MAX_WORDS else ""
    by = f"{entry.option} {words}{more} in {entry.settings}" if entry.settings else f"--{entry.option} {words}{more}"
    return printable(f"{number} requirement{'' if number == 1 else 's'} left out by {by}")


def sentences(report: Report) -> Sequence[str]:
    """Inputs that were left out, and the settings file where nothing else names it."""
    found = [sentence(entry) for entry in report.left_out]
    found += [printable(str(entry)) for entry in report.passed_over]
    if report.never_fails:
        found.append(printable(f"nothing can fail: fail-on is never in {report.settings}"))
    elif report.settings and report.settings not in {entry.settings for entry in report.left_out}.union(
        entry.settings for entry in report.passed_over
    ):
        found.append(printable(f"settings of {report.settings}"))
    return found


def in_summary(report: Report) -> str:
    """Addition to the summary line."""
    return "".join(f"; {text}" for text in sentences(report))
