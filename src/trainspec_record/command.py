"""The only place for the command line of the recorder: `trainspec-record`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainspec_record.identity import VARIABLE

REFUSED = 2
"""Exit code for a command line that is not carried out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; the exit code."""
    told = _parser().parse_args(arguments)
    try:
        return _agent(told) if told.command == "agent" else _launch(told)
    except ValueError as error:
        sys.stderr.write(f"trainspec-record: {error}\n")
        return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainspec-record", description="Record a training job that another program starts."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    agent = commands.add_parser(
        "agent",
        help="sample this node until the run ends, or SIGTERM",
        description="Sample devices, interfaces, memory and clock of this node into the stream of a run.",
    )
    agent.add_argument("--run", help=f"directory of the run; {VARIABLE} where it is left out")
    _add_launch(commands.add_parser("launch", help="start a training program as a plan says, and record it"))
    return parser


def _add_launch(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] -- COMMAND [ARGUMENT]..."
    parser.description = (
        "Start a training program with the environment that a plan asks for, and record the run. Numbers of nodes and "
        "processes that torchrun is not given are taken from the plan; other numbers than its are refused."
    )
    plan = parser.add_mutually_exclusive_group()
    plan.add_argument("--plan", type=Path, metavar="FILE", help="training plan; `trainspec export` is asked about it")
    plan.add_argument(
        "--exported", type=Path, metavar="DIRECTORY", help="what `trainspec export --to all` wrote, in place of a plan"
    )
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="cluster profile, where the plan names none")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="checkpoint policy of the job")
    parser.add_argument(
        "--run",
        metavar="DIRECTORY",
        help=f"directory of the run; with a slash at the end, of runs. {VARIABLE} where it is left out, then `runs/`",
    )
    parser.add_argument("--redact", type=Path, metavar="KEY", help="hide names by a hash with the key in this file")
    parser.add_argument("--agent", action="store_true", help="sample the node from a process beside the command")
    parser.add_argument("--dry-run", action="store_true", help="print the environment and the command; start nothing")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="COMMAND", help="the training program with its launcher"
    )


def _agent(told: argparse.Namespace) -> int:
    from trainspec_record.agent import run_agent  # noqa: PLC0415 - a launcher samples nothing

    return run_agent({**os.environ, **({VARIABLE: told.run} if told.run else {})})


def _launch(told: argparse.Namespace) -> int:
    from trainspec_record.launch.launcher import Wishes, launch  # noqa: PLC0415 - an agent launches nothing

    words = told.words[1:] if told.words[:1] == ["--"] else told.words
    wishes = Wishes(
        words=tuple(words),
        plan=told.plan,
        exported=told.exported,
        cluster=told.cluster,
        policy=told.policy,
        run=told.run,
        redact=told.redact,
        wants_agent=told.agent,
        is_dry=told.dry_run,
    )
    return launch(wishes, os.environ)
