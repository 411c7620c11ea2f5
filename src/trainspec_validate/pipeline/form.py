"""Reads a document of a known kind, and refuses one that breaks its schema with the findings on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trainspec_validate.documents.load import LoadError, load_text, read_file
from trainspec_validate.documents.types import Document, read
from trainspec_validate.model.finding import Finding, Report, Severity
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.engine import located
from trainspec_validate.pipeline.inputs import InvalidDocumentError
from trainspec_validate.pipeline.reading import read_content, unknown_required_keys
from trainspec_validate.system.boundary import InputError, UnreadableError, unreadable, untrusted

Kind = TypeVar("Kind", bound=Document)
_MAX_KEYS = 4


def read_form(kind: str, source: Path | str | bytes, name: str) -> Mapping[str, Any]:
    """The plain values of a document that satisfies the schema of its kind.

    Args:
        kind: such as `TrainingPlan`.
        source: a path, or a text.
        name: what findings call it.

    Raises:
        InvalidDocumentError: the document is of another kind, or has errors of form.
        UnreadableError: the file cannot be read.
    """
    try:
        with untrusted(unreadable(name)):
            content = read_file(source) if isinstance(source, Path) else source
    except LoadError as error:
        raise UnreadableError(name, error.message, error.help) from error
    with untrusted(unreadable(name)):
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        file = read_content(load_index(), content, name)
    if file.kind not in {None, kind}:
        raise InvalidDocumentError(f"{name}: a {kind} is wanted, this is a {file.kind}")
    wrong = [finding for finding in file.findings if finding.severity is Severity.ERROR]
    if wrong or file.source is None:
        places = located({name: file.source} if file.source else {}, wrong)
        raise _invalid(f"{name}: no {kind} that can be used", places)
    data: Mapping[str, Any] = file.source.data
    _refuse_unknowns(kind, data, name)
    return data


def _refuse_unknowns(kind: str, data: Mapping[str, Any], name: str) -> None:
    keys = unknown_required_keys(kind, data)
    if keys:
        listed = ", ".join(keys[:_MAX_KEYS]) + (f" and {len(keys) - _MAX_KEYS:,} more" if len(keys) > _MAX_KEYS else "")
        raise InputError(f"{name}: listed as unknown, and needed here: {listed}")


def read_whole(kind: str, text: str, name: str) -> Document:
    """The typed document of a text in which the validator finds no errors of form.

    Raises:
        InputError: it lists keys as unknown that its schema requires.
    """
    data = load_text(text.encode(), name).data
    _refuse_unknowns(kind, data, name)
    return read(kind, data)


def refuse_errors(report: Report, words: str, path: str | None = None) -> None:
    """Refuse documents in which the validator finds errors.

    Args:
        report: what the validator found.
        words: what follows from errors.
        path: the document that counts; all of them without it.

    Raises:
        InvalidDocumentError: there are errors; it carries them.
    """
    wrong = [each for each in report.at_or_above(Severity.ERROR) if path in {None, each.path}]
    if wrong:
        raise _invalid(words, wrong)


def typed(report: Report, name: str, kind: type[Kind]) -> Kind:
    """The typed document that a report calls so.

    Raises:
        InputError: there is none, it is of another kind, or it lists keys as unknown that its schema requires.
    """
    found = [entry for entry in report.documents if entry.path == name]
    if len(found) != 1 or found[0].kind != kind.__name__:
        of_other = f", this is a {found[0].kind}" if len(found) == 1 and found[0].kind else ""
        raise InputError(f"{name}: a {kind.__name__} is wanted{of_other}")
    document = read_whole(found[0].kind, found[0].text, name)
    if not isinstance(document, kind):
        raise TypeError(f"{name} was read as a {type(document).__name__}")
    return document


def _invalid(words: str, wrong: Sequence[Finding]) -> InvalidDocumentError:
    return InvalidDocumentError(f"{words}; {len(wrong)} error{'' if len(wrong) == 1 else 's'}", wrong)
