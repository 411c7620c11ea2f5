"""Reads the header of an exported chart of Weights & Biases: which column holds which value of which run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

PANEL = "wandb-panel"
_BETWEEN = " - "
_LEAST, _LARGEST = "__MIN", "__MAX"
_MOST_COLUMNS = 10_000


@dataclass(frozen=True, slots=True)
class Column:
    """A value of a run, with its least and its largest in the range that a row is the mean of."""

    run: str
    metric: str
    place: int
    least: int
    largest: int


def columns_of(cells: Sequence[str]) -> list[Column]:
    """The values that a header announces.

    >>> columns_of(["Step", "a - b - loss", "a - b - loss__MIN", "a - b - loss__MAX", "note"])
    [Column(run='a - b', metric='loss', place=1, least=2, largest=3)]
    """
    places = {name: place for place, name in enumerate(cells[:_MOST_COLUMNS])}
    found: list[Column] = []
    for name, place in places.items():
        run, between, metric = name.rpartition(_BETWEEN)
        if between and run and metric and name + _LEAST in places and name + _LARGEST in places:
            found.append(Column(run, metric, place, places[name + _LEAST], places[name + _LARGEST]))
    return found


def runs_of(head: bytes) -> list[str]:
    """The runs of a chart by the first bytes of its file, in the order of their columns; empty where it is none."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        return []
    return list(dict.fromkeys(column.run for column in columns_of(cells)))
