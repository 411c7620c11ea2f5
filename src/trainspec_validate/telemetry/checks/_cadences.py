"""Gives checks the expected intervals of the series of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.model.metrics import Metric, by_name, catalog
from trainspec_validate.telemetry.view.run_view import RunView


def cadence_class(metric: Metric | None) -> str | None:
    """The class that sets the seconds between two values of a metric; None where steps or changes set them."""
    names = metric.cadences if metric else ()
    return next((name for name in names if catalog().cadences[name].seconds is not None), None)


class Cadences:
    """Seconds between two values, by emitter, attempt and metric."""

    def __init__(self, run: RunView) -> None:
        self._heads = {(head.record.emitter, head.record.att): head.record for head in reversed(run.heads)}

    def seconds(self, metric: Metric | None, emitter: str, attempt: int) -> float | None:
        """Longest time between two values of a metric; None where steps or changes set it."""
        name = cadence_class(metric)
        return None if name is None else self._of_class(self._heads.get((emitter, attempt)), name)

    def _of_class(self, head: Head | None, name: str) -> float:
        said = head.cadence_seconds.get(name) if head else None  # type: ignore[call-overload]
        return float(catalog().cadences[name].seconds or 0 if said is None else said)

    def of_rows(self, run: RunView, indices: Any) -> Any:
        """Microseconds between two values for each of some rows of the table of series; 0 where none is set."""
        table = run.series
        names = [*dict.fromkeys(filter(None, (cadence_class(by_name(key.metric)) for key in table.keys)))]
        kinds = [cadence_class(by_name(key.metric)) for key in table.keys]
        columns = np.array([len(names) if kind is None else names.index(kind) for kind in kinds], dtype=np.int64)
        writers = table.rows["attempt"][indices].astype(np.int64) * len(table.emitters) + table.rows["emitter"][indices]
        distinct, which = np.unique(writers, return_inverse=True)
        found = np.zeros((len(distinct), len(names) + 1))
        for row, code in enumerate(distinct.tolist()):
            attempt, emitter = divmod(code, len(table.emitters))
            head = self._heads.get((table.emitters[emitter], attempt))
            found[row, : len(names)] = [self._of_class(head, name) * 1e6 for name in names]
        return found[which.reshape(-1), columns[table.rows["key"][indices]]] if len(distinct) else np.zeros(0)
