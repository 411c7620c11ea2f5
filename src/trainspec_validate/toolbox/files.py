"""The only place that reads typed documents for a command, and writes the files that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainspec_validate import terminal
from trainspec_validate.documents import Document, read
from trainspec_validate.findings import Severity
from trainspec_validate.load import load_text
from trainspec_validate.terminal import Failure


def document(path: str, kind: str, *, allow_errors: bool = False) -> Document:
    """The document of a kind in a file that the validator finds no errors in.

    Raises:
        Failure: the file cannot be read, is of another kind, or has errors that are not allowed.
    """
    from trainspec_validate.check import InputError, validate  # noqa: PLC0415 - `--help` goes without

    try:
        report = validate([path])
    except InputError as error:
        raise Failure(str(error)) from error
    errors = [found for found in report.at_or_above(Severity.ERROR) if found.path == path]
    if errors and not allow_errors:
        raise Failure(f"{path}: {len(errors)} errors; see: trainspec-validate {path}, or go on with --force")
    for entry in report.documents:
        if entry.path == path and entry.kind == kind:
            return read(kind, load_text(entry.text.encode(), path).data)
    raise Failure(f"{path}: this is no {kind} that can be read; see: trainspec-validate {path}")


def write(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write every file, or none where one of them is there already, and print their names.

    Raises:
        Failure: a file is there, or cannot be written.
    """
    present = [path.as_posix() for path in texts if path.exists()]
    if present and not force:
        raise Failure(f"{', '.join(present)}: already there; --force overwrites, --output writes elsewhere")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise Failure(f"{error.filename}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    terminal.emit("".join(f"{path.as_posix()}\n" for path in texts))
