"""Holds the inputs of every section of a run page, and lists the values that a run lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainspec_validate.model.finding import Report
from trainspec_validate.model.metrics import by_name
from trainspec_validate.report import RuleText
from trainspec_validate.report.run_page.frame import Frame
from trainspec_validate.report.run_page.markup import Html, Node, element
from trainspec_validate.report.run_page.traces import Points, points
from trainspec_validate.report.run_page.words import joined
from trainspec_validate.telemetry.view.run_view import RunView, Windows


@dataclass(frozen=True, slots=True)
class Context:
    """A run, what was found in it, and the time axis of its charts."""

    view: RunView
    report: Report
    requirements: Mapping[str, RuleText]
    frame: Frame | None
    """None where all of the run is one moment."""
    unread: tuple[str, ...] = ()
    """Input that could not be read, each with the reason."""

    def points(self, metric: str) -> list[Points]:
        """The series of a job metric that have a finite value, in order of their names."""
        found = [points(series) for series in self.view.job.values() if series.key.metric == metric]
        return sorted((each for each in found if len(each)), key=lambda each: each.name)

    def windows(self, metric: str) -> list[Windows]:
        """The windows of a metric that hold a value."""
        found = (each for each in self.view.windows.values() if each.key.metric == metric)
        return [each for each in found if bool(each.count.any())]

    def absent(self, *metrics: str) -> Html:
        """That a run has no values of metrics, and the reasons that it declares."""
        names = joined([f"`{name}`" for name in metrics], "nor")
        told = [f"{'Neither' if len(metrics) > 1 else 'No'} {names} in this stream."]
        for metric in metrics:
            reason = self.view.unsupported(metric)
            if reason:
                told.append(f"Declared unsupported: {reason}.")
        title = getattr(by_name(metrics[0]), "title", metrics[0])
        return element("p", element("strong", f"{title}: not measured. "), code(" ".join(told)), class_="absent")


def section(identifier: str, title: str, *children: Node) -> Html:
    """A part of the page with a heading that a link leads to."""
    heading = f"{identifier}-heading"
    return element("section", element("h2", title, id=heading), *children, id=identifier, aria_labelledby=heading)


def code(text: str) -> list[Node]:
    """Text in which words between backticks are names.

    >>> code("no `a.b` here")
    ['no ', '<code>a.b</code>', ' here']
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [text]
    return [element("code", part) if place % 2 else part for place, part in enumerate(parts)]
