"""The only place that holds the command line of `trainspec-conformance`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from trainspec_conformance import commands
from trainspec_validate import terminal

PROGRAM = "trainspec-conformance"
_EPILOG = """\b
Exit codes:
  0    every scenario that was chosen passed, or the evidence bears the report out
  1    a scenario failed or is unsupported, or the evidence says something else
  2    wrong use, or input that cannot be read
  3    a mistake of ours; please report it
"""
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_directory = click.Path(file_okay=False, path_type=Path)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    PROGRAM, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=_EPILOG
)
def command() -> None:
    """Run a training stack, damage it, measure it, and report what it really does."""


@command.command("run", epilog=_EPILOG)
@click.argument("stack", type=_file)
@click.option("--report", "out", type=_directory, required=True, help="New directory for report and evidence.")
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Only this scenario. Repeatable.")
@click.option("--profile", type=click.Choice(["core", "full"]), help="Scenarios to run. Default: what is claimed.")
@click.option("--trials", type=click.IntRange(1), help="Trials of each scenario. Default: what the claim needs.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all random choices.")
@click.option("--gaps", type=_file, help="File of declared gaps, as waivers with reason and expiry.")
@click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing.")
@click.pass_context
def run(context: click.Context, /, stack: Path, **options: object) -> None:
    """Run scenarios against the STACK of a descriptor."""
    again = f"{PROGRAM} " + shlex.join(sys.argv[1:])
    context.exit(commands.run(commands.RunRequest(stack=stack, command=(again,), **options)))  # type: ignore[arg-type]


@command.command("list")
def list_scenarios() -> None:
    """List all scenarios with their requirements."""
    commands.show_scenarios()


@command.command("verify", epilog=_EPILOG)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def verify(context: click.Context, directory: Path) -> None:
    """Judge the report in DIRECTORY again, from its evidence alone."""
    context.exit(commands.verify(directory))


def main() -> None:
    """Run the program and leave with the exit code that the help promises."""
    sys.exit(terminal.run(command, PROGRAM))
