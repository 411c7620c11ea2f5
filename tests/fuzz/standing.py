"""Runs a command of the package in this process where a program would start it as a process of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import click

from trainspec_validate.cli import terminal


def standing_for_a_process(command: click.Command, arguments: Sequence[str], out: io.BytesIO, err: io.BytesIO) -> int:
    """Run a command to its end without standard input; its exit code.

    Raises:
        AssertionError: it ended by a mistake of ours, which a caller may take for a refusal.
    """
    kept = sys.stdin, sys.stdout, sys.stderr
    made = [io.TextIOWrapper(stream, encoding="utf-8") for stream in (io.BytesIO(), out, err)]
    sys.stdin, sys.stdout, sys.stderr = made
    try:
        code = terminal.run(command, command.name or "trainspec", list(arguments))
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
        for stream in made:
            stream.flush()
            stream.detach()
    if code not in {0, 1, 2}:
        raise AssertionError(f"exit code {code} within: {err.getvalue().decode(errors='replace')[-3000:]}")
    return code
