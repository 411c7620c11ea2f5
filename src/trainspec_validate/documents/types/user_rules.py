"""Declares the file of rules that users write: which rows of a run's records are wrong, as data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from trainspec_validate.documents.types.base import Record, Text

RuleId = Annotated[str, Meta(max_length=64, pattern=r"^(?!TS-)[A-Z][A-Z0-9]*(-[A-Z0-9]+)*-[0-9]{3,6}$")]
RuleName = Annotated[str, Meta(max_length=64, pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]
ColumnName = Annotated[str, Meta(max_length=64, pattern=r"^[a-z][a-z0-9_]*$")]
Expression = bool | int | float | Annotated[str, Meta(min_length=1, max_length=256)] | dict[str, Any]
"""Name of a column, a number, a truth value, or one operator with what it works on."""
RuleLevel = Literal["MUST", "SHOULD", "MAY"]
TableName = Literal["samples", "events", "series"]
RowLimit = Annotated[int, Meta(ge=1, le=1_000)]
DEFAULT_LIMIT = 20


class UserRule(Record, frozen=True, kw_only=True):
    """One rule: rows of a table that are wrong, and what to say of each."""

    id: RuleId
    """Id of the rule, in capitals, with a number at its end; those that begin with TS- belong to the specification."""
    name: RuleName | None = None
    """Readable name; without it the id in lower case."""
    title: Annotated[str, Meta(min_length=1, max_length=200)]
    """Condition that must hold, in a few words."""
    level: RuleLevel
    """MUST makes a finding an error, SHOULD a warning, MAY a note."""
    message: Text
    """Message on a row; `{column}` is replaced by a value, `{column:.2f}` by one with two decimals."""
    help: Text | None = None
    """Remedy, in a few words."""
    url: Annotated[str, Meta(min_length=1, max_length=2048, pattern=r"^https?://")] | None = None
    """Page that explains the rule."""
    table: TableName
    """Table that it looks at."""
    select: Expression
    """Rows that the rule is about; where there are none, it is not applicable."""
    columns: dict[ColumnName, Expression] = field(default_factory=dict)
    """New columns, computed one after another."""
    group_by: tuple[ColumnName, ...] = ()
    """Columns whose values make a group; each group becomes one row."""
    aggregate: dict[ColumnName, Expression] = field(default_factory=dict)
    """Columns of the groups."""
    derive: dict[ColumnName, Expression] = field(default_factory=dict)
    """New columns of the groups, computed one after another."""
    report: Expression
    """Rows, or groups, that are wrong."""
    limit: RowLimit = DEFAULT_LIMIT
    """Rows that are reported one by one; the others are counted."""


class UserRules(Record, frozen=True, kw_only=True, tag_field="kind", tag="UserRules"):
    """Rules of an organisation on the records of a run, in addition to those of the specification."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    rules: Annotated[tuple[UserRule, ...], Meta(min_length=1, max_length=1_000)]
    """Every rule."""
