"""Names places in files, subjects and series."""

from __future__ import annotations

from typing import NamedTuple


class Location(NamedTuple):
    """Where a record starts: number of the file in the run, and bytes from its start (row number in Parquet)."""

    file: int
    offset: int


NOWHERE = Location(-1, -1)
"""Of a finding about what is not there."""


class Subject(NamedTuple):
    """Subject of a value; None for what the record does not name."""

    rank: int | None
    host: str | None
    device: str | None


class Key(NamedTuple):
    """A metric with its series attributes, as `name{key=value}` names it."""

    metric: str
    attributes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inner = ",".join(f"{name}={value}" for name, value in self.attributes)
        return f"{self.metric}{{{inner}}}" if inner else self.metric

    def attribute(self, name: str) -> str | None:
        """Value of a series attribute; None where the series does not have it."""
        return next((value for key, value in self.attributes if key == name), None)
