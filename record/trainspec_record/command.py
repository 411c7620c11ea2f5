"""Command line of the recorder, `trainspec-record`: launch a training program under it, or sample a node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from trainspec_record import printing
from trainspec_record._version import SPECIFICATION_VERSION, __version__
from trainspec_record.help import Parser
from trainspec_record.identity import DEFAULT_DIRECTORY, VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainspec_record.endpoint.serve import Address

PROGRAM = printing.PROGRAM
INTERRUPTED = 130
REFUSED = 2
"""Exit code for a command line that is not carried out."""
_EPILOG = """Examples:
  trainspec-record launch --plan plan.yaml -- torchrun train.py
  trainspec-record launch --run runs/first -- python3 train.py
  trainspec-record launch --metrics-address 127.0.0.1:9464 -- torchrun train.py
  trainspec-record agent --run runs/first

Exit codes:
  0    the run has ended; `launch` passes on the exit code of its program
  2    wrong use, input that cannot be read, or output that cannot be written
  130  interrupted
  141  the reader of standard output went away before it had everything
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; the exit code."""
    try:
        told = parser().parse_args(arguments)
        return _agent(told) if told.command == "agent" else _launch(told)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ValueError as error:
        for line in str(error).split("\n"):
            printing.tell(line)
        return REFUSED


def parser() -> argparse.ArgumentParser:
    """Command line of the program, for the program itself, its page and the completion of shells."""
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [OPTIONS] COMMAND [ARGS]...",
        description="Record a training job that another program starts.",
        epilog=_EPILOG,
    )
    version = f"%(prog)s {__version__} (specification {SPECIFICATION_VERSION})"
    words = "Show the versions of the tool and of the specification."
    parser.add_argument("--version", action="version", version=version, help=words)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="Commands", prog=PROGRAM)
    launch = "Start a training program as a plan says, and record it."
    _add_launch(commands.add_parser("launch", help=launch))
    agent = commands.add_parser(
        "agent",
        help="Sample this node until the run ends, or until SIGTERM.",
        usage="%(prog)s [OPTIONS]",
        description="Sample devices, interfaces, memory and clock of this node into the stream of a run.",
    )
    agent.add_argument("--run", metavar="DIRECTORY", help=f"Directory of the run. Default: {VARIABLE}.")
    _add_metrics_address(agent)
    return parser


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of the program and of its commands, by the words that call them."""
    whole = parser()
    inner = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return {PROGRAM: whole, **{f"{PROGRAM} {name}": one for action in inner for name, one in action.choices.items()}}


def words() -> list[str]:
    """Every command and option, for the completion of shells."""
    found = {option for one in parsers().values() for action in one._actions for option in action.option_strings}
    return sorted(found | {path.partition(" ")[2] for path in parsers()} - {""})


def _add_launch(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] -- COMMAND [ARGUMENT]..."
    parser.description = (
        "Start a training program with the environment that a plan asks for, and record the run.\n\n"
        "Numbers of nodes and processes that torchrun is not given are taken from the plan; a\n"
        "command line that contradicts the plan is refused."
    )
    plan = parser.add_mutually_exclusive_group()
    plan.add_argument("--plan", type=Path, metavar="FILE", help="Training plan; `trainspec export` reads it.")
    exported = "Directory that `trainspec export --to all` wrote, in place of a plan."
    plan.add_argument("--exported", type=Path, metavar="DIRECTORY", help=exported)
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="Cluster profile, if the plan names none.")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="Checkpoint policy of the job.")
    run = f"Directory of the run; with a slash at the end, of runs. Default: {VARIABLE}, else {DEFAULT_DIRECTORY}"
    parser.add_argument("--run", metavar="DIRECTORY", help=run)
    parser.add_argument("--redact", type=Path, metavar="KEY", help="Hide names by a hash with the key in this file.")
    _add_metrics_address(parser)
    parser.add_argument("--agent", action="store_true", help="Sample the node too, from a process of its own.")
    parser.add_argument("--dry-run", action="store_true", help="Print the environment and the command; start nothing.")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)


def _add_metrics_address(parser: argparse.ArgumentParser) -> None:
    what = "Serve the latest values to Prometheus, such as at 127.0.0.1:9464."
    parser.add_argument("--metrics-address", metavar="HOST:PORT", help=what)


def _address(told: argparse.Namespace) -> Address | None:
    if told.metrics_address is None:
        return None
    from trainspec_record.endpoint.serve import address  # noqa: PLC0415 - nothing is loaded where nothing is served

    return address(told.metrics_address)


def _agent(told: argparse.Namespace) -> int:
    from trainspec_record.agent import run_agent  # noqa: PLC0415 - a launcher samples nothing

    return run_agent({**os.environ, **({VARIABLE: told.run} if told.run else {})}, _address(told))


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
        metrics_address=_address(told),
    )
    return launch(wishes, os.environ)
