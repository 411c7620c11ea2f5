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
PACKED_IN_SCRIPT: Final = "holds a document in base64 in a shell script"
_SUFFIXES: Final = frozenset(
    {".sh", ".bash", ".zsh", ".ksh", ".dash", ".sbatch", ".slurm", ".slrm", ".job", ".pbs", ".lsf", ".dockerfile"}
)
_FIRST_LINE: Final = re.compile(rb"#![^\n]{0,200}?\b(?:ba|z|k|da)?sh\b")
_OPENING: Final = re.compile(
    rb"<<(-?)[ \t]{0,100}((?:\\[^\n]|\"[^\"\n]{0,100}\"|'[^'\n]{0,100}'|[^\s\"'\\<>|&;()]){1,100})"
)
"""How a here-document is announced, with the word that ends it; POSIX.1-2024, Shell Command Language, section 2.7.4."""
_QUOTED: Final = re.compile(rb"\\(.)|\"([^\"]*)\"|'([^']*)'", re.DOTALL)
_MOST_NESTED: Final = 3
"""Here-documents in here-documents, as of a script that a script sends elsewhere."""


def is_script(name: str, content: bytes) -> bool:
    """Whether a text is a shell script, by its name or its first line."""
    return PurePath(name).suffix.lower() in _SUFFIXES or _FIRST_LINE.match(content) is not None


def writes_document(name: str, content: bytes) -> bool:
    """Whether a shell script has a document of ours as a here-document."""
    return is_script(name, content) and any(is_document(body) for body in _here_documents(content))


def _here_documents(content: bytes, depth: int = _MOST_NESTED) -> Iterator[bytes]:
    r"""The texts between the line behind a command and the word that ends it, or the end of the script.

    >>> list(_here_documents(b"cat <<A >x\na: 1\nA\ncat <<-'B'\n\tb: 2\n\tB\ncat <<C\n"))
    [b'a: 1', b'b: 2']
    >>> list(_here_documents(b'cat <<"E O F"\na: 1\nE O F\ncat <<E"O"F\nb: 2\nEOF\ncat <<""\nc: 3\n\n'))
    [b'a: 1', b'b: 2', b'c: 3']
    >>> list(_here_documents(b"ssh h <<A\ncat <<B\na: 1\nB\nA\n"))
    [b'cat <<B\na: 1\nB', b'a: 1']
    """
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    ends: dict[bytes, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        ends[line.strip()].append(number)
    place, is_open = 0, False
    while place < len(lines):
        opened, place = _OPENING.findall(lines[place]), place + 1
        for tabs, word in opened:
            places = ends.get(_unquoted(word).strip(), [])
            end = bisect_left(places, place)
            if end == len(places):
                if not is_open and place < len(lines) - 1:
                    yield b"\n".join(lines[place:])
                is_open = True
                break
            body, place = lines[place : places[end]], places[end] + 1
            text = b"\n".join(line.lstrip(b"\t") if tabs else line for line in body)
            yield text
            if depth > 1 and b"<<" in text:
                yield from _here_documents(text, depth - 1)


def _unquoted(word: bytes) -> bytes:
    return _QUOTED.sub(lambda found: found[1] or found[2] or found[3] or b"", word)
