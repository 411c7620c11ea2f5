"""Finds the run that a file of another program names, before it is read: at its start, or by its place."""

from __future__ import annotations

import re
from pathlib import PurePath

from trainspec_validate.telemetry.formats.source import HEAD_BYTES

_AT_START = {
    "otlp": re.compile(
        rb'"(?:train|nemo|dl)\.run\.id"\s{0,8},\s{0,8}"value"\s{0,8}:\s{0,8}\{\s{0,8}"stringValue"\s{0,8}:\s{0,8}'
        rb'"([^"\\]{1,200})"'
    ),
    "prometheus": re.compile(rb'[{,]\s{0,64}(?:train_run_id=|"train_run_id"\s{0,8}:\s{0,8})"([^"\\]{1,200})"'),
}
_MLFLOW = "mlflow-metric"
_MLFLOW_RUN = re.compile(r"[0-9a-f]{32}")
_METRICS = "metrics"


def run_named(head: bytes, name: str, path: PurePath) -> str | None:
    """The run that a file of a format names; None where it does not, or in another way.

    >>> run_named(b'train_step_count_total{train_run_id="r-7"} 12', "prometheus", PurePath("job.prom"))
    'r-7'
    """
    if name == _MLFLOW:
        return metric_of(path)[1]
    found = _AT_START[name].search(head[:HEAD_BYTES]) if name in _AT_START else None
    return found[1].decode("utf-8", errors="replace") if found else None


def metric_of(path: PurePath) -> tuple[str, str | None]:
    """The name of a metric, which may have slashes, and the run, as the place of its file says them.

    >>> metric_of(PurePath("mlruns/0/0123456789abcdef0123456789abcdef/metrics/train/loss"))
    ('train/loss', '0123456789abcdef0123456789abcdef')
    >>> metric_of(PurePath("loss"))
    ('loss', None)
    """
    parts = path.parts
    places = [place for place, part in enumerate(parts[:-1]) if part == _METRICS]
    if not places:
        return path.name, None
    run = parts[places[0] - 1] if places[0] else ""
    return "/".join(parts[places[0] + 1 :]), run if _MLFLOW_RUN.fullmatch(run) else None
