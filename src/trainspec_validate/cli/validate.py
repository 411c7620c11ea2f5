"""Defines the command line of `trainspec-validate`: arguments in, exit code out."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import click
from click.core import ParameterSource

from trainspec_validate.cli import terminal
from trainspec_validate.cli.settings import (
    PROGRAM,
    SETTINGS_FROM,
    FailOn,
    Files,
    complete_format,
    configure,
    settings_file,
)
from trainspec_validate.cli.terminal import Failure

_EPILOG = """\b
Examples:
  trainspec-validate cluster.yaml plan.yaml checkpoint.yaml
  trainspec-validate configs/
  trainspec-validate 'runs/**/*.yaml' --fail-on warning
  trainspec-validate . --format sarif=trainspec.sarif
  trainspec-validate - --stdin-filename plan.yaml < plan.yaml
  trainspec-validate . --write-baseline
  trainspec-validate run/
  trainspec-validate run/ --follow
  trainspec-validate run/checkpoints/

\b
Exit codes:
  0    nothing at or above the threshold of --fail-on
  1    findings at or above it
  2    wrong use, input that cannot be read, or output that cannot be written
  3    a mistake of ours; please report it
  130  interrupted; 143 ended by SIGTERM
  141  nothing was found, but the reader of standard output went away before it had everything

Settings live in trainspec.toml or in [tool.trainspec] of pyproject.toml, under the long names of the options.
`trainspec explain TS-PAR-001` explains a requirement and its reason.
"""

_file = click.Path(dir_okay=False)


class _Program(click.Command):
    """A command whose options nobody can give by the name of a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is also a file: whoever lists names, such as a hook or a shell, means the file."""
        options = args[: args.index("--")] if "--" in args else args
        mistaken = next((one for one in options if one[:1] == "-" and one != "-" and os.path.lexists(one)), None)
        if mistaken is not None and not ctx.resilient_parsing:
            raise Failure(f"{mistaken}: a file has the name of an option; write ./{mistaken}, or -- before all names")
        if "--settings-from" in " ".join(options) and not ctx.resilient_parsing:
            given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
            ctx.meta[SETTINGS_FROM] = given.get("settings_from")
        return super().parse_args(ctx, args)


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """A time that is a number; no bound of a range refuses the other.

    Raises:
        click.BadParameter: it is not.
    """
    if math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


@click.command(PROGRAM, cls=_Program, context_settings=terminal.HELP, epilog=_EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option(
    "formats",
    "--format",
    multiple=True,
    metavar="NAME[=FILE]",
    shell_complete=complete_format,
    help="Write full, concise, json, sarif, github, gitlab, junit or statistics, to standard output or FILE. "
    "Repeatable. Default auto: full at a terminal, concise elsewhere, annotations too in GitHub Actions.",
)
@click.option(
    "--fail-on",
    type=FailOn(),
    multiple=True,
    default=["error"],
    metavar="WORDS",
    show_default=True,
    help="Findings that make the exit code 1: the least severity (error, warning, note, or never), unjudged for "
    "requirements that were not judged because the input lacks something, and uncovered for those that this tool has "
    "no formula or figure for: warning,unjudged. Repeatable.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="WORDS",
    help="Judge only these ids, names or chapters: TS-PAR-001,world-size,PAR. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="WORDS",
    help="Leave out these ids, names or chapters, but not what reports unread files. Repeatable.",
)
@click.option(
    "--profile",
    type=click.Choice(["core", "full"]),
    default="full",
    show_default=True,
    help="core is what every serious run needs, full is everything.",
)
@click.option(
    "--waivers",
    type=_file,
    metavar="FILE",
    help="Silence the findings that FILE, a document of kind Waivers, names; each until its end date.",
)
@click.option(
    "--baseline", type=_file, metavar="FILE", help="Silence the findings that FILE recorded; new ones are still shown."
)
@click.option(
    "--write-baseline",
    is_flag=True,
    help="Record the present findings in the FILE of --baseline (default: trainspec-baseline.json).",
)
@click.option("--prune-baseline", is_flag=True, help="Remove from that file what no longer occurs.")
@click.option("--statistics", is_flag=True, help="Show counts per requirement instead of findings.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when there are no findings and nothing is unjudged.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour standard output. auto heeds NO_COLOR and FORCE_COLOR.",
)
@click.option("--no-progress", is_flag=True, help="Never show a progress bar.")
@click.option(
    "--follow",
    is_flag=True,
    help="Judge streams in plain JSON Lines that are still being written, and print findings as they become true, "
    "until the run ends.",
)
@click.option(
    "interval_seconds",
    "--interval",
    type=click.FloatRange(min=0.05, max=86_400),
    callback=_finite,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks with --follow.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Reader of large streams: processes of this machine, or the Spark session that this program runs in.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    metavar="NUMBER",
    help="Processes for large streams, or parts of the input on Spark. Default: as many as there are processors.",
)
@click.option(
    "--rules",
    type=_file,
    multiple=True,
    metavar="FILE",
    help="Judge streams by own rules too: YAML of kind UserRules, or Python, which is run. Repeatable.",
)
@click.option(
    "--rules-engine",
    type=click.Choice(["duckdb", "polars", "spark"]),
    default="duckdb",
    show_default=True,
    help="Engine that runs own rules.",
)
@click.option("--values", is_flag=True, help="Read the values of tensors in checkpoints too, for NaN and damage.")
@click.option(
    "--dependents",
    is_flag=True,
    help="Judge documents of the tree too that name one of these, or one that is not there.",
)
@click.option(
    "--exclude",
    type=Files(),
    multiple=True,
    metavar="PATTERN",
    help="Leave files that fit PATTERN, such as tests/** or *.jsonl, out of searches and of changed files; they are "
    "counted. A file that is named is judged all the same. Repeatable.",
)
@click.option("--list-files", is_flag=True, help="List the files and checkpoints that would be judged, and stop.")
@click.option("--stdin-filename", metavar="NAME", help="Name of standard input (PATH -) in findings.")
@click.option(
    "--settings-from",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    is_eager=True,
    help="Take the settings, waivers, baseline and rules from DIRECTORY, such as a copy of the target branch of a "
    "change request, also where options name them. A file that it lacks does not count. Comments count that its "
    "documents have too.",
)
@click.option(
    "--config",
    type=_file,
    metavar="FILE",
    is_eager=True,
    callback=configure,
    help="Read settings from FILE, not from the nearest trainspec.toml or pyproject.toml.",
)
@click.option("--today", type=click.DateTime(["%Y-%m-%d"]), envvar="TRAINSPEC_TODAY", hidden=True)
@terminal.version_option(PROGRAM)
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Validate cluster profiles, training plans, checkpoint policies, streams of runs, and checkpoints on disk.

    PATH is a file, a directory, a quoted pattern, or - for standard input; without PATH, the working
    directory. Documents that are validated together are also checked against each other.
    """
    from trainspec_validate.cli.request import Request  # noqa: PLC0415
    from trainspec_validate.cli.validate_command import run  # noqa: PLC0415 - help and completion need no rules

    by_file = (name for name in options if context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP)
    request = Request(**options, settings=settings_file(context), from_settings=frozenset(by_file))
    context.exit(run(request))


def main() -> None:
    """Run the program and leave with the exit code that the help promises."""
    terminal.settle()
    sys.exit(terminal.run(command, PROGRAM))
