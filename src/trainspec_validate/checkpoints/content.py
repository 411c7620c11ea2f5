"""Recognizes files that hold the state of training by their first bytes, whatever their names are."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.process import memory_of_the_machine


class Unpacker(Protocol):
    """Unpacks a compressed file piece by piece."""

    def decompress(self, data: bytes, most: int, /) -> bytes:
        """So many bytes at most."""
        ...


STATE_SUFFIXES: Final = (
    *(".bin", ".pt", ".pth", ".pth.tar", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".sav", ".pdparams", ".pdopt"),
    *(".npy", ".npz", ".h5", ".hdf5", ".keras", ".safetensors", ".msgpack", ".pt2"),
    *(".nemo", ".mar", ".onnx", ".gguf", ".ggml", ".tflite", ".engine", "saved_model.pb"),
)
"""Ends of names, in lower case, of files that hold the state of training; loaders unpickle most of them."""
FURTHER_SUFFIXES: Final = (".th", ".tar", ".model", ".chkpt", ".t7", ".params", ".weights", ".state", ".torch")
"""Ends of names that programs give to what `torch.save` writes, and others to other files: content decides."""
_RAW_SUFFIX: Final = ".bin"
"""Of files that may hold values alone, which may be zeros, unless a program gives the name to a container."""
_TORCH_NAME: Final = re.compile(
    r"(?:^|/)(?:diffusion_|)(?:pytorch_model|adapter_model|optimizer|scheduler|training_args|sampler|dl_state_dict)[^/]*\.bin$"
)
"""Names that Transformers, Diffusers, PEFT and Accelerate give to what `torch.save` writes."""
_START_BYTES: Final = 512
_BLOCK_BYTES: Final = 1_048_576
_TEXTS: Final = frozenset(
    {
        *(
            ".c",
            ".cc",
            ".cfg",
            ".conf",
            ".cpp",
            ".css",
            ".csv",
            ".cu",
            ".cuh",
            ".go",
            ".h",
            ".hpp",
            ".html",
            ".ini",
            ".ipynb",
        ),
        *(
            ".java",
            ".jpeg",
            ".jpg",
            ".js",
            ".json",
            ".jsonl",
            ".lock",
            ".log",
            ".md",
            ".mdx",
            ".pdf",
            ".png",
            ".proto",
            ".py",
        ),
        *(
            ".pyc",
            ".pyi",
            ".rs",
            ".rst",
            ".sh",
            ".so",
            ".svg",
            ".tex",
            ".toml",
            ".ts",
            ".tsv",
            ".txt",
            ".xml",
            ".yaml",
            ".yml",
        ),
    }
)
"""Ends of names of texts and of what is shown, which no loader of state opens."""
_ZIP: Final = b"PK\x03\x04"
_ZIP_NAME: Final = 30
"""Bytes of a local header before the name of its entry."""
_IN_ZIP: Final = re.compile(
    rb"(?:[^/\x00]+/)?(?:data\.pkl|\.format_version|byteorder|version|constants\.pkl|[^/\x00]+\.npy)$"
)
_IN_SAVE: Final = re.compile(rb"[^/\x00]+/(?:data\.pkl|\.format_version|byteorder|version)$")
"""First entry of what `torch.save` writes."""
_LEGACY_START: Final = bytes.fromhex("8002 8a0a 6cfc9c46f920 6aa850 19 2e")
"""Magic number of `torch.save` before PyTorch 1.6: torch/serialization.py, MAGIC_NUMBER."""
_PICKLE: Final = re.compile(
    rb"\x80[\x00-\x05](?:[\x8a\x8c}\](cKGUX)NMJ.q\x88\x89\x8b\x8f\x86-]|\x95.{6}\x00\x00)", re.DOTALL
)
_NAME: Final = rb"[A-Za-z_][\w.]{0,99}\n"
_NEXT: Final = rb"(?:p\d{1,9}\n|q[\x00-\x08])"
"""Number under which an operation keeps a value."""
_OLD_PICKLE: Final = re.compile(
    rb"c%(name)b%(name)b(?:\(|%(next)b|X.{3}\x00|S['\"]|V[^\n]{0,200}\n(?:%(next)b|\x85)|[)N][\x80-\xffR])"
    rb"|\((?:[dl]%(next)b|c%(name)b%(name)b|S['\"][^\n]{0,200}['\"]\n(?:%(next)b|[ci][A-Za-z_])|V[^\n]{0,200}\n%(next)b)"
    rb"|[}\])]%(next)b" % {b"name": _NAME, b"next": _NEXT},
    re.DOTALL,
)
"""Protocols 0 and 1, which have no mark of their own: the name of a class, or what is empty as yet."""
PICKLE_START: Final = re.compile(b"|".join((_PICKLE.pattern, _OLD_PICKLE.pattern)), re.DOTALL)
_ARCHIVE, PICKLED = "a zip container of state", "a pickle"
JUDGED: Final = frozenset({_ARCHIVE, PICKLED})
"""Files that are judged under any name."""
_STARTS: Final = (
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"GGUF", "GGUF"),
    ((0x112).to_bytes(8, "little"), "a file of parameters of MXNet"),
)
_APPLE_DOUBLE: Final = bytes.fromhex("0005160700020000")
"""Start of an AppleDouble file: https://www.rfc-editor.org/rfc/rfc1740, Appendix B."""
OF_MACOS: Final = "is an AppleDouble file, in which macOS keeps attributes of another file, and holds no state"
_SAFETENSORS = "safetensors"
TAR: Final = "a tar archive"
_TAR_MARK: Final = slice(257, 262)
_TAR_SUM: Final = slice(148, 156)
_MOST_PACKED_BYTES: Final = 1_048_576
_MOST_MEMORY: Final = 100_000_000
"""Bytes that a file may have its unpacker take."""
_UNPACKERS: Final[tuple[tuple[bytes, Callable[[], Unpacker]], ...]] = (
    *((start, lambda: zlib.decompressobj(47)) for start in (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")),
    (b"BZh", bz2.BZ2Decompressor),
    *((start, lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)) for start in (b"\xfd7zXZ\x00", b"\x5d\x00\x00")),
)
"""How compressed files begin, as joblib writes them, and what unpacks their start."""


def packed(kind: str) -> str:
    """Kind of the content of a compressed file of state, in words."""
    return f"a compressed {kind.removeprefix('a ').removeprefix('an ')}"


_ALL: Final = (_ARCHIVE, PICKLED, _SAFETENSORS, *(words for _, words in _STARTS))
UNJUDGED: Final = (*(words for words in _ALL if words not in JUDGED), *map(packed, _ALL))
"""Files that are judged under the names of their format only, or by no reader."""


def may_hold_state(name: str) -> bool:
    """Whether the start of a file of this name is worth a look.

    >>> [may_hold_state(name) for name in ("epoch.th", "model", "train.py")]
    [True, True, False]
    """
    return Path(name.lower()).suffix not in _TEXTS


def kind_of(path: Path) -> str:
    """Kind of a file of state, in words; empty for anything else and for a file that cannot be read."""
    try:
        with open_regular(path) as file:
            start = file.read(_START_BYTES)
            if start.startswith(tuple(mark for mark, _ in _UNPACKERS)):
                start += file.read(_MOST_PACKED_BYTES)
            return kind_of_start(start, path.stat().st_size)
    except OSError:
        return ""


def kind_of_start(start: bytes, size_bytes: int) -> str:
    """Kind of a file of state that has so many bytes and begins so, in words; empty for anything else."""
    for mark, unpacker in _UNPACKERS:
        if start.startswith(mark):
            inner = _kind_of_plain(_unpacked(start, unpacker()), 0)  # once only: some files unpack to themselves
            return packed(inner) if inner not in {"", TAR} else inner
    return _kind_of_plain(start, size_bytes)


def is_of_torch(path: Path) -> bool:
    """Whether a file begins as `torch.save` writes one, under a name that shows nothing else."""
    if not may_hold_state(path.name):
        return False
    try:
        with open_regular(path) as file:
            start = file.read(_START_BYTES)
    except OSError:
        return False
    if not start.startswith(_ZIP):
        return start.startswith(_LEGACY_START)
    return _IN_SAVE.match(start[_ZIP_NAME : _ZIP_NAME + int.from_bytes(start[26:28], "little")]) is not None


def is_of_macos(path: Path) -> bool:
    """Whether a file has the name and the start of those in which macOS keeps attributes of another file."""
    if not path.name.startswith("._"):
        return False
    try:
        with open_regular(path) as file:
            return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except OSError:
        return False


def is_blank(file: BinaryIO, name: str) -> bool:
    """Whether a file with the name of a file of state has zero bytes alone, up to its end; an empty one has none.

    >>> import io
    >>> [is_blank(io.BytesIO(bytes(9)), name) for name in ("last.ckpt", "pytorch_model.bin", "values.bin")]
    [True, True, False]
    """
    if not is_of_a_container(name):
        return False
    file.seek(0)
    is_empty = True
    while block := file.read(_BLOCK_BYTES):
        if block.count(0) < len(block):
            return False
        is_empty = False
    return not is_empty


def is_of_a_container(name: str) -> bool:
    """Whether a file with the name holds more than bare values.

    >>> [is_of_a_container(name) for name in ("pytorch_model.bin", "model.pt", "tokens.bin", "notes.txt")]
    [True, True, False, False]
    """
    name = name.lower()
    return name.endswith(STATE_SUFFIXES) and (not name.endswith(_RAW_SUFFIX) or bool(_TORCH_NAME.search(name)))


def _kind_of_plain(start: bytes, size_bytes: int) -> str:
    if start.startswith(_ZIP):
        length = int.from_bytes(start[26:28], "little")
        return _ARCHIVE if _IN_ZIP.match(start[_ZIP_NAME : _ZIP_NAME + length]) else ""
    if _PICKLE.match(start) or _OLD_PICKLE.match(start):
        return PICKLED
    if start[_TAR_MARK] == b"ustar" or _is_of_an_old_tar(start):
        return TAR
    length = int.from_bytes(start[:8], "little")
    if start[8:10] == b'{"' and length + 8 <= size_bytes:
        return _SAFETENSORS
    return next((words for begin, words in _STARTS if start.startswith(begin)), "")


def _is_of_an_old_tar(start: bytes) -> bool:
    """Whether a block is a header of tar without its mark: it has the sum of its bytes, with blanks in place of it."""
    stated = start[_TAR_SUM].strip(b" \0")
    if len(start) < _START_BYTES or not stated or stated.strip(b"01234567"):
        return False
    return int(stated, 8) == sum(start) - sum(start[_TAR_SUM]) + 8 * ord(" ")


def _unpacked(start: bytes, unpacker: Unpacker) -> bytes:
    """The first bytes that a compressed file unpacks to; none where it is damaged."""
    try:
        with memory_of_the_machine():
            return unpacker.decompress(start, _START_BYTES)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        return b""
