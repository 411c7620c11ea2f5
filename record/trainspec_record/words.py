"""Sorts the values that a script logs: by optimizer step or moment, and by writer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainspec_record import progress, rank
from trainspec_record.catalog import METRICS
from trainspec_record.guard import tell_once
from trainspec_record.values import is_key, name, number, synchronised
from trainspec_record.writers import Writers


class Words:
    """Values that were logged since the step before."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._of_job: dict[str, float] = {}
        self._of_rank: dict[str, float] = {}
        self._counted: dict[str, float] = {}
        self._skipped: str | None = None

    def take(self) -> tuple[dict[str, float], dict[str, float], dict[str, float], str | None]:
        """Values of the job and of the rank, growth of counters, and why the step was skipped; then forget them."""
        taken = self._of_job, self._of_rank, self._counted, self._skipped
        self._of_job, self._of_rank, self._counted, self._skipped = {}, {}, {}, None
        return taken

    def update(self, words: Mapping[str, Any], *, synchronise: bool) -> None:
        """Values of the step that is under way."""
        for word, value in words.items():
            if value is None:
                continue
            if word == "skipped":
                self._skipped = name(value).translate(str.maketrans("{},=", "____"))
                continue
            plain = _plain(word, value, synchronise=synchronise)
            if plain is not None:
                self._sort(word, plain)

    def _sort(self, word: str, value: float) -> None:
        job = self._writers.job
        if word in progress.GAUGES:
            self._of_job[progress.GAUGES[word]] = value
        elif word in rank.GAUGES:
            self._of_rank[rank.GAUGES[word]] = value
        elif not math.isfinite(value) or value < 0:
            tell_once(f"{word} is {value}, which cannot be counted")
        elif word in progress.COUNTED:
            counter = progress.COUNTED[word]
            self._counted[counter] = self._counted.get(counter, 0) + value
        elif word in rank.COUNTED:
            self._writers.rank.count(rank.COUNTED[word], value)
        elif word == "active_ranks":
            if job:
                job.num_active = value
        else:
            tell_once(f"log knows no word {word!r}; other metrics go in by their names: log({{'train. ...': value}})")

    def moment(
        self, now_us: int, values: Mapping[str, Any], attributes: Mapping[str, Any], *, synchronise: bool
    ) -> None:
        """Values of this moment, by the keys of their series."""
        of_job: dict[str, Any] = {}
        of_rank: dict[str, Any] = {}
        for key, value in values.items():
            target = self._target(key, of_job, of_rank)
            plain = _plain(key, value, synchronise=synchronise) if target is not None else None
            if target is not None and plain is not None:
                target[key] = plain
        job, mine = self._writers.job, self._writers.rank
        if of_job and job:
            job.stream.sample(now_us, of_job, step=job.progress.step, a=dict(attributes) or None)
        if of_rank:
            mine.stream.sample(now_us, of_rank, step=mine.step, a=dict(attributes) or None)

    def _target(self, key: Any, of_job: dict[str, Any], of_rank: dict[str, Any]) -> dict[str, Any] | None:
        """Where a series is written: with the job, with the rank, or nowhere."""
        if not is_key(key):
            return None
        base = key.partition("{")[0]
        if base in self._writers.settings.extension_metrics:
            return of_rank
        metric = METRICS.get(base)
        if metric is None:
            tell_once(f"the catalog has no metric {base!r}; declare it in extension_metrics")
            return None
        scope = metric.scopes[0]
        if scope == "job":
            return of_job
        if scope == "rank" or (scope == "group" and self._writers.settings.groups):
            return of_rank
        tell_once(f"{base} is of scope {scope}, which a training script does not write")
        return None


def _plain(word: str, value: Any, *, synchronise: bool) -> float | None:
    plain = float(value) if isinstance(value, bool) else number(synchronised(value) if synchronise else value)
    if plain is None:
        tell_once(f"{word} is a {type(value).__name__} and no number; reading it may wait for a device: {HELP}")
    return plain


HELP = "log a number, or log(..., synchronise=True)"
