"""The only place that tells checks how often the series of a run are to be written."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.documents.stream import Head
from trainspec_validate.metrics import Metric, by_name, catalog
from trainspec_validate.telemetry.view import RunView


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
        said = {key: value for key, value in head.cadence_seconds.items() if key == name} if head else {}
        return float(said.get(name, catalog().cadences[name].seconds or 0))  # type: ignore[call-overload]

    def of_rows(self, run: RunView, indices: Any) -> Any:
        """Microseconds between two values for each of some rows of the table of series."""
        rows = run.series.rows[indices]
        columns = np.stack([rows["key"], rows["emitter"], rows["attempt"]], axis=1).astype(np.int64)
        distinct, which = np.unique(columns, axis=0, return_inverse=True)
        found = [
            (self.seconds(by_name(run.series.keys[key].metric), run.series.emitters[emitter], attempt) or 0) * 1e6
            for key, emitter, attempt in distinct.tolist()
        ]
        return np.array(found, dtype=np.float64)[which.reshape(-1)]
