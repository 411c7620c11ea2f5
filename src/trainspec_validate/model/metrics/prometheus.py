"""Gives metrics and attributes their names in Prometheus."""

from __future__ import annotations

from trainspec_validate.model.metrics.entries import Metric

_WORDS = {
    "1": "",
    "s": "seconds",
    "By": "bytes",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
    "Hz": "hertz",
    "By/s": "bytes_per_second",
}
HISTOGRAM_SERIES = ("bucket", "sum", "count")
"""Endings of the series that a histogram becomes."""


def prometheus_name(name: str, unit: str, instrument: str) -> str:
    """The name that a metric of OpenTelemetry has in Prometheus; a histogram's series have an ending in addition.

    Raises:
        KeyError: the unit has no word.

    Source: open-telemetry/opentelemetry-specification@1377f53, compatibility/prometheus_and_openmetrics.md; `ratio` for
    gauges of unit 1 is what the exporters of OpenTelemetry and the OTLP receiver of Prometheus add to it.

    >>> prometheus_name("hw.network.io", "By", "counter"), prometheus_name("train.token.rate", "{token}/s", "gauge")
    ('hw_network_io_bytes_total', 'train_token_rate_per_second')
    """
    counted = unit.startswith("{")
    words = ("per_second" if unit.endswith("}/s") else "") if counted else _WORDS[unit]
    kind = {"counter": "total", "gauge": "ratio" if unit == "1" else ""}.get(instrument, "")
    return "_".join(part for part in (name.replace(".", "_"), words, kind) if part)


def prometheus_names(metric: Metric) -> tuple[str, ...]:
    """Every series name of a metric in Prometheus, that of its synonym too."""
    names = [
        prometheus_name(name, metric.unit, instrument)
        for name in (metric.name, metric.synonym)
        if name
        for instrument in (metric.instrument, *metric.also)
        if instrument != "histogram"
    ]
    if "histogram" in {metric.instrument, *metric.also}:
        base = prometheus_name(metric.name, metric.unit, "histogram")
        names += [f"{base}_{ending}" for ending in HISTOGRAM_SERIES]
    return tuple(names)


def prometheus_label(attribute: str) -> str:
    """The label that an attribute becomes.

    >>> prometheus_label("train.rank.id")
    'train_rank_id'
    """
    return attribute.replace(".", "_")
