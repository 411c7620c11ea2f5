"""Compares two reports: what changed between them, and whether it got worse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from trainspec_conformance.reading import read, report_below, with_present_names
from trainspec_conformance.reporting import LEVELS
from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport
from trainspec_validate.model.units import counted
from trainspec_validate.system.neutral import printable

NOTICEABLE = 1.25
"""Factor from which on a time counts as slower or faster; a machine alone makes smaller differences."""
MIN_SECONDS = 0.5
"""Difference of times below which nothing is said of them."""
_RANKS = {"pass": 3, "fail": 0, "error": 0, "unsupported": 1, "not-run": 1}


class Change(msgspec.Struct, frozen=True):
    """One difference."""

    kind: str
    """level, verdict, check, seconds, version, claim, scenarios, specification, modification or machine."""
    subject: str
    before: str | None
    after: str | None
    is_worse: bool = False


def read_report(path: Path) -> ConformanceReport:
    """The report in a directory, or in a file, with scenarios by their present names.

    Raises:
        DocumentError: it cannot be read.
    """
    return with_present_names(report_below(path) if path.is_dir() else read(path, ConformanceReport))


def changes(before: ConformanceReport, after: ConformanceReport) -> list[Change]:
    """All differences, those that are worse first."""
    found = [*_of_whole(before, after), *_of_scenarios(before, after)]
    return sorted(found, key=lambda change: not change.is_worse)


def _of_whole(before: ConformanceReport, after: ConformanceReport) -> Iterator[Change]:
    if before.level != after.level:
        ranks = [-1 if level is None else LEVELS.index(level) for level in (before.level, after.level)]
        yield Change("level", "level", before.level, after.level, ranks[1] < ranks[0])
    if before.conformant != after.conformant:
        words = ["conformant" if one.conformant else "not conformant" for one in (before, after)]
        yield Change("level", "claim", words[0], words[1], before.conformant)
    yield from _of_mapping("claim", _texts(before.claims), _texts(after.claims))
    yield from _of_mapping("version", _versions(before), _versions(after))
    if before.scenarios_sha256 != after.scenarios_sha256:
        yield Change("scenarios", "digest", before.scenarios_sha256[:12], after.scenarios_sha256[:12])
    for text in sorted({*before.stack.modifications} ^ {*after.stack.modifications}):
        is_new = text in after.stack.modifications
        yield Change("modification", text, None if is_new else "there", "there" if is_new else None, is_new)
    yield from _of_mapping("machine", _texts(before.machine), _texts(after.machine))


def _texts(record: msgspec.Struct) -> dict[str, str]:
    return {name: str(value) for name, value in msgspec.structs.asdict(record).items()}


def _versions(report: ConformanceReport) -> dict[str, str]:
    suite = {"specification": report.specification_version, "suite": report.suite_version}
    components = {one.name: one.version for one in report.stack.components if one.version}
    return {**components, **report.versions, **suite}


def _of_mapping(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Change(kind, name, before.get(name), after.get(name))


def _of_scenarios(before: ConformanceReport, after: ConformanceReport) -> Iterator[Change]:
    old, new = ({one.scenario: one for one in report.scenarios} for report in (before, after))
    for name in {**old, **new}:
        if name not in new:
            yield Change("verdict", name, old[name].verdict, None, old[name].verdict == "pass")
        elif name not in old:
            yield Change("verdict", name, None, new[name].verdict, new[name].verdict in {"fail", "error"})
        else:
            yield from _of_scenario(old[name], new[name])


def _of_scenario(old: ScenarioReport, new: ScenarioReport) -> Iterator[Change]:
    if old.verdict != new.verdict:
        is_worse = _RANKS[new.verdict] < _RANKS[old.verdict]
        yield Change("verdict", new.scenario, old.verdict, new.verdict, is_worse)
    shares = [_failed(one) for one in (old, new)]
    for check in {**shares[0], **shares[1]}:
        was, now = (found.get(check, (0, 0)) for found in shares)
        if was != now:
            is_worse = now[0] * max(was[1], 1) > was[0] * max(now[1], 1)
            subject = f"{new.scenario}: {check}"
            yield Change("check", subject, _share(was), _share(now), is_worse)
    yield from _of_figures(old, new)


def _failed(one: ScenarioReport) -> dict[str, tuple[int, int]]:
    """Trials in which a check failed, and all trials, of each check that ever failed."""
    names = {check.check: 0 for trial in one.trials for check in trial.checks}
    for trial in one.trials:
        for check in trial.checks:
            names[check.check] += not check.passed
    return {name: (count, len(one.trials)) for name, count in names.items() if count}


def _share(failed: tuple[int, int]) -> str:
    return f"failed in {failed[0]} of {counted(failed[1], 'trial')}" if failed[1] else "never failed"


def _of_figures(old: ScenarioReport, new: ScenarioReport) -> Iterator[Change]:
    was = {figure.name: figure for figure in old.figures}
    for figure in new.figures:
        before = was.get(figure.name)
        if before is None:
            continue
        for key in ("p50_seconds", "p90_seconds", "p95_seconds"):
            first, second = getattr(before, key), getattr(figure, key)
            if first is None or second is None or abs(second - first) < MIN_SECONDS:
                continue
            if max(first, second) >= NOTICEABLE * min(first, second):
                subject = f"{new.scenario}: {figure.name}, {key[:3]}"
                yield Change("seconds", subject, f"{first:.3f}", f"{second:.3f}", second > first)


def as_text(found: list[Change]) -> str:
    """A line for each change."""
    if not found:
        return "nothing changed"
    return "\n".join(
        printable(
            f"{'worse' if one.is_worse else '-':<6} {one.kind:<12} {one.subject}: "
            f"{one.before or 'none'} -> {one.after or 'none'}"
        )
        for one in found
    )


def as_json(found: list[Change]) -> str:
    """All changes, for programs."""
    worse = sum(one.is_worse for one in found)
    return json.dumps({"num_worse": worse, "changes": msgspec.to_builtins(found)}, indent=2)
