"""Defines the operators on the values of one row."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainspec_validate.model.finding import Pointer
from trainspec_validate.telemetry.user_rules.expressions import (
    NUMBER,
    TEXT,
    TRUTH,
    ExpressionError,
    Operation,
    Scope,
    Typed,
    arguments,
    compiled,
    of_kind,
)

if TYPE_CHECKING:
    import narwhals as nw


def _folded(kind: str, join: Callable[[Any, Any], Any], result: str, most: int | None = None) -> Operation:
    """An operator between neighbours of a list, from left to right."""

    def operation(data: Any, scope: Scope, pointer: Pointer) -> Typed:
        parts = [
            of_kind(each, kind, scope.inside(), (*pointer, number))
            for number, each in enumerate(arguments(data, pointer, 2, most))
        ]
        return Typed(result, lambda: _joined(join, [part.build() for part in parts]))

    return operation


def _joined(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    """All parts in one, in their order; neighbours first, so that many parts make no deep expression."""
    while len(parts) > 1:
        parts = [join(*parts[n : n + 2]) if n + 1 < len(parts) else parts[n] for n in range(0, len(parts), 2)]
    return parts[0]


def _quotient(above: nw.Expr, below: nw.Expr) -> nw.Expr:
    """Absent where the divisor is 0: engines differ in what they make of it."""
    import narwhals as nw  # noqa: PLC0415

    return nw.when(below != 0).then(above / below)


def _same(join: Callable[[Any, Any], Any]) -> Operation:
    """A comparison of two values of the same kind."""

    def operation(data: Any, scope: Scope, pointer: Pointer) -> Typed:
        left, right = arguments(data, pointer)
        first = compiled(left, scope.inside(), (*pointer, 0))
        second = of_kind(right, first.kind, scope.inside(), (*pointer, 1))
        return Typed(TRUTH, lambda: join(first.build(), second.build()))

    return operation


def _of_one(kind: str, change: Callable[[nw.Expr], nw.Expr], result: str) -> Operation:
    def operation(data: Any, scope: Scope, pointer: Pointer) -> Typed:
        part = of_kind(data, kind, scope.inside(), pointer)
        return Typed(result, lambda: change(part.build()))

    return operation


def _is_absent(data: Any, scope: Scope, pointer: Pointer) -> Typed:
    part = compiled(data, scope.inside(), pointer)
    return Typed(TRUTH, lambda: part.build().is_null())


def _one_of(data: Any, scope: Scope, pointer: Pointer) -> Typed:
    subject, choices = arguments(data, pointer)
    part = compiled(subject, scope.inside(), (*pointer, 0))
    kinds: tuple[type, ...] = (str,) if part.kind == TEXT else (int, float)
    if (
        part.kind == TRUTH
        or not isinstance(choices, list)
        or not choices
        or not all(isinstance(each, kinds) and not isinstance(each, bool) for each in choices)
    ):
        raise ExpressionError((*pointer, 1), f"one_of takes an expression and a list of {part.kind}s")
    return Typed(TRUTH, lambda: part.build().is_in(choices))


def _on_text(find: Callable[[nw.Expr, str], nw.Expr]) -> Operation:
    """A question on a text and a fixed part of it."""

    def operation(data: Any, scope: Scope, pointer: Pointer) -> Typed:
        subject, wanted = arguments(data, pointer)
        part = of_kind(subject, TEXT, scope.inside(), (*pointer, 0))
        if not isinstance(wanted, str) or not wanted:
            raise ExpressionError((*pointer, 1), "the second argument is the text to look for, as it is")
        return Typed(TRUTH, lambda: find(part.build(), wanted))

    return operation


OPERATORS: Mapping[str, Operation] = {
    "equal": _same(python.eq),
    "not_equal": _same(python.ne),
    "less": _folded(NUMBER, python.lt, TRUTH, 2),
    "at_most": _folded(NUMBER, python.le, TRUTH, 2),
    "greater": _folded(NUMBER, python.gt, TRUTH, 2),
    "at_least": _folded(NUMBER, python.ge, TRUTH, 2),
    "all": _folded(TRUTH, python.and_, TRUTH),
    "any": _folded(TRUTH, python.or_, TRUTH),
    "not": _of_one(TRUTH, python.invert, TRUTH),
    "add": _folded(NUMBER, python.add, NUMBER),
    "subtract": _folded(NUMBER, python.sub, NUMBER, 2),
    "multiply": _folded(NUMBER, python.mul, NUMBER),
    "divide": _folded(NUMBER, _quotient, NUMBER, 2),
    "absolute": _of_one(NUMBER, lambda value: value.abs(), NUMBER),
    "is_absent": _is_absent,
    "one_of": _one_of,
    "starts_with": _on_text(lambda text, part: text.str.starts_with(part)),
    "contains": _on_text(lambda text, part: text.str.contains(part, literal=True)),
}
"""Result of each operator on its arguments."""
