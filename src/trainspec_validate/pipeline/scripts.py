"""Finds the documents that a shell script writes itself, in here-documents: the job is launched with them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from trainspec_validate.pipeline.claims import is_document

IN_SCRIPT: Final = "holds a document in a here-document of a shell script"
_SUFFIXES: Final = frozenset(
    {".sh", ".bash", ".zsh", ".ksh", ".dash", ".sbatch", ".slurm", ".slrm", ".job", ".pbs", ".lsf", ".dockerfile"}
)
_FIRST_LINE: Final = re.compile(rb"#![^\n]{0,200}?\b(?:ba|z|k|da)?sh\b")
_OPENING: Final = re.compile(rb"<<(-?)[ \t]{0,100}(?:([\"'])([^\n]{1,100}?)\2|\\?([\w.+-]{1,100}))")
"""How a here-document is announced, with the word that ends it; POSIX.1-2024, Shell Command Language, section 2.7.4."""


def writes_document(name: str, content: bytes) -> bool:
    """Whether a shell script has a document of ours as a here-document."""
    if PurePath(name).suffix.lower() not in _SUFFIXES and not _FIRST_LINE.match(content):
        return False
    return any(is_document(body) for body in _here_documents(content))


def _here_documents(content: bytes) -> Iterator[bytes]:
    r"""The texts between the line behind a command and the word that ends it.

    >>> list(_here_documents(b"cat <<A >x\na: 1\nA\ncat <<-'B'\n\tb: 2\n\tB\ncat <<C\n"))
    [b'a: 1', b'b: 2']
    >>> list(_here_documents(b'cat <<"E O F"\na: 1\nE O F\n'))
    [b'a: 1']
    """
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    ends: dict[bytes, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        ends[line.strip()].append(number)
    place = 0
    while place < len(lines):
        opened, place = _OPENING.findall(lines[place]), place + 1
        for tabs, _, quoted, plain in opened:
            places = ends.get((quoted or plain).strip(), [])
            end = bisect_left(places, place)
            if end == len(places):
                break
            body, place = lines[place : places[end]], places[end] + 1
            yield b"\n".join(line.lstrip(b"\t") if tabs else line for line in body)
