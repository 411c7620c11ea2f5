"""Reads one job of MaxText from all of its files: which setting counts is in MaxText, not in the order of files.

base.yml and the configurations that inherit from it come first, then the file of the model that `model_name` names,
then the arguments of the command (`initialize` in AI-Hypercomputer/maxtext@e591f30c:src/maxtext/configs/pyconfig.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment, Remark
from trainspec_validate.interop.readers import maxtext
from trainspec_validate.interop.readers.maxtext import Background, Settings

_FORMAT = "maxtext-settings"


@dataclass(frozen=True, slots=True)
class _File:
    """One file, with its position among all."""

    at: int
    name: str
    text: ForeignText
    settings: Settings


def with_its_files(fragments: Sequence[Fragment], texts: Sequence[ForeignText]) -> list[Fragment]:
    """The fragments, in which that of the job holds what all of its files say, and theirs nothing.

    Raises:
        ForeignFormatError: files of several jobs or models are given with one that may belong to either.
    """
    found = list(fragments)
    files = [
        _File(at, text.name.rpartition("/")[2], text, maxtext.settings_of(text))
        for at, (fragment, text) in enumerate(zip(fragments, texts, strict=True))
        if fragment.format == _FORMAT
    ]
    if len(files) < 2:
        return found
    models = [file for file in files if file.settings.only_model]
    chain = _chain([file for file in files if not file.settings.only_model])
    if chain is None or (len(models) > 1 and not chain):
        if models or any(file.settings.is_base for file in files):
            raise ForeignFormatError(
                "these are files of several jobs or models of MaxText", None, "import the files of one job at a time"
            )
        return found
    if not chain:
        return found
    defaults: dict[str, Any] = {}
    for file in chain[:0:-1]:
        defaults.update(file.settings.values)
    job = chain[0]
    name = maxtext.model_in({**defaults, **job.settings.values})
    own = next((file for file in models if name is None or file.name.rpartition(".")[0] == name), None)
    given = frozenset(file.name for file in files)
    found[job.at] = maxtext.read(job.text, Background(defaults, own.settings.values if own else {}, given))
    for file in files:
        if file is not job:
            left = [Remark(f"it is not the file of the model {name}, and is left out")] if file in models else []
            remarks = () if file is own else tuple(left)
            found[file.at] = replace(fragments[file.at], facts={}, unknown=(), remarks=remarks, derived=None)
    return found


def _chain(files: Sequence[_File]) -> list[_File] | None:
    """The job and what it starts from, the nearest first; None where they are not those of one job."""
    by_name = {file.name: file for file in files}
    inherited = {name for file in files for name in file.settings.starts_from}
    jobs = [file for file in files if file.name not in inherited and not (file.settings.is_base and len(files) > 1)]
    if not files:
        return []
    if len(by_name) < len(files) or len(jobs) != 1:
        return None
    chain, waiting = [jobs[0]], list(jobs[0].settings.starts_from)
    while waiting:
        file = by_name.get(waiting.pop(0))
        if file is not None and file not in chain:
            chain.append(file)
            waiting.extend(file.settings.starts_from)
    chain += [file for file in files if file.settings.is_base and file not in chain]
    return chain if len(chain) == len(files) else None
