"""Makes the page of a run: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainspec_validate.model.finding import Report
from trainspec_validate.report import RuleText
from trainspec_validate.report.run_page.context import Context, section
from trainspec_validate.report.run_page.frame import frame, key, moment_of
from trainspec_validate.report.run_page.marks import KINDS
from trainspec_validate.report.run_page.markup import Html, element, verbatim
from trainspec_validate.report.run_page.sections import SECTIONS
from trainspec_validate.report.run_page.sections.summary import header
from trainspec_validate.report.run_page.style import DEFINITIONS, STYLE
from trainspec_validate.system.neutral import neutral
from trainspec_validate.telemetry.view.run_view import RunView

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(
    view: RunView,
    report: Report,
    requirements: Mapping[str, RuleText] | None = None,
    unread: Sequence[str] = (),
) -> str:
    """The page of a run, with what was found in it; equal input makes equal text.

    `unread` says which input could not be read, and why. The text can be printed into the log of a job, a file too.
    """
    context = Context(view, report, requirements or {}, frame(view), tuple(unread))
    body = element(
        "body",
        verbatim(DEFINITIONS),
        element("a", "To the verdict", href="#verdict", class_="skip"),
        header(context),
        element("nav", element("ul", list(_links())), aria_label="Sections"),
        element("main", list(_sections(context))),
        element("footer", element("p", "TrainSpec run report. It loads nothing and runs no script.")),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"Run {view.run or 'without a name'}"),
        element("style", verbatim(STYLE)),
    )
    return neutral(f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n", "markup")


def _links() -> Iterator[Html]:
    for identifier, (title, _) in SECTIONS.items():
        yield element("li", element("a", title, href=f"#{identifier}"))


def _sections(context: Context) -> Iterator[Html]:
    for identifier, (title, write) in SECTIONS.items():
        if identifier == "pace" and context.frame is not None:
            yield _key(context)
        yield section(identifier, title, write(context))


def _key(context: Context) -> Html:
    """What the marks of all charts mean; they share one time axis."""
    assert context.frame is not None  # noqa: S101 - without one there are no charts
    kinds = context.frame.marks.kinds()
    told = ["All charts have the same time axis."]
    if context.frame.is_part:
        ends = " to ".join(moment_of(context.view, time_us) for time_us in context.frame.span)
        told.append(f"It goes from {ends}: records have wrong times that are far outside.")
    told += ["Marked in them:"] if kinds else []
    return element("aside", element("p", " ".join(told)), key((kind, KINDS[kind]) for kind in kinds), class_="marks")


__all__ = ["page"]
