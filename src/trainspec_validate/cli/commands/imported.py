"""Writes an imported document to standard output or a file, with a summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.commands.files import cannot_write, refuse_inputs
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.interop.document import document, unknowns
from trainspec_validate.interop.fragment import Fragment
from trainspec_validate.interop.merge import Merged
from trainspec_validate.system.atomic import standard_stream, write_atomically
from trainspec_validate.system.neutral import printable

_MAX_REMARKS = 60


def hand_over(
    merged: Merged, fragments: Sequence[Fragment], output: str | None, *, force: bool, command: str = "import"
) -> None:
    """Write the document of a command, then what was found to standard error.

    Raises:
        Failure: the file is already there and may not be overwritten, or cannot be written.
    """
    text = document(merged, command)
    if output is None or standard_stream(output) == 1:
        terminal.emit_document(text)
    else:
        _write(Path(output), text, force=force)
    terminal.tell_lines(summary(merged, fragments))
    shown = output or "the document"
    left = len(unknowns(merged))
    step = f"fill in what is unknown ({left}), then run" if left else "run"
    terminal.tell(f"next: {step}: trainspec-validate {shown if output else 'FILE'}")


def _write(path: Path, text: str, *, force: bool) -> None:
    refuse_inputs([path], foreign=True)
    try:
        write_atomically(path, text, overwrite=force, is_output=True)
    except FileExistsError:
        raise Failure(f"{path.as_posix()}: already there; --force overwrites") from None
    except OSError as error:
        raise cannot_write(path, error) from error


def summary(merged: Merged, fragments: Sequence[Fragment]) -> str:
    """A table of the files with their counts, then every remark with its place.

    An unknown key is no count of a file: another file or an option may state it.
    """
    rows = [(printable(f.name), f.format, str(num_facts(f.facts)), str(len(f.remarks))) for f in fragments]
    lines = [tables.plain(("source", "format", "facts", "remarks"), rows, frozenset({2, 3}))]
    for entry in merged.remarks[:_MAX_REMARKS]:
        line = f":{entry.remark.line}" if entry.remark.line else ""
        place = f"{entry.name}{line}: " if entry.name else ""
        lines.append(printable(f"remark: {place}{entry.remark.message}") + "\n")
    more = len(merged.remarks) - _MAX_REMARKS
    if more > 0:
        lines.append(f"{more} more remarks are left out\n")
    return "".join(lines)


def num_facts(value: Any) -> int:
    """Number of values that are no mapping and no list of mappings.

    >>> num_facts({"nodes": [{"name": "a", "ranks": [0, 1]}, {}]}), num_facts({})
    (2, 0)
    """
    if isinstance(value, dict):
        return sum(num_facts(item) for item in value.values())
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        return sum(num_facts(item) for item in value)
    return 1
