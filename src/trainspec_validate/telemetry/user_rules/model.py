"""Declares a user rule, whichever way it was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from trainspec_validate.documents.types.user_rules import DEFAULT_LIMIT
from trainspec_validate.model.requirements import Index, Requirement

if TYPE_CHECKING:
    import narwhals as nw

Engine = Literal["duckdb", "polars", "spark"]


class RuleError(Exception):
    """A rule cannot be used; the text names the file, the line, the rule, and what would be right."""

    def __init__(self, path: str, line: int, rule: str, message: str) -> None:
        super().__init__(f"{path}:{line}: {rule}: {message}" if rule else f"{path}:{line}: {message}")


@dataclass(frozen=True, slots=True)
class Tables:
    """The records of the runs, as lazy tables; see `spec/guide/own-rules.md` for their columns."""

    samples: nw.LazyFrame[Any]
    """One row for each value of a metric."""
    events: nw.LazyFrame[Any]
    """One row for each event."""
    series: nw.LazyFrame[Any]
    """One row for each series of values: how many, when, and between which bounds."""
    metrics: frozenset[str]
    """Metrics that occur."""
    event_names: frozenset[str]
    """Events that occur."""


Query = Callable[[Tables], "nw.LazyFrame[Any]"]
"""Gives the rows that are wrong; raises `NotApplicable` where there is nothing to judge."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a user."""

    id: str
    name: str
    title: str
    level: Literal["MUST", "SHOULD", "MAY"]
    message: str
    query: Query
    path: str = ""
    """File that it is in."""
    line: int = 1
    help: str = ""
    url: str = ""
    limit: int = DEFAULT_LIMIT

    def error(self, message: str, line: int | None = None) -> RuleError:
        """An error that names the rule and its place."""
        return RuleError(self.path, line or self.line, self.id, message)

    @property
    def requirement(self) -> Requirement:
        """The rule as the reports and the silencers know requirements."""
        return Requirement(
            id=self.id,
            name=self.name,
            title=self.title,
            level=self.level,
            check="user",
            profile="core",
            since="",
            chapter="",
            statement=self.title,
            why="",
            bad=(),
            good=(),
        )


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules that the command line names, and the engine that runs them."""

    rules: Sequence[Rule]
    engine: Engine = "duckdb"

    def known_to(self, index: Index) -> Index:
        """The index with these rules, so that they can be selected and silenced like any requirement.

        Raises:
            RuleError: two rules, or a rule and a requirement, share an id or a name.
        """
        found = dict(index.by_id)
        words = {requirement.name for requirement in index.by_id.values()} | found.keys()
        for rule in self.rules:
            for word in (rule.id, rule.name):
                if word in words:
                    raise rule.error(f"the word {word!r} is taken by another rule; choose one of your own")
            words |= {rule.id, rule.name}
            found[rule.id] = rule.requirement
        return replace(index, by_id=found)
