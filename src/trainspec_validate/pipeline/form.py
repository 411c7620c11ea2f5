"""Reads a document of a known kind, and refuses one that breaks its schema with the findings on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainspec_validate.documents.load import LoadError, read_file
from trainspec_validate.model.finding import Severity
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.engine import located
from trainspec_validate.pipeline.inputs import InvalidDocumentError
from trainspec_validate.pipeline.reading import read_content
from trainspec_validate.system.boundary import UnreadableError, unreadable, untrusted


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
        found = f"{len(wrong)} error{'' if len(wrong) == 1 else 's'}"
        raise InvalidDocumentError(
            f"{name}: no {kind} that can be used; {found}",
            located({name: file.source} if file.source else {}, wrong),
        )
    data: Mapping[str, Any] = file.source.data
    return data
