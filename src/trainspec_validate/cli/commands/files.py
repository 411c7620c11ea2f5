"""Reads typed documents for a command, and writes the files that it makes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.types import Document
from trainspec_validate.model.finding import Finding, Severity
from trainspec_validate.system.atomic import new_file, refuse_link, refuse_unwritable, write_all
from trainspec_validate.system.boundary import InputError, reason_of

_OUTPUTS = {"output", "plot", "directory"}
"""Parameters of commands that name what is written."""
_MOST_SHOWN = 10
"""Errors of a document that is refused, before the rest is counted."""


def document(path: str, kind: str, *, allow_errors: bool = False, unread: Collection[str] = ()) -> Document:
    """The document of a kind in a file that the validator finds no errors in.

    Errors below the top keys `unread`, which the command replaces, do not count.

    Raises:
        Failure: the file cannot be read, is of another kind, lacks what the kind needs, or has errors that are not
            allowed.
    """
    from trainspec_validate.pipeline.form import read_whole  # noqa: PLC0415 - `--help` goes without
    from trainspec_validate.pipeline.validation import validate  # noqa: PLC0415 - `--help` goes without

    try:
        report = validate([path])
    except InputError as error:
        raise Failure.of(error) from error
    path = Path(path).as_posix()
    every = (found for found in report.at_or_above(Severity.ERROR) if found.path == path)
    errors = [found for found in every if not (found.pointer and found.pointer[0] in unread)]
    found = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    kinds = [entry.kind for entry in report.documents if entry.path == path and entry.kind]
    if kind in kinds and errors and not allow_errors:
        raise Failure(*_shown(errors), f"{path}: {found}; see: trainspec-validate {path}, or continue with --force")
    for entry in report.documents:
        if entry.path == path and entry.kind == kind:
            try:
                found_document = read_whole(kind, entry.text, path)
            except InputError as error:
                raise Failure.of(error) from error
            unknowns = getattr(found_document, "unknowns", ())
            if unknowns:
                terminal.tell(f"{path}: not known, and taken by its default: {', '.join(unknowns)}")
            return found_document
    if kinds:
        raise Failure(f"{path}: a {kind} is wanted, this is a {kinds[0]}")
    why = f"{found}, and no {kind} can be read; " if errors else f"this is no {kind} that can be read; "
    raise Failure(*_shown(errors), f"{path}: {why}see: trainspec-validate {path}")


def _shown(errors: Sequence[Finding]) -> list[str]:
    """A line on each of the first errors of a document."""
    from trainspec_validate.report.places import position  # noqa: PLC0415 - `--help` goes without

    first = errors[:_MOST_SHOWN]
    return [f"{position(found.path, found.span, found.pointer)}: {_words(found)}" for found in first]


def _words(found: Finding) -> str:
    return f"{found.requirement}: {found.message}{f' ({found.help})' if found.help else ''}"


def errors_of(texts: Mapping[str, str], *given: str) -> list[str]:
    """Errors that the validator would find in texts by file name, which refer to the given files by name."""
    from trainspec_validate.pipeline.validation import validate  # noqa: PLC0415 - `--help` goes without

    with TemporaryDirectory(prefix="trainspec-") as place:
        paths = [Path(place) / name for name in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            with new_file(path) as file:
                file.write(text.encode())
        report = validate([*given, *paths])
    names = {path.as_posix(): path.name for path in paths}
    return [
        f"{names[found.path]}: {_words(found)}" for found in report.at_or_above(Severity.ERROR) if found.path in names
    ]


def refuse_present(paths: Collection[Path], *, force: bool, advice: str = "--force overwrites") -> None:
    """Say which files are there already.

    Raises:
        Failure: some are, and they are not to be overwritten, or are links.
    """
    # A link that leads nowhere is there too: writing would follow it.
    present = [path for path in paths if os.path.lexists(path)]
    refuse_inputs(paths)
    if present and not force:
        raise Failure(f"{', '.join(path.as_posix() for path in present)}: already there; {advice}")
    for path in present:
        try:
            refuse_link(path)
        except OSError as error:
            raise cannot_write(path, error) from error


def refuse_unplaced(paths: Iterable[Path]) -> None:
    """Say before long work, and before the first of several is written, which files could not be.

    Raises:
        Failure: the directory of one is absent, or the system grants no writing.
    """
    for path in paths:
        try:
            refuse_unwritable(path)
        except OSError as error:
            raise cannot_write(path, error) from error


def refuse_inputs(outputs: Iterable[Path], *, foreign: bool = False) -> None:
    """Refuse to write over what the command reads, also with --force, or into a checkpoint that it reads.

    `foreign` is for files of other programs: any file that is in a directory of them may be read.

    Raises:
        Failure: an output is one of the files that the command line names for reading, by whatever name.
    """
    from trainspec_validate.cli.inputs import is_found, is_input, is_inside  # noqa: PLC0415 - it imports the detection

    context = click.get_current_context(silent=True)
    if context is None:
        return
    named = list[str | Path]()
    for name, value in context.params.items():
        if name not in _OUTPUTS:
            named += [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str | Path)]
    directories = [path for path in named if os.path.isdir(path)]  # noqa: PTH112 - a word that is no name is none
    for output in outputs:
        is_read = foreign and os.path.lexists(output) and is_inside(output, directories)
        if is_read or is_input(output, named) or (directories and is_found(output, directories)):
            raise Failure(f"{output.as_posix()}: this is a file of the input; name another file")


def cannot_write(path: str | Path, error: OSError) -> Failure:
    """Error to raise where a file cannot be written."""
    place = error.filename or Path(path).as_posix()
    return Failure(f"{place}: cannot be written: {reason_of(error)}")


def write(texts: Mapping[Path, str], *, force: bool, advice: str = "--force overwrites") -> None:
    """Write every file, or none where one of them is there already or has no place, and print their names.

    Raises:
        Failure: a file is there, or cannot be written.
    """
    refuse_present(texts, force=force, advice=advice)
    try:
        write_all({path: text.encode() for path, text in texts.items()})
    except OSError as error:
        raise cannot_write(next(iter(texts)), error) from error
    for path in texts:
        terminal.say(path.as_posix())
