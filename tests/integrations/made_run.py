"""Series of a run that writes every metric of the catalog, as cases of promtool have them."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.model.metrics import Metric, catalog, metrics
from trainspec_validate.model.metrics.prometheus import HISTOGRAM_SERIES, prometheus_label, prometheus_names

NUM_VALUES = 80
RUN = {"train_run_id": "r", "train_run_attempt": "0", "instance": "agent"}
PLACES: dict[str, dict[str, str]] = {
    "job": {},
    "emitter": {},
    "pair": {},
    "rank": {"train_rank_id": "0", "host_id": "n0"},
    "group": {"train_rank_id": "0", "host_id": "n0"},
    "node": {"host_id": "n0"},
    "device": {"host_id": "n0", "hw_id": "d0"},
    "link": {"host_id": "n0", "hw_id": "d0"},
    "nic": {"host_id": "n0", "hw_id": "d0"},
}


def input_series() -> list[dict[str, str]]:
    """One series for each name, scope and value of an attribute."""
    rows = [row for metric in metrics().values() for row in _of_metric(metric)]
    return [{"series": series, "values": values} for series, values in dict(rows).items()]


def _of_metric(metric: Metric) -> Iterator[tuple[str, str]]:
    for scope in metric.scopes:
        for attributes in _attributes(metric):
            labels = {**RUN, **attributes, **PLACES[scope]}
            for name in prometheus_names(metric):
                ending = name.rsplit("_", 1)[1]
                histogram = "histogram" in {metric.instrument, *metric.also} and ending in HISTOGRAM_SERIES
                rising = metric.instrument == "counter" or histogram
                values = f"{'1+1' if rising else '0.5'}x{NUM_VALUES}"
                for bound in ("0.1", "+Inf") if ending == "bucket" else ("",):
                    more = {"le": bound} if bound else {}
                    inner = ", ".join(f'{label}="{value}"' for label, value in {**labels, **more}.items())
                    yield f"{name}{{{inner}}}", values


def _attributes(metric: Metric) -> Iterator[dict[str, str]]:
    """Labels of the series of a metric: every value of its first attribute that has some, the first value of others."""
    known = [catalog().attributes[name] for name in metric.attributes]
    series = [each for each in known if each.role == "series" and each.name not in {"hw.id", "host.id"}]
    several = next((each for each in series if each.values), None)
    for value in several.values if several else ("",):
        found = {prometheus_label(each.name): each.values[0] if each.values else "x" for each in series}
        yield found | ({prometheus_label(several.name): value} if several else {})
