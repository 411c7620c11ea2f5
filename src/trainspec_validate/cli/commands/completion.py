"""Completion scripts of bash, zsh and fish for the programs of TrainSpec that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points

import click
from click.shell_completion import get_completion_class

from trainspec_validate.cli import terminal

_GROUP = "trainspec.programs"
"""Entry points by which a distribution gives the click command of its program, or a function that lists its words."""
_OF_WORDS = {
    "bash": "complete -o default -W '{words}' {program}",
    "zsh": "compctl -f -k '({words})' {program}",
    "fish": "complete --command {program} --arguments '{words}'",
}
"""Completion of fixed words, for a program without click."""


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
    """Print the completion script for a shell, for all programs of TrainSpec that are installed."""
    for text in _scripts(shell):
        terminal.emit(f"{text}\n")


def _scripts(shell: str) -> Iterator[str]:
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}")
    for name in sorted(entry_points(group=_GROUP).names):
        (program, *_) = entry_points(group=_GROUP, name=name)
        found = program.load()
        if isinstance(found, click.Command):
            yield kind(found, {}, name, f"_{name.replace('-', '_')}_COMPLETE".upper()).source()
        else:
            yield _OF_WORDS[shell].format(words=" ".join(found()), program=name)
