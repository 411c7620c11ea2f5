"""Reads rules written in YAML: they are data, and are checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainspec_validate.checking.registry import NotApplicable
from trainspec_validate.documents.kind import KindFailure, kind_of
from trainspec_validate.documents.load import LoadError, Source, load_file
from trainspec_validate.documents.schema import failures
from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.user_rules import UserRule, UserRules
from trainspec_validate.model.finding import Pointer
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.telemetry.user_rules import operators, windows
from trainspec_validate.telemetry.user_rules.expressions import (
    NUMBER,
    TEXT,
    TRUTH,
    ExpressionError,
    Operation,
    Scope,
    Typed,
    compiled,
    of_kind,
)
from trainspec_validate.telemetry.user_rules.messages import STRAY_BRACE, fields, stray_brace
from trainspec_validate.telemetry.user_rules.model import Rule, RuleError, Tables
from trainspec_validate.telemetry.user_rules.tables import COLUMNS

if TYPE_CHECKING:
    import narwhals as nw

_KINDS = {"text": TEXT, "whole": NUMBER, "number": NUMBER, "truth": TRUTH}
_OVER = {
    "samples": ("run", "attempt", "emitter", "rank", "host", "device", "series"),
    "events": ("run", "attempt", "emitter"),
    "series": ("run",),
}
_OPERATORS: Mapping[str, Operation] = {
    **operators.OPERATORS,
    **{name: partial(windows.operation, name) for name in windows.OPERATORS},
}
_MOST_VALUES: Final = Limit("a rule of a user", 2_000, "values in its expressions")
_ORDER = ("time_us", "seq", "location")
Step = tuple[str, Typed]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The parts of a rule, ready to run."""

    rule: UserRule
    select: Typed
    columns: Sequence[Step]
    aggregate: Sequence[Step]
    derive: Sequence[Step]
    report: Typed

    def __call__(self, tables: Tables) -> nw.LazyFrame[Any]:
        """The rows that are wrong."""
        frame: nw.LazyFrame[Any] = getattr(tables, self.rule.table).filter(_condition(self.select))
        if not len(frame.select("location").head(1).collect("pyarrow")):
            raise NotApplicable(f"{self.rule.table} has no row that the rule selects")
        for name, value in self.columns:
            frame = frame.with_columns(value.build().alias(name))
        if self.rule.group_by:
            aggregates = [value.build().alias(name) for name, value in self.aggregate]
            frame = frame.group_by(*self.rule.group_by).agg(*aggregates)
        for name, value in self.derive:
            frame = frame.with_columns(value.build().alias(name))
        return frame.filter(_condition(self.report))


def _condition(value: Typed) -> nw.Expr:
    """A condition on rows, also where it is the same in all of them, which engines refuse as a filter."""
    import narwhals as nw  # noqa: PLC0415

    place = nw.col("location")
    return value.build() & (place.is_null() | ~place.is_null())


def read_yaml(path: Path) -> Iterator[Rule]:
    """The rules of a file.

    Raises:
        RuleError: it cannot be read, is no file of rules, or a rule is wrong.
    """
    name = path.as_posix()
    try:
        source = load_file(path, name)
    except LoadError as error:
        line = error.span.line if error.span else 1
        raise RuleError(name, line, "", f"{error.message}; {error.help}") from error
    _check_form(source)
    document = part(UserRules, source.data)
    for number, rule in enumerate(document.rules):
        place: Pointer = ("rules", number)
        try:
            _check_size(rule, place)
            steps = _steps(rule, place)
        except ExpressionError as error:
            raise RuleError(name, _line(source, error.pointer), rule.id, error.message) from error
        yield Rule(
            id=rule.id,
            name=rule.name or rule.id.lower(),
            title=rule.title,
            level=rule.level,
            message=rule.message,
            query=steps,
            path=name,
            line=_line(source, (*place, "id")),
            help=rule.help or "",
            url=rule.url or "",
            limit=rule.limit,
        )


def _check_form(source: Source) -> None:
    kind = kind_of(source.data)
    if isinstance(kind, KindFailure):
        raise RuleError(source.path, _line(source, kind.pointer), "", f"{kind.message}; {kind.help}")
    if kind != "UserRules":
        raise RuleError(source.path, 1, "", f"this is a {kind}; a file of rules is of kind UserRules")
    for failure in failures(kind, source.data):
        rule = _id_at(source.data, failure.pointer)
        key = next((f"{step}: " for step in reversed(failure.pointer) if isinstance(step, str)), "")
        message = key + "; ".join(filter(None, (failure.message, failure.help)))
        raise RuleError(source.path, _line(source, failure.pointer, key=failure.key), rule, message)


def _id_at(data: Mapping[str, Any], pointer: Pointer) -> str:
    """Id of the rule that a place is in."""
    if len(pointer) < 2:
        return ""
    rule = data["rules"][pointer[1]]
    return str(rule.get("id", ""))[:64] if isinstance(rule, dict) else ""


def _line(source: Source, pointer: Pointer, *, key: bool = False) -> int:
    return source.locate([(pointer, key)])[(pointer, key)].line


def _check_size(rule: UserRule, place: Pointer) -> None:
    """Refuse a rule whose expressions are too large for engines, before any of them is made.

    Raises:
        ExpressionError: it is.
    """
    num_values = Count(_MOST_VALUES)
    pending: list[Any] = [rule.select, rule.report, rule.columns, rule.aggregate, rule.derive, list(rule.group_by)]
    try:
        while pending:
            each = pending.pop()
            num_values.add()
            pending += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    except OverLimitError as error:
        raise ExpressionError((*place, "id"), f"{error}; split the rule") from error


def _steps(rule: UserRule, place: Pointer) -> _Steps:
    """The parts of a rule, each checked against the columns that there are at its place.

    Raises:
        ExpressionError: one of them is wrong.
    """
    known = {name: _KINDS[kind] for name, kind in COLUMNS[rule.table].items()}
    order = tuple(name for name in _ORDER if name in known)
    plain = Scope(known, _OPERATORS)
    select = of_kind(rule.select, TRUTH, plain, (*place, "select"))
    over = Scope(known, _OPERATORS, windows=True, over=_OVER[rule.table], order=order)
    columns = list(_computed(rule.columns, known, over, (*place, "columns")))
    if bool(rule.group_by) != bool(rule.aggregate):
        raise ExpressionError((*place, "id"), "group_by and aggregate go together: what makes a group, and its columns")
    aggregate: list[Step] = []
    if rule.group_by:
        known, aggregate = _grouped(rule, known, place)
    derive = list(_computed(rule.derive, known, Scope(known, _OPERATORS), (*place, "derive")))
    report = of_kind(rule.report, TRUTH, Scope(known, _OPERATORS), (*place, "report"))
    _check_message(rule, known, place)
    return _Steps(rule, select, columns, aggregate, derive, report)


def _computed(
    expressions: Mapping[str, Any], known: dict[str, str], scope: Scope, place: Pointer
) -> Iterator[tuple[str, Typed]]:
    """New columns, each of which the later ones may use."""
    for name, data in expressions.items():
        if name in known:
            raise ExpressionError((*place, name), f"there is a column {name} already; choose another name")
        found = compiled(data, scope, (*place, name))
        known[name] = found.kind
        yield name, found


def _grouped(rule: UserRule, known: Mapping[str, str], place: Pointer) -> tuple[dict[str, str], list[Step]]:
    """Columns of the groups; their first place, times and number of rows come of themselves."""
    for number, name in enumerate(rule.group_by):
        if name not in known:
            raise ExpressionError((*place, "group_by", number), f"group_by names {name!r}, which is no column here")
    groups = {name: known[name] for name in rule.group_by}
    scope = Scope(known, _OPERATORS, aggregates=True)
    implied = {"location": {"minimum": "location"}, "num_rows": {"count": True}}
    if "time_us" in known:
        implied |= {"first_time_us": {"minimum": "time_us"}, "last_time_us": {"maximum": "time_us"}}
    found = list(_computed(rule.aggregate, groups, scope, (*place, "aggregate")))
    wanted = {name: data for name, data in implied.items() if name not in groups}
    return groups, found + list(_computed(wanted, groups, scope, place))


def _check_message(rule: UserRule, known: Mapping[str, str], place: Pointer) -> None:
    for name in fields(rule.message):
        if name not in known:
            raise ExpressionError((*place, "message"), f"the message shows {{{name}}}, which is no column here")
    if stray_brace(rule.message):
        raise ExpressionError((*place, "message"), STRAY_BRACE)
