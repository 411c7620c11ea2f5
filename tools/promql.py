"""Substitutes names of the catalog in expressions of PromQL, and writes rules as files of Prometheus.

In a template `<train.step.count>` is the series of a metric, `<train.step.duration/sum>` one series of a histogram, and
`<@train.phase>` the label of an attribute. `<run>`, `<attempt>`, `<rank>`, `<host>` and `<device>` are labels too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent, wrap

from trainspec_validate.documents.load import load_file
from trainspec_validate.model.metrics import MetricCatalog, parse
from trainspec_validate.model.metrics.prometheus import (
    HISTOGRAM_SERIES,
    prometheus_label,
    prometheus_name,
    prometheus_names,
)

LABELS = {
    "run": "train.run.id",
    "attempt": "train.run.attempt",
    "rank": "train.rank.id",
    "host": "host.id",
    "device": "hw.id",
}
TOKEN = re.compile(r"<(@?)([a-z][a-z0-9_.]*)(?:/([a-z]+))?>")
INSTANCE = "instance"
"""Label that Prometheus itself gives to who was scraped or sent the series."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names that expressions can use."""

    catalog: MetricCatalog

    @classmethod
    def of(cls, directory: Path) -> Names:
        """The names of the table in a directory."""
        return cls(parse(load_file(directory / "metrics.yaml").data))

    def render(self, template: str) -> str:
        """The expression of a template.

        Raises:
            ValueError: the template names what the catalog does not have.
        """
        return TOKEN.sub(self._name, template)

    def series(self) -> frozenset[str]:
        """Every series name that the catalog gives."""
        return frozenset(name for metric in self.catalog.metrics.values() for name in prometheus_names(metric))

    def labels(self) -> frozenset[str]:
        """Every label that the catalog gives, with those of Prometheus."""
        return frozenset({*map(prometheus_label, self.catalog.attributes), INSTANCE, "le"})

    def _name(self, match: re.Match[str]) -> str:
        is_label, name, ending = match.groups()
        if is_label or name in LABELS:
            attribute = LABELS.get(name, name)
            if attribute not in self.catalog.attributes or ending:
                raise ValueError(f"{match[0]} is no attribute of the catalog")
            return prometheus_label(attribute)
        metrics = self.catalog.metrics.values()
        metric = next((each for each in metrics if name in {each.name, each.synonym}), None)
        if metric is None:
            raise ValueError(f"{match[0]} is no metric of the catalog")
        instruments = (metric.instrument, *metric.also)
        if bool(ending) != (ending in HISTOGRAM_SERIES and "histogram" in instruments):
            raise ValueError(f"{match[0]} is no series of {name}")
        if ending:
            return f"{prometheus_name(name, metric.unit, 'histogram')}_{ending}"
        if instruments == ("histogram",):
            raise ValueError(f"{match[0]} is a histogram: say which of {HISTOGRAM_SERIES}")
        return prometheus_name(name, metric.unit, metric.instrument)


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that Prometheus computes from others."""

    record: str
    words: str
    template: str


@dataclass(frozen=True, slots=True)
class Alert:
    """A state of a run that is reported to people."""

    name: str
    severity: str
    hold: str
    """Duration of the state before the alert fires; empty for at once."""
    requirement: str
    """Requirement that the state touches."""
    summary: str
    words: str
    """Its meaning, and the first place to look."""
    template: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after another."""

    name: str
    rules: tuple[Recording | Alert, ...]
    interval: str = "30s"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes groups of rules as a file of Prometheus."""

    names: Names
    runbooks: Mapping[str, str] = field(default_factory=dict)
    """Page of each requirement; one that is not here has the page of the catalog."""
    catalog_page: str = ""

    def text(self, first_line: str, groups: Iterable[Group]) -> str:
        """The text of a file of rules."""
        lines = [first_line, "groups:"]
        for group in groups:
            lines += [f"  - name: {group.name}", f"    interval: {group.interval}", "    rules:"]
            for rule in group.rules:
                lines += self._recording(rule) if isinstance(rule, Recording) else self._alert(rule)
        return "\n".join(lines) + "\n"

    def _recording(self, rule: Recording) -> list[str]:
        comment = [f"      # {line}" for line in wrap(rule.words, 110)]
        return [*comment, f"      - record: {rule.record}", *self._expression(rule.template)]

    def _alert(self, rule: Alert) -> list[str]:
        lines = [f"      - alert: {rule.name}", *self._expression(rule.template)]
        lines += [f"        for: {rule.hold}"] if rule.hold else []
        annotations = {
            "summary": self.names.render(rule.summary),
            "description": rule.words,
            "runbook_url": self.runbooks.get(rule.requirement, self.catalog_page),
        }
        labels = {"severity": rule.severity, "requirement": rule.requirement}
        for key, values in (("labels", labels), ("annotations", annotations)):
            lines += [f"        {key}:", *(f"          {name}: {json.dumps(value)}" for name, value in values.items())]
        return lines

    def _expression(self, template: str) -> list[str]:
        text = self.names.render(template).strip()
        if "\n" not in text:
            return [f"        expr: {json.dumps(text)}"]
        return ["        expr: |-", *indent(text, "          ").splitlines()]
