"""Reads the operations of a pickle one by one, in bounded memory."""

from __future__ import annotations

import errno
import io
import pickletools
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.limits import PICKLE_OPERATIONS
from trainspec_validate.checkpoints.pickle_values import Skipped
from trainspec_validate.system.budget import Count

_FIXED = {"uint1": "<B", "uint2": "<H", "int4": "<i", "uint4": "<I", "uint8": "<Q", "float8": ">d"}
"""Forms of arguments with a fixed size, by their names in `pickletools`."""
_CODES: dict[bytes, tuple[str, struct.Struct | None, Any]] = {
    operation.code.encode("latin-1"): (
        operation.name,
        struct.Struct(_FIXED[operation.arg.name]) if operation.arg and operation.arg.name in _FIXED else None,
        operation.arg and operation.arg.reader,
    )
    for operation in pickletools.opcodes
}
"""Name of each operation, the form of its argument where the size is fixed, and what reads it."""
_MAX_HELD_BYTES = 65_536
"""Of one text, number or line; a longer one is passed over and stands for itself. No key or index has such a text."""
# What Python takes for a value of each operation, at most, with its slots on the stack; measured with 3.11.
COSTS = {
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET", "LIST", "FROZENSET", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), 104),
    **dict.fromkeys(("EMPTY_DICT", "DICT"), 152),
    **dict.fromkeys(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "INST", "OBJ", "BUILD"), 216),
    **dict.fromkeys(("PERSID", "BINPERSID"), 416),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"), 216),
}
_LONG_NUMBER = re.compile(rb"[-+]?\d{1000,}+L?\n?")
"""More digits than Python makes a number of by default, be they zeros; the limit is another one in other versions."""
_TAIL_BYTES = 64
"""Of the end of a longer line."""
FETCHES = frozenset({"GET", "BINGET", "LONG_BINGET"})
LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)


class _SkippedError(Exception):
    """A value was passed over."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self.num_bytes = num_bytes


class _Source:
    """A file that is read operation by operation and never whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.line = b""
        """The last line that was read, or the end of a long one."""

    def read(self, size: int) -> bytes:
        """The next bytes of a value.

        Raises:
            _SkippedError: they are too many to be held, and were passed over.
            ValueError: they end beyond the largest file that the system can have.
        """
        if size > _MAX_HELD_BYTES:
            try:
                self._file.seek(size, io.SEEK_CUR)
            except (OSError, OverflowError) as error:
                if isinstance(error, OSError) and error.errno not in {errno.EINVAL, errno.EOVERFLOW}:
                    raise
                raise ValueError("a value ends beyond any file") from error  # its length is wrong, the storage is not
            raise _SkippedError(size)
        return self._file.read(size)

    def readline(self) -> bytes:
        """The next line.

        Raises:
            _SkippedError: it is too long to be held, and was passed over.
        """
        part = self.line = self._file.readline(_MAX_HELD_BYTES)
        num_bytes = len(part)
        while len(part) == _MAX_HELD_BYTES and not part.endswith(b"\n"):
            part = self._file.readline(_MAX_HELD_BYTES)
            num_bytes += len(part)
            self.line = (self.line + part)[-_TAIL_BYTES:]
        if num_bytes > len(self.line) and not part.endswith(b"\n"):
            raise ValueError("a line has no end")
        if num_bytes > len(self.line):
            raise _SkippedError(num_bytes)
        return self.line


def operations(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The name and the argument of each operation, as `pickletools.genops` gives them, in bounded memory."""
    source, take, known_as = _Source(file), file.read, _CODES.get
    while code := take(1):
        known = known_as(code)
        if known is None:
            raise ValueError(f"the operation {code!r} is unknown")
        name, form, reader = known
        if reader is None:
            yield name, None
        elif form is not None:
            content = take(form.size)
            if len(content) < form.size:
                raise ValueError(f"the file ends within the operation {name}")
            yield name, form.unpack(content)[0]
        else:
            yield name, _argument(name, reader, source)


def _argument(name: str, reader: Callable[[Any], Any], source: _Source) -> Any:
    try:
        return reader(source)
    except _SkippedError as skipped:
        if name in {"PUT", "GET"}:
            return int(source.line.strip().lstrip(b"0") or b"0")  # after zeros; none is larger
        return Skipped(skipped.num_bytes)
    except ValueError as error:
        return _read_otherwise(name, source.line, error)


def _read_otherwise(name: str, line: bytes, error: ValueError) -> Any:
    """The argument of an operation that unpicklers read, and `pickletools` does not."""
    if name == "STRING" and isinstance(error, UnicodeDecodeError):
        return Skipped(len(line))  # a loader may be told another encoding
    if name in {"PUT", "GET"} and _LONG_NUMBER.fullmatch(line):
        return int(line.strip().lstrip(b"0")[-_TAIL_BYTES:] or b"0")
    if name not in {"INT", "LONG"}:
        raise error
    return Skipped(len(line)) if _LONG_NUMBER.fullmatch(line) else int(line.rstrip(b"L\n"), 0)  # such as 0x10


@dataclass(slots=True)
class Fetched:
    """Numbers of the memo, in a byte each; those that are too large for any memo count as held."""

    marks: bytearray = field(default_factory=bytearray)

    def add(self, number: int) -> None:
        """Put a number in."""
        if 0 <= number < PICKLE_OPERATIONS.most:
            self.marks.extend(bytes(max(0, number + 1 - len(self.marks))))
            self.marks[number] = 1

    def __contains__(self, number: int) -> bool:
        if 0 <= number < len(self.marks):
            return bool(self.marks[number])
        return number >= PICKLE_OPERATIONS.most


def fetched(file: BinaryIO) -> Fetched:
    """The numbers under which the next pickle fetches values again; the file is left where it was.

    Raises:
        OverLimitError: the pickle has more operations than the limit.
    """
    begin = file.tell()
    found, num_operations = Fetched(), Count(PICKLE_OPERATIONS)
    with suppress(ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError):
        for name, argument in operations(file):
            num_operations.add()
            if name == "STOP":
                break
            if name in FETCHES:
                found.add(int(argument))
    file.seek(begin)
    return found
