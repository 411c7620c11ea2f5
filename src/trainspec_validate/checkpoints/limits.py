"""The limits on what one untrusted checkpoint may cost, for every reader of its files and for the table in SECURITY.md.

Together they keep a run below 512 MiB, whatever the files hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from trainspec_validate.system.budget import Count, Limit, OverLimitError


class UnreadableError(Exception):
    """A file cannot be taken for what its name says; the text says why."""


class LimitError(UnreadableError):
    """A file asks for more than a reader gives."""


class AmbiguousError(UnreadableError):
    """Programs would read different things in a file, so that what is judged is not what is loaded."""


_TREE = "a checkpoint directory"
ENTRIES = Limit(_TREE, 250_000, "entries")
DEPTH = Limit(_TREE, 32, "levels of directories")
_CHECKPOINT = "a checkpoint"
PIECES = Limit(_CHECKPOINT, 500_000, "tensors and other pieces of state")
NAME_CHARACTERS = Limit(_CHECKPOINT, 64_000_000, "characters of names of state")
SHARED = Limit("a file of a checkpoint", 1, "times its bytes in values of tensors")
"""Tensors that share their bytes would be read once for each of them."""
_JSON = "a header, index or manifest in JSON"
JSON_BYTES = Limit(_JSON, 100_000_000, "bytes")
"""The limit that safetensors sets for its header; https://github.com/huggingface/safetensors."""
JSON_LEVELS = Limit(_JSON, 64, "levels of nesting")
JSON_VALUE_BYTES = Limit(_JSON, 320_000_000, "bytes of values in memory")
_PICKLE = "a pickle"
PICKLE_OPERATIONS = Limit(_PICKLE, 30_000_000, "operations")
"""An index of DCP has some 106 for each piece, and as many pieces as its values may have take 24,000,000."""
ALL_OPERATIONS = Limit(_CHECKPOINT, 60_000_000, "operations of pickles, those of all files together")
"""Each takes 0.5 to 8 microseconds of one core."""
SPENT: ContextVar[Count | None] = ContextVar("SPENT", default=None)
"""Operations that were followed in the checkpoint which is read."""
PICKLE_VALUE_BYTES = Limit(_PICKLE, 384_000_000, "bytes of values in memory (about 225,000 pieces in an index of DCP)")
FILE_SECONDS = Limit("a file of a checkpoint", 1_200, "seconds of processor time")
"""A pickle with as many operations as it may have takes up to 240."""
PICKLE_LOOKS = Limit(_PICKLE, 20_000_000, "values in the arguments of its calls and in its keys, each time anew")
"""A pickle may give one long list to each of its calls, and would take the square of its size to follow."""
PICKLE_PLACES = Limit("a file with pickles", 100_000, "places behind the first pickle at which another one may begin")
STATE_LEVELS = Limit(_PICKLE, 1_000, "levels of values in values where the names of its state are read")
_ZIP = "a zip container"
ZIP_ENTRIES = Limit(_ZIP, 400_000, "entries")
ZIP_OTHERS = Limit(_ZIP, 20_000, "entries that are neither pickles nor values of a tensor")
"""Each is opened, to look for code."""
ZIP_DIRECTORY_BYTES = Limit(_ZIP, 64_000_000, "bytes of directory")
UNPACKED_BYTES = Limit("a compressed file of a checkpoint", 1_073_741_824, "bytes of a pickle, unpacked")
_TABLE = "an index of TensorFlow"
TABLE_BYTES = Limit(_TABLE, 268_435_456, "bytes")
TABLE_ENTRIES = Limit(_TABLE, 500_000, "entries")
TABLE_BLOCK_BYTES = Limit(_TABLE, 16_777_216, "bytes of one block")
TABLE_KEY_BYTES = Limit(_TABLE, 16_384, "bytes of one name")
TABLE_NAME_BYTES = Limit(_TABLE, 64_000_000, "bytes of names")
TABLE_NUMBERS = Limit(_TABLE, 2_000_000, "numbers of shapes and slices")
TABLE_SHARDS = Limit(_TABLE, 100_000, "files with values")
MESSAGE_FIELDS = Limit(_TABLE, 500_000, "fields of one message")
STORE_BYTES = Limit("a manifest of OCDBT", 16_777_216, "bytes")
STORE_PART_NUMBERS = Limit("a manifest or node of OCDBT", 4_000_000, "numbers")
_STORE = "a store of OCDBT"
STORE_UNPACKED_BYTES = Limit(_STORE, 134_217_728, "bytes of manifest and nodes, unpacked")
STORE_NUMBERS = Limit(_STORE, 20_000_000, "numbers in manifest and nodes")
STORE_FILES = Limit(_STORE, 500_000, "names of files in manifest and nodes")
STORE_NODES = Limit(_STORE, 500_000, "nodes")
_HDF5 = "a container of HDF5"
HDF5_NODES = Limit(_HDF5, 1_000_000, "groups, arrays and nodes")
HDF5_PART_BYTES = Limit(_HDF5, 16_777_216, "bytes of one part of its structure")
REGIONS = Limit("a header of VELOC", 100_000, "memory regions")
COMPARISONS = Limit("a tensor", 20_000_000, "comparisons of its pieces with each other")
POINTER_BYTES = Limit("a file that names the newest checkpoint", 1_024, "bytes")
STATE_BYTES = Limit("a file `checkpoint` of TensorFlow", 2_000_000, "bytes")
KEY_BYTES = Limit("a key in PEM", 1_000_000, "bytes")


@contextmanager
def within(kind: type[LimitError] = LimitError) -> Iterator[None]:
    """Refuse a file that passes a limit, in the words of a reader, by an error of a kind.

    Raises:
        LimitError: it passes one; the text names it.
    """
    try:
        yield
    except OverLimitError as error:
        raise kind(f"passes a limit: {error}") from error


@contextmanager
def as_one_checkpoint() -> Iterator[None]:
    """Count the operations of all pickles that are followed meanwhile as those of one checkpoint."""
    token = SPENT.set(Count(ALL_OPERATIONS))
    try:
        yield
    finally:
        SPENT.reset(token)
