"""Counts files of other programs that `trainspec import` reads, for a run that found nothing to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.files import STDIN, files_of
from trainspec_validate.system.boundary import InputError, untrusted

if TYPE_CHECKING:
    from trainspec_validate.interop.formats import Format

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".toml", ".sh", ".slurm", ".sbatch"})
_MOST_FILES: Final = 200
"""Files that are looked at: nothing waits long for a hint."""
_MOST_BYTES: Final = 131_072
_MOST_READ: Final = 5
"""Files that an import is tried on for one that it takes."""


def hint_of(arguments: Iterable[str]) -> str:
    """How many files below the arguments an import recognizes, and its command for one; empty where there is none."""
    files = list(islice(_files(arguments), _MOST_FILES + 1))
    known = [file for file in files[:_MOST_FILES] if _is_known(file)]
    if not known:
        return ""
    few = "at least " if len(files) > _MOST_FILES else ""
    are = "file is" if len(known) == 1 else "files are"
    example = next(filter(_is_taken, known[:_MOST_READ]), None)
    how = f"trainspec import {example.as_posix()}" if example else "trainspec import FILE says what each lacks"
    return f"{few}{len(known)} {are} of formats that are imported: {how}"


def _files(arguments: Iterable[str]) -> Iterator[Path]:
    for argument in arguments:
        for file in files_of(argument, _may_be_known) if argument != STDIN else ():
            if not isinstance(file, InputError) and _may_be_known(file.name) and not excluded.covers(file.path):
                yield file.path


def _may_be_known(name: str) -> bool:
    return PurePath(name).suffix.lower() in _SUFFIXES


def _is_known(path: Path) -> bool:
    return _format_of(path) is not None


def _is_taken(path: Path) -> bool:
    """Whether an import of the file alone makes a document."""
    from trainspec_validate.interop.fragment import ForeignFormatError  # noqa: PLC0415 - a run that judges needs none
    from trainspec_validate.interop.merge import merge  # noqa: PLC0415
    from trainspec_validate.interop.open import foreign_text  # noqa: PLC0415

    form = _format_of(path)
    try:
        with untrusted(lambda reason, remedy: ForeignFormatError(reason, None, remedy)):
            return form is not None and bool(merge([form.read(foreign_text(path))]).facts)
    except (ForeignFormatError, OSError, RecursionError, ValueError):
        return False


def _format_of(path: Path) -> Format | None:
    from trainspec_validate.interop.fragment import ForeignFormatError  # noqa: PLC0415 - a run that judges needs none
    from trainspec_validate.interop.open import foreign_text  # noqa: PLC0415
    from trainspec_validate.interop.recognise import recognise  # noqa: PLC0415

    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return recognise(foreign_text(path))
    except (ForeignFormatError, OSError, RecursionError, ValueError):
        return None
