"""Counts files of other programs that `trainspec import` reads, for a run that found nothing to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.files import STDIN, files_of
from trainspec_validate.system.boundary import InputError

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".toml", ".sh", ".slurm", ".sbatch"})
_MOST_FILES: Final = 200
"""Files that are looked at: nothing waits long for a hint."""
_MOST_BYTES: Final = 131_072


def hint_of(arguments: Iterable[str]) -> str:
    """How many files below the arguments an import recognizes, and its command; empty where there is none."""
    files = list(islice(_files(arguments), _MOST_FILES + 1))
    known = [file for file in files[:_MOST_FILES] if _is_known(file)]
    if not known:
        return ""
    few = "at least " if len(files) > _MOST_FILES else ""
    are = "file is" if len(known) == 1 else "files are"
    return f"{few}{len(known)} {are} of formats that are imported: trainspec import {known[0].as_posix()}"


def _files(arguments: Iterable[str]) -> Iterator[Path]:
    for argument in arguments:
        for file in files_of(argument, _may_be_known) if argument != STDIN else ():
            if not isinstance(file, InputError) and _may_be_known(file.name) and not excluded.covers(file.path):
                yield file.path


def _may_be_known(name: str) -> bool:
    return PurePath(name).suffix.lower() in _SUFFIXES


def _is_known(path: Path) -> bool:
    from trainspec_validate.interop.fragment import ForeignFormatError  # noqa: PLC0415 - a run that judges needs none
    from trainspec_validate.interop.open import foreign_text  # noqa: PLC0415
    from trainspec_validate.interop.recognise import recognise  # noqa: PLC0415

    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        recognise(foreign_text(path))
    except (ForeignFormatError, OSError, RecursionError, ValueError):
        return False
    return True
