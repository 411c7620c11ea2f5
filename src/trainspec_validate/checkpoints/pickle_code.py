"""Searches files of any kind for code that unpickling them would run."""

from __future__ import annotations

import ast
import io
import math
import re
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.content import PICKLE_START
from trainspec_validate.checkpoints.limits import PICKLE_OPERATIONS, PICKLE_PLACES, UNPACKED_BYTES, LimitError
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pickle_content import Content
from trainspec_validate.checkpoints.pickles import NUMPY_START, Machine
from trainspec_validate.system.budget import Count, OverLimitError
from trainspec_validate.system.process import lacks_memory

_SIGNS_OF_OBJECTS = (b"O", b"object", b"\\")
"""One of these is in each header of an array of NumPy that holds objects, and in few others."""
_MAX_ARRAY_HEADER_BYTES = 65_536
"""NumPy itself reads no longer ones than 10,000 where objects are not allowed."""
_PLAIN_ARRAY = re.compile(rb"'descr':\s{0,9}'[<>|=]?([biufcSUVMm])(\d{1,9})(?:\[\w{1,9}\])?'")
_SHAPE = re.compile(rb"'shape':\s{0,9}\(([\d,\s]{0,1000})\)")
"""As NumPy writes them: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html."""
_MOST_ARRAYS = 100_000
_BLOCK_BYTES = 65_536
_START_BYTES = 512
"""A longer start of a pickle is found in one block alone."""
_NESTED_BYTES = 256
"""A shorter text cannot nest as deep as makes the parser of Python, at 6000 calls, raise a `MemoryError`."""


def code_of(file: BinaryIO) -> Content:
    """The same as `code_at_start`, of all pickles one after the other, and of arrays of NumPy before them.

    Objects of an array are a pickle after its header. Numbers of an array are never unpickled, so what they look like
    by chance calls nothing.
    """
    for _ in range(_MOST_ARRAYS):
        begin = file.tell()
        if file.read(len(NUMPY_START)) != NUMPY_START:
            file.seek(begin)
            return _joined(file, code_at_start(file))
        width = 2 if file.read(2)[:1] == b"\x01" else 4
        num_bytes = int.from_bytes(file.read(width), "little")
        start = file.tell()
        header = file.read(min(num_bytes, _MAX_ARRAY_HEADER_BYTES))
        if num_bytes > _MAX_ARRAY_HEADER_BYTES or _says_objects(header):
            file.seek(start + num_bytes)
            return _joined(file, code_at_start(file, is_pickle=True))
        size_bytes = _bytes_of_values(header)
        if size_bytes is None:
            return Content(None, [])
        file.seek(start + num_bytes + size_bytes)
    return Content(None, [], limit=f"has more than {_MOST_ARRAYS:,} arrays one after the other")


def _joined(file: BinaryIO, first: Content) -> Content:
    """The code of a pickle with that of those after it."""
    if first.is_whole:
        further = code_after(file)
        first.denied += [name for name in further.denied if name not in first.denied]
        first.functions += [name for name in further.functions if name not in first.functions]
        first.limit = further.limit
    return first


def lack_of_array(file: BinaryIO, size_bytes: int) -> str:
    """Why an array of NumPy is not whole, by the shape and type in its header; empty for any other."""
    start = file.read(len(NUMPY_START) + 2)
    width = 2 if start[-2:-1] == b"\x01" else 4
    num_bytes = int.from_bytes(file.read(width), "little")
    begin = file.tell() + num_bytes
    if begin > size_bytes:
        return f"has {size_bytes:,} bytes, and its header alone asks for {begin:,}"
    header = file.read(min(num_bytes, _MAX_ARRAY_HEADER_BYTES))
    size = None if _says_objects(header) else _bytes_of_values(header)
    wanted = begin + (size or 0)
    return f"has {size_bytes:,} bytes, and its header asks for {wanted:,}" if size_bytes < wanted else ""


def _bytes_of_values(header: bytes) -> int | None:
    """Bytes of the numbers of an array; None where its header does not say them in the words of NumPy."""
    found = _PLAIN_ARRAY.search(header)
    shape = _SHAPE.search(header)
    if found is None or shape is None:
        return None
    num_bytes = math.prod(int(one) for one in shape[1].split(b",") if one.strip()) * int(found[2])
    return num_bytes * (4 if found[1] == b"U" else 1)


def _says_objects(header: bytes) -> bool:
    """Whether the header of an array names a type of objects, in any spelling that NumPy reads, or cannot be read."""
    if not any(sign in header for sign in _SIGNS_OF_OBJECTS):
        return False
    try:
        said = ast.literal_eval(header.decode("latin-1"))  # as NumPy reads it: constants alone, nothing is run
    except MemoryError as error:
        if lacks_memory(error) and len(header) < _NESTED_BYTES:
            raise
        return True  # it nests deeper than the parser follows
    except (ValueError, SyntaxError, RecursionError):
        return True
    return not isinstance(said, dict) or _is_of_objects(said.get("descr"))


def _is_of_objects(kind: Any) -> bool:
    """Whether a type of NumPy has objects in it: a name, or a list of fields with name, type and shape."""
    if isinstance(kind, str):
        return "O" in kind or "object" in kind
    if isinstance(kind, tuple) and kind:  # a type and its shape
        return _is_of_objects(kind[0])
    if not isinstance(kind, list):
        return True
    return any(not isinstance(field, tuple) or len(field) < 2 or _is_of_objects(field[1]) for field in kind)


def code_after(file: BinaryIO) -> Content:
    """Names that the pickles after the first of a file would call, behind bytes of other kinds too."""
    found: dict[str, None] = {}
    functions: dict[str, None] = {}
    operations, places = Count(PICKLE_OPERATIONS), Count(PICKLE_PLACES)
    unpacked = Count(UNPACKED_BYTES)
    place = file.tell()
    limit = ""
    try:
        while place >= 0:
            places.add()
            if not isinstance(getattr(file, "raw", file), io.FileIO | io.BytesIO):
                unpacked.add(place)  # to go back, it is unpacked from its begin
            file.seek(place)
            machine = Machine(is_tolerant=True)
            machine.operations = operations
            try:
                machine.run(file)
                place = file.tell()
                place = place if file.read(1) else -1
            except UnreadableError as error:
                if isinstance(error, LimitError):
                    raise
                file.seek(place + 1)
                place = _next_start(file)
            finally:
                if machine.is_called:
                    found |= machine.denied
                    functions |= machine.functions
    except (OverLimitError, LimitError) as error:
        limit = _passes(error)
    return Content(None, list(found), functions=list(functions), limit=limit)


def _next_start(file: BinaryIO) -> int:
    """Where the next bytes are that begin as a pickle does; -1 where no more are."""
    place, held = file.tell(), b""
    while block := file.read(_BLOCK_BYTES):
        held += block
        if match := PICKLE_START.search(held):
            return place + match.start()
        place, held = place + max(0, len(held) - _START_BYTES), held[-_START_BYTES:]
    return -1


def code_at_start(file: BinaryIO, *, is_pickle: bool = False) -> Content:
    """Names of code outside the allow-list that unpickling a file of any kind would use before it fails.

    A file that only looks like a pickle by chance calls nothing, and has no end as one. One that passes a limit has
    called what it has. A file that has to be a pickle may also import and change the code that it names.
    """
    machine = Machine(is_tolerant=True)
    counts, limit, damage, is_whole = is_pickle, "", "", False
    try:
        machine.run(file)
        counts = is_whole = True
    except (OverLimitError, LimitError) as error:
        limit, counts = _passes(error), True
    except UnreadableError as error:
        damage = str(error) if is_pickle else ""
    used = machine if counts or machine.is_called else Machine()
    found = Content(None, list(used.denied), functions=list(used.functions), limit=limit, damage=damage)
    found.is_whole = is_whole
    return found


def _passes(error: OverLimitError | LimitError) -> str:
    """That a file passes a limit, as a sentence on it goes on."""
    return f"passes a limit: {error}" if isinstance(error, OverLimitError) else str(error)
