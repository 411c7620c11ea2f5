"""The only place that prints the scripts by which shells complete the two commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trainspec_validate import terminal


@click.command(
    epilog="""\b
Add to your start-up file:
  bash   eval "$(trainspec completion bash)"
  zsh    eval "$(trainspec completion zsh)"
  fish   trainspec completion fish | source
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell, for trainspec and trainspec-validate together."""
    from trainspec_validate import cli, toolbox  # noqa: PLC0415 - the group imports this module
    from trainspec_validate.cli.settings import PROGRAM  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}")
    for group, program in ((toolbox.command, toolbox.PROGRAM), (cli.command, PROGRAM)):
        variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
        terminal.emit(kind(group, {}, program, variable).source() + "\n")
