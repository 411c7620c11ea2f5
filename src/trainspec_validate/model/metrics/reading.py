"""Turns the table of metrics and events into entries, and finds an entry by a name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainspec_validate.model.metrics.entries import (
    Alias,
    Attribute,
    Cadence,
    Ecosystem,
    Event,
    Metric,
    Owed,
    Unit,
    Word,
)

_DATA = Path(__file__).resolve().parents[2] / "data" / "metrics.json"


@dataclass(frozen=True, slots=True)
class MetricCatalog:
    """All entries, each kind by name and in the order of the table."""

    units: Mapping[str, Unit]
    cadences: Mapping[str, Cadence]
    scopes: Mapping[str, Word]
    levels: Mapping[str, Word]
    quantities: Mapping[str, Word]
    owed: tuple[Owed, ...]
    ecosystems: Mapping[str, Ecosystem]
    attributes: Mapping[str, Attribute]
    metrics: Mapping[str, Metric]
    events: Mapping[str, Event]


def parse(table: Mapping[str, Any]) -> MetricCatalog:
    """The entries of a table in plain values.

    Raises:
        KeyError: an alias has a unit that the table does not explain.
        TypeError: an entry has a key that it cannot have, or lacks one.
    """
    units = {row["unit"]: Unit(**row) for row in table["units"]}
    return MetricCatalog(
        units=units,
        cadences={row["name"]: Cadence(**row) for row in table["cadences"]},
        scopes=_words(table["scopes"]),
        levels=_words(table["levels"]),
        quantities=_words(table["quantities"]),
        owed=tuple(Owed(**_tuples(row)) for row in table["owed"]),
        ecosystems={row["name"]: Ecosystem(**row) for row in table["ecosystems"]},
        attributes={row["name"]: Attribute(**_tuples(row)) for row in table["attributes"]},
        metrics={row["name"]: _metric(row, units) for row in table["metrics"]},
        events={row["name"]: Event(**_tuples(row)) for row in table["events"]},
    )


def _words(rows: Iterable[Mapping[str, Any]]) -> dict[str, Word]:
    return {row["name"]: Word(**row) for row in rows}


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _metric(row: Mapping[str, Any], units: Mapping[str, Unit]) -> Metric:
    falls = "never" if row["instrument"] == "counter" else "any"
    aliases = tuple(_alias(row["name"], alias, units) for alias in row.get("aliases", ()))
    return Metric(**{"falls": falls, **_tuples(row), "aliases": aliases})


def _alias(metric: str, row: Mapping[str, Any], units: Mapping[str, Unit]) -> Alias:
    factor = None if row["unit"] is None else float(units[row["unit"]].factor)
    return Alias(metric=metric, factor=factor, **_tuples(row))


@cache
def catalog() -> MetricCatalog:
    """The catalog of this version of the specification."""
    return parse(json.loads(_DATA.read_text(encoding="utf-8")))


def metrics() -> Mapping[str, Metric]:
    """All metrics, by name.

    >>> metrics()["hw.energy"].unit
    'J'
    """
    return catalog().metrics


def events() -> Mapping[str, Event]:
    """All events, by name.

    >>> events()["train.checkpoint.begin"].closed_by
    ('train.checkpoint.commit', 'train.checkpoint.fail')
    """
    return catalog().events


def by_name(name: str) -> Metric | None:
    """The metric with this name or synonym; None where there is none.

    >>> by_name("train.accelerator.busy").name
    'hw.gpu.utilization'
    """
    known = metrics()
    return known.get(name) or next((metric for metric in known.values() if name and metric.synonym == name), None)


def by_alias(ecosystem: str | None, name: str) -> tuple[Alias, ...]:
    """The aliases that another program writes so, of one ecosystem or, for None, of all; case does not count.

    More than one is found where a name represents several metrics or several programs share it.

    >>> [(alias.metric, alias.factor) for alias in by_alias("dcgm", "DCGM_FI_DEV_FB_USED")]
    [('hw.gpu.memory.usage', 1048576.0)]
    """
    return tuple(
        alias
        for metric in metrics().values()
        for alias in metric.aliases
        if ecosystem in {None, alias.ecosystem} and alias.is_called(name)
    )
