"""Completion scripts of bash, zsh and fish for the programs of TrainSpec that are installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.util import find_spec

import click
from click.shell_completion import get_completion_class

from trainspec_validate import terminal

_PROGRAMS = {
    "trainspec": "trainspec_validate.toolbox",
    "trainspec-validate": "trainspec_validate.cli",
    "trainspec-conformance": "trainspec_conformance.cli",
}
"""Module that holds the command of each program which is made with click."""
_RECORDER = "trainspec_record.command"
_OF_WORDS = {
    "bash": "complete -o default -W '{words}' {program}",
    "zsh": "compctl -f -k '({words})' {program}",
    "fish": "complete --command {program} --arguments '{words}'",
}
"""Completion of fixed words, for the recorder, which has no dependency."""


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
    for program, module in _PROGRAMS.items():
        if find_spec(module.partition(".")[0]):
            variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
            found: click.Command = importlib.import_module(module).command
            yield kind(found, {}, program, variable).source()
    if find_spec(_RECORDER.partition(".")[0]):
        recorder = importlib.import_module(_RECORDER)
        words = " ".join(recorder.words())
        yield _OF_WORDS[shell].format(words=words, program=recorder.PROGRAM)
