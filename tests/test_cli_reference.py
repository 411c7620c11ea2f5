"""The page of commands has every command with the help that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import cli_reference
import click
import pytest
from trainspec_conformance.cli import command as conformance

from tests.every import every
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command as gate

PAGE = (Path(__file__).resolve().parent.parent / "spec" / "commands.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """Help by the command that it belongs to."""
    found = re.findall(r"^###? ([^\n]+)\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_every_command_has_a_section() -> None:
    names = [f"trainspec {name}" for name in toolbox.list_commands(click.Context(toolbox))]
    names += [f"trainspec-conformance {name}" for name in conformance.list_commands(click.Context(conformance))]
    names += ["trainspec-record launch", "trainspec-record agent"]
    assert {"trainspec-validate", "trainspec", "trainspec-conformance", "trainspec-record", *names} <= set(sections())
    assert "trainspec checkpoint seal" in sections()


@every("name", sections())
def test_a_section_shows_how_its_command_is_used(name: str) -> None:
    assert sections()[name].startswith(f"Usage: {name} ")


def test_every_option_of_the_gate_is_told() -> None:
    text = sections()["trainspec-validate"]
    shown = [one for one in gate.params if isinstance(one, click.Option) and not one.hidden]
    names = [name for option in shown for name in option.opts]
    assert len(names) > 20
    assert [name for name in names if name not in text] == []


def test_the_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert cli_reference.page() == PAGE
