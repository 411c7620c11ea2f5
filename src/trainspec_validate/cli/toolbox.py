"""Commands of `trainspec`, the toolbox around the specification; each is imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from keyword import iskeyword

import click

from trainspec_validate.cli import commands, terminal
from trainspec_validate.model.suggest import hint

PROGRAM = "trainspec"
COMMANDS = {
    "explain": "Explain what a requirement says, why, and how it is checked.",
    "rules": "List the requirements, or show that each has its check.",
    "init": "Write commented starter documents for an accelerator and a size.",
    "schema": "Print the JSON Schema of a kind of document.",
    "catalog": "List the accelerators whose figures are known.",
    "metrics": "List the metrics and events of a run, and what other programs call them.",
    "topology": "Show the graph of a cluster, what is narrow in it, and the roles of ranks.",
    "plan": "Search the best way to train a model on a cluster.",
    "report": "Judge a run and write a page about it: verdict, charts, recoveries, findings.",
    "checkpoint": "Seal a checkpoint with a manifest of its files, or verify one at the speed of the storage.",
    "export": "Write a job for launchers and frameworks.",
    "import": "Write a document of what files of other programs say.",
    "accept": "Compare what was gathered from nodes with the profile of the cluster.",
    "thresholds": "Write predicted bus bandwidths for programs that measure those of a cluster.",
    "discover": "Describe this machine as one node of a cluster profile.",
    "mcp": "Serve these programs to agents, over standard input and output.",
    "completion": "Print the completion script for a shell.",
}
"""Name and one line of help of every command; its module of the same name is imported when it is called.
The module of a name that is a word of Python ends with an underscore."""

_ELSEWHERE = {
    **dict.fromkeys(
        ("validate", "check", "lint"), "documents, streams and checkpoints are judged by trainspec-validate"
    ),
    **dict.fromkeys(("record", "launch", "agent"), "runs are recorded by trainspec-record"),
    **dict.fromkeys(("conformance", "run", "test"), "training stacks are tested by trainspec-conformance"),
}
"""Words that people try here, and the program that they look for."""
_EPILOG = """\b
Examples:
  trainspec explain TS-PAR-001
  trainspec init --accelerator nvidia-h100-sxm-80gb --num-nodes 16
  trainspec rules --area PAR --level MUST
  trainspec schema ClusterProfile > cluster-profile.schema.json

Documents are validated by trainspec-validate.
"""


class Toolbox(click.Group):
    """A group whose commands are imported one by one, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Every name, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command behind a name, or None.

        Raises:
            click.UsageError: there is no such command, but there is a near one.
        """
        if cmd_name in COMMANDS:
            module = import_module(f"{commands.__name__}.{cmd_name}{'_' if iskeyword(cmd_name) else ''}")
            found: click.Command = module.command
            return found
        if not ctx.resilient_parsing:
            nearest = _ELSEWHERE.get(cmd_name) or hint(cmd_name, COMMANDS) or "`trainspec --help` lists the commands"
            raise click.UsageError(f"no command {cmd_name!r}; {nearest}", ctx)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, written without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(PROGRAM, cls=Toolbox, context_settings=terminal.HELP, epilog=_EPILOG)
@terminal.version_option(PROGRAM)
def command() -> None:
    """Describe clusters, plan jobs and write them for launchers; look up requirements, hardware and metrics.

    Works offline.
    """


def main() -> None:
    """Run the program and leave with its exit code."""
    sys.exit(terminal.run(command, PROGRAM))
