"""Lists the checkpoint formats in the order of their readers, and the names of files that show them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainspec_validate.checkpoints.content import STATE_SUFFIXES, UNJUDGED
from trainspec_validate.checkpoints.view import MANIFEST_NAME
from trainspec_validate.system.packings import PACKINGS, is_archive

_BACKUP = re.compile(r"(?:[._-](?:backup|bak|copy|old|orig|part|partial|prev|save|tmp)[0-9]*|\.[0-9]{1,3}|~)+$")
"""Ends of names of what is kept next to a file."""
_ARRAYS = {".zarray", "zarr.json"}
_ORBAX = ("_CHECKPOINT_METADATA", "manifest.ocdbt")
ARCHIVE = "is an archive, and its files are not looked at"
ARRAYS = "holds arrays of Zarr, and is in no checkpoint that was found"
N5 = "holds arrays of N5, and is in no checkpoint that was found"
_NAMED = "has the name of a file of state, and is in no checkpoint that was found"
_BEGINS = "begins as "
STATE = _BEGINS + "{} does, and is in no checkpoint that was found"
BINARY = "is no text, and is in no checkpoint that was found"
_SAVE = "save it in a format of checkpoints, such as safetensors,"
REMEDIES = {
    ARCHIVE: "unpack it",
    ARRAYS: _SAVE,
    N5: _SAVE,
    BINARY: _SAVE,
    **{STATE.format(kind): _SAVE for kind in UNJUDGED},
}
"""Action by which an entry that cannot be judged when it is named is judged."""
_BARE = re.compile(r"(?:checkpoint|ckpt|model|params|state|weights)(?:[-_]?[0-9]{1,12})?", re.IGNORECASE)


def left_out(name: str) -> str:
    """Why a file is left out where it is in no checkpoint that was found; empty for the name of anything else.

    >>> left_out("model.pt.bak") and left_out("model.pt.gz")
    'has the name of a file of state, and is in no checkpoint that was found'
    """
    name = name.lower()
    plain = _BACKUP.sub("", name)
    for suffix in PACKINGS:
        plain = plain.removesuffix(suffix)
    if plain.endswith(STATE_SUFFIXES):
        return _NAMED
    if name in _ARRAYS:
        return ARRAYS
    return ARCHIVE if is_archive(plain) else ""


def is_of_state(reason: str) -> bool:
    """Whether a file that is left out for a reason is judged in a checkpoint, whose readers look at every such file."""
    return reason in {_NAMED, ARRAYS, N5, BINARY} or reason.startswith(_BEGINS)


def is_bare(name: str) -> bool:
    """Whether some libraries save state under a name that others use for text.

    >>> [is_bare(name) for name in ("checkpoint_100", "model", "Makefile")]
    [True, True, False]
    """
    return _BARE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class CheckpointFormat:
    """One format: the module of its reader, and the names by which a directory is a checkpoint."""

    module: str
    """Module of `checkpoints.formats`; its function `read` adds what the format says to a checkpoint."""
    names: tuple[str, ...] = ()
    """Names of files that make their directory a checkpoint."""
    suffixes: tuple[str, ...] = ()
    """Ends of such names."""
    whole: tuple[str, ...] = ()
    """Ends of names of files that the reader judges to the last byte, so that no other looks at their content."""
    roots: tuple[str, ...] = ()
    """Names of files whose directory holds all directories below it as its parts."""


FORMATS = (
    CheckpointFormat("manifest", names=(MANIFEST_NAME,)),
    CheckpointFormat(
        *("safetensors", ("model.safetensors.index.json",)), suffixes=(".safetensors",), whole=(".safetensors",)
    ),
    CheckpointFormat("huggingface", names=("pytorch_model.bin.index.json",)),
    CheckpointFormat("torch_zip"),
    CheckpointFormat(*("dcp", (".metadata", ".metadata.tmp")), suffixes=(".distcp",), whole=(".distcp", ".metadata")),
    CheckpointFormat("deepspeed", suffixes=("_model_states.pt", "_optim_states.pt")),
    CheckpointFormat("megatron"),
    CheckpointFormat("olmo_core"),
    CheckpointFormat("nanotron"),
    CheckpointFormat("accelerate"),
    CheckpointFormat("orbax", names=_ORBAX, roots=_ORBAX),
    CheckpointFormat("tensorflow"),
    CheckpointFormat("keras", suffixes=(".keras", ".weights.h5"), whole=(".keras",)),
    CheckpointFormat("nearby"),
    CheckpointFormat("residue"),
    CheckpointFormat("by_content"),
)
"""In the order in which they look at a checkpoint; the last take what the others left."""
