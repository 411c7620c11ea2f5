"""Runs the rules of users on the records of runs, and makes findings of the rows they return."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainspec_validate.checking.registry import NotApplicable
from trainspec_validate.model.finding import CheckResult, Evidence, Finding, Outcome, Verdict, verdict_of
from trainspec_validate.model.requirements import Index
from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.judge import Places
from trainspec_validate.telemetry.user_rules.engines import opened
from trainspec_validate.telemetry.user_rules.messages import fields, filled, shown
from trainspec_validate.telemetry.user_rules.model import Rule, RuleError, RuleSet, Tables
from trainspec_validate.telemetry.user_rules.python_rules import foreign_code, in_words, line_in
from trainspec_validate.telemetry.user_rules.tables import COLUMNS, location_of, write_tables
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location

Row = Mapping[str, Any]
_FIRST = ("run", "first_time_us", "time_us", "location")
"""Columns by which rows are put in order, before all others."""
_TOLD = {"value", "not_finite", "minimum", "maximum", "mean"}
_STANDARD = {name for table in COLUMNS.values() for name in table if name not in _TOLD} | {"num_rows"}
"""Columns that a finding tells in other words, or not at all."""
_MAX_VALUES = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows that break a rule."""

    rows: Sequence[Row]
    """The first ones, in order."""
    total: int


def judge_rules(files: Sequence[RunFile], rules: RuleSet, wanted: Sequence[Rule], index: Index) -> CheckResult:
    """Run rules on the streams of all runs; a rule that cannot be run is a failure, with file and line.

    Raises:
        SourceError: the engine or Arrow is not installed.
    """
    if not files:
        reason = "no stream that it could be judged on"
        return CheckResult(outcomes=tuple(Outcome(rule.id, Verdict.NOT_APPLICABLE, reason=reason) for rule in wanted))
    result, answers = CheckResult(), list[tuple[Rule, Answer]]()
    with tempfile.TemporaryDirectory(prefix="trainspec-rules-") as directory:
        written = write_tables(files, Path(directory))
        with opened(written, rules.engine) as tables:
            for rule in wanted:
                answer, outcome = _run(rule, tables)
                failures = (outcome.reason,) if outcome.verdict is Verdict.NOT_RUN else ()
                result += CheckResult(outcomes=(outcome,), failures=failures)
                answers.append((rule, answer))
    return result + CheckResult(tuple(_findings(answers, index, Places(files, _home(files)))))


def _run(rule: Rule, tables: Tables) -> tuple[Answer, Outcome]:
    """The rows that break a rule, and the verdict."""
    try:
        answer = rows_of(rule, tables)
    except NotApplicable as reason:
        return Answer((), 0), Outcome(rule.id, Verdict.NOT_APPLICABLE, reason=str(reason))
    except RuleError as error:
        return Answer((), 0), Outcome(rule.id, Verdict.NOT_RUN, reason=str(error))
    return answer, Outcome(rule.id, verdict_of(rule.requirement.severity, answer.total), answer.total)


def rows_of(rule: Rule, tables: Tables) -> Answer:
    """The rows that break a rule: the first ones in an order that no engine changes, and how many there are.

    Raises:
        NotApplicable: the runs have nothing that the rule is about.
        RuleError: the rule cannot be run, or returns something else.
    """
    with foreign_code(lambda error: rule.error(in_words(error), line_in(error, rule.path))):
        frame = rule.query(tables)
        names = _names(rule, frame)
        order = [name for name in _FIRST if name in names]
        order += sorted(name for name in names if name not in order)
        found = frame.sort(*order).head(rule.limit + 1).collect("pyarrow").to_native().to_pylist()
        total = len(found)
        if total > rule.limit:
            import narwhals as nw  # noqa: PLC0415

            total = int(frame.select(nw.len().alias("num")).collect("pyarrow").item(0, "num"))
    return Answer(found[: rule.limit], total)


def _names(rule: Rule, frame: Any) -> list[str]:
    """Columns of what a rule returned."""
    import narwhals as nw  # noqa: PLC0415

    if not isinstance(frame, nw.LazyFrame):
        raise rule.error(f"the rule returned {type(frame).__name__}; return a lazy table of the rows that are wrong")
    names: list[str] = frame.collect_schema().names()
    for name in fields(rule.message):
        if name not in names:
            raise rule.error(f"the message shows {{{name}}}, which is no column of what the rule returned")
    return names


def _home(files: Sequence[RunFile]) -> Location:
    """Where rows without a place are reported: the first head."""
    return Location(next((file.number for file in files if file.head is not None), files[0].number), 0)


def _findings(answers: Sequence[tuple[Rule, Answer]], index: Index, places: Places) -> Iterator[Finding]:
    for _, answer in answers:
        for row in answer.rows:
            places.want(_place(row))
    places.look_up()
    for rule, answer in answers:
        for number, row in enumerate(answer.rows, 1):
            more = answer.total - number if number == len(answer.rows) else 0
            yield _finding(rule, row, index, places, more)


def _place(row: Row) -> Location:
    number = row.get("location")
    return location_of(number) if isinstance(number, int) and number >= 0 else NOWHERE


def _finding(rule: Rule, row: Row, index: Index, places: Places, more: int) -> Finding:
    evidence = _evidence(row)
    path, span, text = places.at(_place(row), evidence.series)
    told = f"; {more:,} more rows break this rule, and are not listed" if more else ""
    message = filled(rule.message, row) + told
    finding = index.finding(rule.requirement, message, rule.help, path, span=span, evidence=evidence, source_line=text)
    return replace(finding, url=rule.url)


def _evidence(row: Row) -> Evidence:
    """What a row says of the series, the subject, the times and the values."""
    names = {"rank": "rank ", "host": "host ", "device": "device "}
    subjects = ", ".join(f"{word}{row[name]}" for name, word in names.items() if row.get(name) is not None)
    first = row.get("first_time_us", row.get("time_us"))
    values = [(name, value) for name, value in row.items() if name not in _STANDARD and value is not None]
    count = row.get("num_rows")
    return Evidence(
        series=str(row.get("series") or row.get("metric") or ""),
        subjects=subjects,
        first_time_us=first,
        last_time_us=row.get("last_time_us", first),
        count=count if isinstance(count, int) and count > 0 else 1,
        samples=tuple(f"{name} {shown(value)}" for name, value in values[:_MAX_VALUES]),
    )
