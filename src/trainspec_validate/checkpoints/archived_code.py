"""Finds programs in zip containers, which loaders of PyTorch run: of TorchScript, torch.package and torch.export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainspec_validate.checkpoints.zips import Zip

_KINDS: Final = (
    (re.compile(r"(?:^|/)code/|(?:^|/)constants\.pkl$", re.IGNORECASE), "the code of TorchScript in it"),
    (re.compile(r"\.(?:pyc?|so|pyd|dll|dylib)$|(?:^|/)\.data/extern_modules$", re.IGNORECASE), "a program in it"),
    (re.compile(r"(?:^|/)(?:archive_format|serialized_exported_program\.json)$"), "the program of torch.export in it"),
)
"""Entries by which loaders take a container for one with a program: torch.load gives those of TorchScript to torch.jit,
which runs `__setstate__`; torch.package imports modules; torch.export evaluates the sizes of its graph as text."""
_CONTAINER: Final = b"PK\x03\x04"


def programs_in(container: Zip) -> Iterator[str]:
    """Programs and inner containers, each in words with the name of one entry, that loaders run or unpickle."""
    names = container.names()
    for pattern, words in _KINDS:
        if name := next(filter(pattern.search, names), ""):
            yield f"{words} ({name})"
    for name in container.unnamed():
        with container.stream(name) as file:
            if file.read(len(_CONTAINER)) == _CONTAINER:
                yield f"the pickles of a container in it ({name})"
                return
