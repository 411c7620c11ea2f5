"""Turns an expression written as data into one that an engine can run; no text is ever executed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import hint

if TYPE_CHECKING:
    import narwhals as nw

MAX_DEPTH = 30
MAX_WINDOW = 100_000
"""Rows that a rolling value may look back over."""
TEXT, NUMBER, TRUTH = "text", "number", "truth"


class ExpressionError(Exception):
    """An expression cannot be used; `pointer` is the place in the file."""

    def __init__(self, pointer: Pointer, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression that an engine can run, and what its values are."""

    kind: str
    build: Callable[[], nw.Expr]


Operation: TypeAlias = "Callable[[Any, Scope, Pointer], Typed]"


@dataclass(frozen=True, slots=True)
class Scope:
    """Names and operations that an expression may use at its place."""

    columns: Mapping[str, str]
    """Kind of each column: `text`, `number` or `truth`."""
    operators: Mapping[str, Operation]
    """Result of each operator on its argument, by name."""
    windows: bool = False
    """Whether it may look at other rows of its series."""
    aggregates: bool = False
    """Whether it may put the rows of a group into one value."""
    over: tuple[str, ...] = ()
    """Columns that make a series, where the expression does not say so."""
    order: tuple[str, ...] = ()
    """Order of the rows in a series."""
    depth: int = 0

    def inside(self, *, plain: bool = False) -> Scope:
        """The scope of an argument; a `plain` one is of the own row alone."""
        if plain:
            return replace(self, windows=False, aggregates=False, depth=self.depth + 1)
        return replace(self, depth=self.depth + 1)


def column(name: str) -> Callable[[], nw.Expr]:
    """The column of that name."""

    def build() -> nw.Expr:
        import narwhals as nw  # noqa: PLC0415 - an extra

        return nw.col(name)

    return build


def constant(value: Any) -> Callable[[], nw.Expr]:
    """The same value in every row."""

    def build() -> nw.Expr:
        import narwhals as nw  # noqa: PLC0415

        return nw.lit(value)

    return build


def compiled(data: Any, scope: Scope, pointer: Pointer) -> Typed:
    """The expression that the data represent.

    Raises:
        ExpressionError: a column or an operator is unknown, or a value is of the wrong kind.
    """
    if scope.depth > MAX_DEPTH:
        raise ExpressionError(pointer, f"the expression is nested more than {MAX_DEPTH} deep; compute parts in columns")
    if isinstance(data, bool):
        return Typed(TRUTH, constant(data))
    if isinstance(data, int | float):
        if not math.isfinite(data) or abs(data) >= 2**63:
            raise ExpressionError(pointer, "a number is finite and below 2^63")
        return Typed(NUMBER, constant(data))
    if isinstance(data, str):
        return _column(data, scope, pointer)
    if not isinstance(data, dict) or len(data) != 1:
        raise ExpressionError(pointer, "an expression is a column, a number, or one operator such as `less: [a, b]`")
    (operator, argument) = next(iter(data.items()))
    return _operation(str(operator), argument, scope, (*pointer, operator))


def of_kind(data: Any, kind: str, scope: Scope, pointer: Pointer) -> Typed:
    """An expression whose values are of this kind.

    Raises:
        ExpressionError: they are of another, or it cannot be used.
    """
    found = compiled(data, scope, pointer)
    if found.kind != kind:
        wanted = {TEXT: "a text", NUMBER: "a number", TRUTH: "a condition, true or false"}[kind]
        raise ExpressionError(pointer, f"this is a {found.kind}, and {wanted} is wanted here")
    return found


def _column(name: str, scope: Scope, pointer: Pointer) -> Typed:
    if name not in scope.columns:
        help_text = hint(name, scope.columns) or f"a text is written {{text: {name}}}"
        raise ExpressionError(pointer, f"unknown column {name!r}; {help_text}")
    if scope.aggregates:
        raise ExpressionError(pointer, f"a group has many values of {name}; take one, such as {{maximum: {name}}}")
    return Typed(scope.columns[name], column(name))


def _operation(operator: str, argument: Any, scope: Scope, pointer: Pointer) -> Typed:
    if operator == "text":
        if not isinstance(argument, str):
            raise ExpressionError(pointer, "text holds a text, such as {text: train.step.duration}")
        return Typed(TEXT, constant(argument))
    if operator in scope.operators:
        return scope.operators[operator](argument, scope, pointer)
    known = ("text", *scope.operators)
    raise ExpressionError(
        pointer, f"unknown operator {operator!r}; {hint(operator, known) or 'one of ' + ', '.join(known)}"
    )


def arguments(data: Any, pointer: Pointer, least: int = 2, most: int | None = 2) -> Sequence[Any]:
    """The list of arguments of an operator.

    Raises:
        ExpressionError: it is no list, or has another length.
    """
    if not isinstance(data, list) or len(data) < least or (most is not None and len(data) > most):
        wanted = f"{least}" if least == most else f"{least} or more"
        raise ExpressionError(pointer, f"the operator takes a list of {wanted} expressions")
    return data
