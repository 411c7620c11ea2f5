"""Writes the page of a run at the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.system.boundary import InputError

if TYPE_CHECKING:
    from trainspec_validate.model.finding import Report
    from trainspec_validate.telemetry.view.run_view import RunView


@click.command(
    epilog="""\b
Examples:
  trainspec report run/ -o report.html
  trainspec report run/ cluster.yaml plan.yaml checkpoint.yaml -o report.html
  trainspec report result_0.txt -o report.html --force

\b
Exit codes:
  0  the page was written, whatever was found; trainspec-validate is the gate
  2  wrong use, input that cannot be read (the page is on the rest), or output that cannot be written
  3  a mistake of ours; please report it
"""
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    type=click.Path(dir_okay=False),
    callback=terminal.or_standard_output,
    help="Where to write, instead of stdout.",
)
@click.option(
    "--profile",
    type=click.Choice(["core", "full"]),
    default="full",
    show_default=True,
    help="core is what every serious run needs, full is everything.",
)
@click.option(
    "--waivers", type=click.Path(dir_okay=False), metavar="FILE", help="Waivers of findings, as for the gate."
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def command(paths: tuple[str, ...], output: str | None, profile: str, waivers: str | None, force: bool) -> None:
    """Judge a run and write one HTML page about it: verdict, coverage, charts, recoveries, energy, findings.

    PATH is a file or a directory with streams of one run; documents that are named with them are judged together. The
    page loads nothing, runs no script, and prints.
    """
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.model.requirements import load_index  # noqa: PLC0415
    from trainspec_validate.report.run_page import page  # noqa: PLC0415
    from trainspec_validate.report.summary import summary_line  # noqa: PLC0415 - `--help` goes without the checks

    if output is None and terminal.is_terminal(sys.stdout):
        raise click.UsageError("a page is no text for a terminal; name a file with --output")
    if output is not None:
        files.refuse_present([Path(output)], force=force)
    report, views, unread = _judged(paths, profile, waivers)
    view = _only(views, paths, unread)
    text = page(view, report, load_index().by_id, unread)
    if output is None:
        terminal.emit(text, "markup")
    else:
        files.write({Path(output): text}, force=force)
    terminal.tell(summary_line(report))
    if unread:
        raise Failure(*unread)


def _judged(paths: tuple[str, ...], profile: str, waivers: str | None) -> tuple[Report, list[RunView], tuple[str, ...]]:
    """The report, what was seen of each run, and what could not be read."""
    from trainspec_validate.checking.selection import Selection  # noqa: PLC0415
    from trainspec_validate.pipeline.validation import PartialInputError, Terms, examine  # noqa: PLC0415

    views: list[RunView] = []
    bar = terminal.Bar(wanted=True)
    terms = Terms(Selection(profile), waivers=waivers, progress=bar, seen=views.append)
    try:
        with terminal.paused_collector():
            return examine(paths, terms), views, ()
    except PartialInputError as error:
        return error.report, views, error.args
    except InputError as error:
        raise Failure.of(error) from error
    finally:
        bar.close()


def _only(views: list[RunView], paths: tuple[str, ...], unread: tuple[str, ...]) -> RunView:
    """The run that the page is about.

    Raises:
        Failure: there is none, or there are several.
    """
    if len(views) == 1:
        return views[0]
    if not views:
        raise Failure(*unread, f"{', '.join(paths)}: no stream of a run; a page is made of metric streams")
    found = [f"{view.run or 'without a name'} ({view.files[0].path})" for view in views[:5]]
    more = f" and {len(views) - 5:,} more" if len(views) > 5 else ""
    raise Failure(f"{len(views)} runs: {', '.join(found)}{more}; a page is about one: name its files")
