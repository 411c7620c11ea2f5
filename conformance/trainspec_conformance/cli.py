"""Defines the command line of `trainspec-conformance`."""

from __future__ import annotations

import importlib
import secrets
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from trainspec_conformance.starting import DEMO_SCENARIOS, DEMO_STACK
from trainspec_validate.cli import terminal

PROGRAM = "trainspec-conformance"
MOST_SEED = 2**31 - 1
WAYS = ("local", "ssh", "slurm", "kubernetes")
_EPILOG = """\b
Exit codes:
  0    every selected scenario passed or is a declared gap; the evidence confirms it; nothing is worse
  1    a scenario did not pass, or a gap is idle or has ended; the evidence differs; something is worse
  2    usage error, input that cannot be read, or output that cannot be written
  3    a mistake of ours; please report it
"""
_REPLAY_EPILOG = """\b
Exit codes:
  0    criteria were judged, and every one of them passed
  1    a criterion failed
  2    nothing could be judged, such as in a run without an incident; no recovery could be judged, although jobs
       had incidents to recover from; usage error; input that cannot be read or was refused
  3    a mistake of ours; please report it
"""
_EXAMPLES = """\b
Examples:
  trainspec-conformance init mine
  trainspec-conformance run mine/stack.yaml --report out --scenario kill-rank
  trainspec-conformance run mine/stack.yaml --report out --over ssh --node node[01-04]
  trainspec-conformance verify out
  trainspec-conformance replay run

"""
_directory = click.Path(file_okay=False, path_type=Path)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(PROGRAM, context_settings=terminal.HELP, epilog=_EXAMPLES + _EPILOG)
@terminal.version_option(PROGRAM)
def command() -> None:
    """Run a training stack, inject faults, measure it, and report its behavior."""


@command.command("run", epilog=_EPILOG)
@click.argument("stack", type=_file, required=False)
@click.option("--demo", is_flag=True, help="A few quick scenarios of the reference trainer, in place of a STACK.")
@click.option("--report", "out", type=_directory, required=True, help="New directory for report and evidence.")
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Only this scenario. Repeatable.")
@click.option("--profile", type=click.Choice(["core", "full"]), help="Scenarios to run. Default: what is claimed.")
@click.option("--trials", type=click.IntRange(1), help="Trials of each scenario. Default: what the claim needs.")
@click.option(
    "--seed", type=click.IntRange(0, MOST_SEED), help="Of all random choices. Default: drawn, and in the report."
)
@click.option("--gaps", type=_file, help="Declared gaps: a document of kind Waivers; they change the exit code only.")
@click.option(
    "--settings-from",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="A copy of another state of the working directory, such as the target branch of a change request: the file of "
    "--gaps is the one in it. Where it has none, no gap is declared.",
)
@click.option(
    "--over", type=click.Choice(WAYS), help="Way to the nodes that the ranks run on. Default: none; they run here."
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="LIST",
    help="Nodes for --over, such as node[01-16], or pods, in the order of the ranks. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="List the scenarios that would run, and run nothing.")
@click.option(
    "--start-seconds",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="With --dry-run: time from a start of the stack to its first step, by which the time of the run is estimated.",
)
@click.pass_context
def run(context: click.Context, /, stack: Path | None, demo: bool, **options: Any) -> None:
    """Run scenarios against a stack, and report.

    STACK is a descriptor: how the stack is launched, and what it claims. The report is next to its evidence.
    """
    commands = _commands()
    if (stack is None) != demo:
        raise click.UsageError("name the descriptor of a stack, or --demo, and not both")
    if (options["over"] is None) == bool(options["nodes"]):
        raise click.UsageError("--over and --node belong together")
    if stack is None:
        stack = DEMO_STACK
        options["names"] = options["names"] or DEMO_SCENARIOS
        options["trials"] = options["trials"] or 1
    arguments = sys.argv[1:]
    if options["seed"] is None:
        options["seed"] = secrets.randbelow(MOST_SEED)
        arguments += [f"--seed={options['seed']}"]
    again = f"{PROGRAM} " + shlex.join(arguments)
    context.exit(commands.run(commands.RunRequest(stack=stack, command=(again,), **options)))


@command.command("init")
@click.argument("directory", type=_directory, default=Path())
@click.pass_context
def init(context: click.Context, directory: Path) -> None:
    """Write a descriptor and a shim to begin with.

    They run unchanged; DIRECTORY is where they go.
    """
    context.exit(_commands().init(directory))


@command.command("resume", epilog=_EPILOG)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def resume(context: click.Context, directory: Path) -> None:
    """Continue the run in DIRECTORY, which was interrupted.

    Trials that have ended are judged from their histories, the others are run. Stack, scenarios and choices are those
    of the run.
    """
    context.exit(_commands().resume(directory))


@command.command("list")
def list_scenarios() -> None:
    """List all scenarios with their requirements."""
    _commands().show_scenarios()


@command.command("verify", epilog=_EPILOG)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def verify(context: click.Context, directory: Path) -> None:
    """Judge the report in DIRECTORY again, from its evidence alone."""
    context.exit(_commands().verify(directory))


@command.command("diff", epilog=_EPILOG)
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def diff(context: click.Context, before: Path, after: Path, form: str) -> None:
    """Show what changed from one report to another.

    BEFORE and AFTER are directories of reports, or their report.json.
    """
    context.exit(_commands().diff(before, after, form))


@command.command("replay", epilog=_REPLAY_EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option("--stack", type=_file, help="Descriptor whose claims are the limits. Default: those of a descriptor.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def replay(context: click.Context, paths: tuple[str, ...], stack: Path | None, form: str) -> None:
    """Judge incidents of production runs by the criteria of the suite.

    PATH is a directory or file of production runs: streams, logs of other formats that trainspec-validate reads,
    accounting of Slurm, checkpoints and policies. A criterion is judged where the records hold what it needs; others
    are not-run, with the reason. No level and no badge follow from a replay.
    """
    context.exit(_commands().replay(paths, stack, form))


def _commands() -> ModuleType:
    """What does the work; help needs none of it."""
    return importlib.import_module("trainspec_conformance.commands")


def main() -> None:
    """Run the program and leave with the exit code that the help promises."""
    sys.exit(terminal.run(command, PROGRAM))
