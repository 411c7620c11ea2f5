"""Recognises formats by content where names show none: loaders unpickle a file under any name."""

from __future__ import annotations

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.format_table import FORMATS
from trainspec_validate.checkpoints.formats import torch_zip
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pickles import Content, code_at_start
from trainspec_validate.checkpoints.view import Archive, Checkpoint

_OF_OTHERS = tuple(suffix for entry in FORMATS for suffix in entry.whole)
"""Ends of names whose reader judges the whole file, and says so when it is none of its own."""
_ZIP_START = b"PK\x03\x04"


def read(checkpoint: Checkpoint) -> None:
    """Add what zip containers and pickles hold that no other reader takes; it comes after all of them."""
    taken = {archive.path for archive in checkpoint.archives}
    for path, fact in checkpoint.files.items():
        if fact.kind == "file" and path not in taken and not path.endswith(_OF_OTHERS):
            with judged(checkpoint, path):
                _read_file(checkpoint, path)


def _read_file(checkpoint: Checkpoint, path: str) -> None:
    is_named = torch_zip.is_named(path)
    try:
        with open_file(checkpoint.root / path) as file:
            start = file.read(len(_ZIP_START))
            if start == _ZIP_START or start[:2] in torch_zip.PICKLE_STARTS:
                denied = []
            else:
                file.seek(0)
                denied = code_at_start(file)
    except OSError as error:
        if is_named:
            return  # told by its reader
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if denied:
        torch_zip.tell_code(checkpoint, path, Content(None, denied))
    elif not is_named and start == _ZIP_START:
        checkpoint.examined |= {"container", "limits", "code", "paths"}
        torch_zip.read_archive(checkpoint, Archive(path))
    elif not is_named and start[:2] in torch_zip.PICKLE_STARTS:
        checkpoint.examined |= {"container", "limits", "code"}
        torch_zip.read_bare(checkpoint, path)
