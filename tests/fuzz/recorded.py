"""`trainspec discover` on a machine that was recorded: what its tools printed and its kernel states is damaged."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click

from tests.discover.recorded_machines import h100_node, mi300x_node
from trainspec_validate.cli.commands.imported import hand_over
from trainspec_validate.interop.discover import RecordedMachine, discover
from trainspec_validate.interop.refused import join

_FILES = "files.txt"
_NVML = "nvml.json"


@cache
def machines() -> tuple[dict[str, bytes], ...]:
    """The files of recordings, as `discovered` reads them."""
    loaded = [
        RecordedMachine.load(path) for path in sorted((Path(__file__).parents[1] / "discover/recordings").iterdir())
    ]
    return tuple(_kept(machine) for machine in (h100_node(), mi300x_node(), *loaded))


def _kept(machine: RecordedMachine) -> dict[str, bytes]:
    told = {
        f"{number}.command": f"$ {' '.join(words)}\n{printed}".encode()
        for number, (words, printed) in enumerate(sorted(machine.commands.items()))
    }
    told[_FILES] = "".join(f"@ {path}\n{text}" for path, text in sorted(machine.files.items())).encode()
    if machine.nvml_survey is not None:
        told[_NVML] = machine.nvml_survey.encode()
    return told


@click.command()
def discovered() -> None:
    """Describe the recorded machine in `tree`, as `trainspec discover` does the one that it runs on."""
    place = Path("tree")
    commands = dict(_command(path) for path in sorted(place.rglob("*.command")) if path.is_file())
    blocks = re.split(r"^@ ", _text(place / _FILES), flags=re.MULTILINE)[1:]
    files = {path.strip(): text for path, _, text in (block.partition("\n") for block in blocks)}
    survey = _text(place / _NVML) if (place / _NVML).is_file() else None
    fragments = discover(RecordedMachine(commands, files, nvml_survey=survey))
    hand_over(join(fragments), fragments, None, force=False, command="discover")


def _command(path: Path) -> tuple[tuple[str, ...], str]:
    first, _, printed = _text(path).partition("\n")
    return tuple(first.removeprefix("$ ").split()), printed


def _text(path: Path) -> str:
    """A text as the machine gives it, where what is no UTF-8 is replaced."""
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
