"""Defines the operators over several rows: of a group, of a series, or up to the current row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainspec_validate.model.finding import Pointer
from trainspec_validate.telemetry.user_rules.expressions import (
    MAX_WINDOW,
    NUMBER,
    TRUTH,
    ExpressionError,
    Scope,
    Typed,
    compiled,
)

if TYPE_CHECKING:
    import narwhals as nw


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator over rows."""

    apply: Callable[[Any, Any], Any]
    """Takes the expression and the option."""
    option: str = ""
    """Name of the option."""
    default: float | None = None
    low: float = 0
    high: float = 1
    whole: bool = True
    ordered: bool = False
    """Whether it looks at rows in their order."""
    same_kind: bool = False
    """Whether it takes every kind of value, and gives one of the same kind."""
    any_kind: bool = False
    """Whether it takes every kind of value, and gives a number."""


def _rows() -> nw.Expr:
    """Number of rows, whatever they hold."""
    import narwhals as nw  # noqa: PLC0415

    return nw.len()


def _rolling(name: str) -> _Operator:
    def apply(value: nw.Expr, window: int) -> Any:
        least = 2 if name == "rolling_std" else 1
        return getattr(value, name)(window, min_samples=least)

    return _Operator(apply, "window", None, 2, MAX_WINDOW, ordered=True)


OPERATORS: Mapping[str, _Operator] = {
    "count": _Operator(lambda value, _: value, any_kind=True),
    "distinct": _Operator(lambda value, _: value.n_unique(), any_kind=True),
    "minimum": _Operator(lambda value, _: value.min(), same_kind=True),
    "maximum": _Operator(lambda value, _: value.max(), same_kind=True),
    "mean": _Operator(lambda value, _: value.mean()),
    "sum": _Operator(lambda value, _: value.sum()),
    "std": _Operator(lambda value, _: value.std()),
    "median": _Operator(lambda value, _: value.median()),
    "quantile": _Operator(
        lambda value, at: value.quantile(at, interpolation="linear"), "at", None, 0.0, 1.0, whole=False
    ),
    "lag": _Operator(lambda value, by: value.shift(by), "by", 1, 1, MAX_WINDOW, ordered=True, same_kind=True),
    "difference": _Operator(lambda value, _: value.diff(), ordered=True),
    "running_maximum": _Operator(lambda value, _: value.cum_max(), ordered=True),
    "running_minimum": _Operator(lambda value, _: value.cum_min(), ordered=True),
    "running_sum": _Operator(lambda value, _: value.cum_sum(), ordered=True),
    "rolling_mean": _rolling("rolling_mean"),
    "rolling_sum": _rolling("rolling_sum"),
    "rolling_std": _rolling("rolling_std"),
}
"""Result of each operator on its argument."""


def operation(name: str, data: Any, scope: Scope, pointer: Pointer) -> Typed:
    """One operator over rows: in a group without `over`, else in a series.

    Raises:
        ExpressionError: it is not allowed at this place, or its options are wrong.
    """
    rule = OPERATORS[name]
    subject, options = _parts(name, rule, data, pointer)
    if not (scope.windows or scope.aggregates) or (rule.ordered and not scope.windows):
        raise ExpressionError(pointer, f"{name} looks at other rows: give it a name in `columns` or `aggregate` first")
    part = _subject(name, rule, subject, scope, (*pointer, "of") if options else pointer)
    value = _option(name, rule, options, pointer)
    if not scope.windows:
        return Typed(part.kind if rule.same_kind else NUMBER, lambda: rule.apply(part.build(), value))
    over = _names("over", options.get("over", list(scope.over)), scope, (*pointer, "over"))
    order = scope.order if rule.ordered else None

    def build() -> nw.Expr:
        found: nw.Expr = rule.apply(part.build(), value).over(*over, order_by=order)
        return found

    return Typed(part.kind if rule.same_kind else NUMBER, build)


def _parts(name: str, rule: _Operator, data: Any, pointer: Pointer) -> tuple[Any, Mapping[str, Any]]:
    """What the operator works on, and its options."""
    if not isinstance(data, dict) or "of" not in data:
        return data, {}
    known = {"of", "over", *([rule.option] if rule.option else [])}
    for key in data:
        if key not in known:
            raise ExpressionError((*pointer, key), f"{name} has no option {key!r}; it has {', '.join(sorted(known))}")
    return data["of"], data


def _subject(name: str, rule: _Operator, data: Any, scope: Scope, pointer: Pointer) -> Typed:
    if data is True and name == "count":
        return Typed(TRUTH, _rows)
    part = compiled(data, scope.inside(plain=True), pointer)
    if name == "count":
        return Typed(NUMBER, lambda: part.build().count())
    if part.kind != NUMBER and not (rule.any_kind or (rule.same_kind and part.kind != TRUTH)):
        raise ExpressionError(pointer, f"{name} takes a number, and this is a {part.kind}")
    return part


def _option(name: str, rule: _Operator, options: Mapping[str, Any], pointer: Pointer) -> Any:
    if not rule.option:
        return None
    value = options.get(rule.option, rule.default)
    kinds = int if rule.whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not rule.low <= value <= rule.high:
        what = "a whole number" if rule.whole else "a number"
        example = f"{{of: value, {rule.option}: {rule.high if not rule.whole else 10}}}"
        raise ExpressionError(
            pointer, f"{rule.option} of {name} is {what} from {rule.low:g} to {rule.high:g}, as in {name}: {example}"
        )
    return value


def _names(name: str, data: Any, scope: Scope, pointer: Pointer) -> tuple[str, ...]:
    if not isinstance(data, list) or not data:
        raise ExpressionError(pointer, f"{name} is a list of columns, such as [run, rank]")
    for number, each in enumerate(data):
        if not isinstance(each, str) or each not in scope.columns:
            raise ExpressionError((*pointer, number), f"{name} names {each!r}, which is no column here")
    return tuple(data)
