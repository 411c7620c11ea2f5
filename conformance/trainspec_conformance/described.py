"""Judges the documents by which a stack describes itself, on the copies kept with the evidence."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path

from trainspec_conformance.reading import DocumentError
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import InputError

DIRECTORY = "documents"
MAX_DOCUMENT_BYTES = 16_000_000
MAX_ERRORS = 200


def gather(descriptor: Path, stack: StackDescriptor, out: Path) -> tuple[str, ...]:
    """Copy the documents of a stack below the directory of a report with their relative paths; gives the paths.

    Raises:
        DocumentError: one is no file, or too large.
    """
    files = [Path(os.path.normpath(descriptor.resolve().parent / name)) for name in stack.documents]
    for file in files:
        if not file.is_file():
            raise DocumentError(descriptor.as_posix(), 1, f"documents: {file} is no file")
        if file.stat().st_size > MAX_DOCUMENT_BYTES:
            raise DocumentError(descriptor.as_posix(), 1, f"documents: {file} is too large")
    if not files:
        return ()
    above = Path(os.path.commonpath([file.parent for file in files]))
    found = []
    for file in files:
        copy = out / DIRECTORY / file.relative_to(above)
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, file.read_bytes())
        found.append(copy.relative_to(out).as_posix())
    return tuple(found)


def errors(out: Path, documents: tuple[str, ...]) -> tuple[str, ...]:
    """Errors of the validator on the copies, each as `file: id: message`; empty where there are none.

    Errors that a comment silences count too: a level says what was shown, and a reason shows nothing.
    """
    if not documents:
        return ()
    from trainspec_validate.model.finding import Severity  # noqa: PLC0415
    from trainspec_validate.pipeline.validation import Terms, examine  # noqa: PLC0415 - most runs have no documents

    with chdir(out / DIRECTORY):  # they can refer to each other, and to nothing above them
        try:
            report = examine([Path(name).relative_to(DIRECTORY) for name in documents], Terms(num_workers=1))
        except (InputError, OSError) as error:
            return (f"{DIRECTORY}: unreadable: {error}",)
    silenced = [one.finding for one in report.suppressed if one.finding.severity is Severity.ERROR]
    found = [*report.at_or_above(Severity.ERROR), *silenced][:MAX_ERRORS]
    return tuple(f"{DIRECTORY}/{one.path}: {one.requirement}: {one.message}" for one in found)
