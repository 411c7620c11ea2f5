"""Recognises files of several runs in one directory, by the fold or seed in their names."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

from trainspec_validate.checkpoints.content import STATE_SUFFIXES, is_of_torch
from trainspec_validate.checkpoints.limits import ENTRIES

_RUN = re.compile(
    r"(?:^|(?<=[-_.]))(?P<word>fold|seed)[-_=]?(?P<number>[0-9]{1,9})(?=[-_.]|$)", re.ASCII | re.IGNORECASE
)


def several_runs(root: Path) -> str:
    """Why files of a directory are of several runs, in words; empty where they are not, as far as names say."""
    first: dict[str, re.Match[str]] = {}
    for match in filter(None, map(_RUN.search, _files_in(root))):
        before = first.setdefault(match["word"].lower(), match)
        if int(before["number"]) != int(match["number"]):
            kind = match["word"].lower()
            return (
                f"{root.as_posix()}: {before.string} and {match.string} are of runs with another {kind} each, as their "
                "names say, and which one to resume is not known; name the file to resume from"
            )
    return ""


def _files_in(root: Path) -> list[str]:
    """The files of state in a directory."""
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in islice(entries, int(ENTRIES.most)) if not entry.is_dir())
    except OSError:
        return []
    return [
        name
        for name in names
        if name.lower().endswith(STATE_SUFFIXES) or (_RUN.search(name) and is_of_torch(root / name))
    ]
