"""Searches files of any kind for code that unpickling them would run."""

from __future__ import annotations

import re
from typing import BinaryIO

from trainspec_validate.checkpoints.limits import PICKLE_OPERATIONS, LimitError
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pickles import NUMPY_START, Content, Machine
from trainspec_validate.system.budget import Count, OverLimitError

_OBJECTS = re.compile(rb"'[|<>=]?O\d*'")
"""Types of NumPy for objects, in the header of an array."""
_MAX_ARRAY_HEADER_BYTES = 1_000_000


def code_of(file: BinaryIO) -> Content:
    """The same as `code_at_start`, of an array of NumPy too, whose objects are a pickle after its header."""
    if file.read(len(NUMPY_START)) != NUMPY_START:
        file.seek(0)
        return code_at_start(file)
    width = 2 if file.read(2)[:1] == b"\x01" else 4
    num_bytes = int.from_bytes(file.read(width), "little")
    start = file.tell()
    holds_objects = _OBJECTS.search(file.read(min(num_bytes, _MAX_ARRAY_HEADER_BYTES))) is not None
    file.seek(start + num_bytes)
    return code_at_start(file, is_pickle=holds_objects)


def code_after(file: BinaryIO) -> Content:
    """Names that the pickles after the first of a file would call; what follows them is left to whoever loads it."""
    found: dict[str, None] = {}
    functions: dict[str, None] = {}
    operations = Count(PICKLE_OPERATIONS)
    limit = ""
    try:
        while True:
            machine = Machine(is_tolerant=True)
            machine.operations = operations
            try:
                machine.run(file)
            finally:
                if machine.is_called:
                    found |= machine.denied
                    functions |= machine.functions
    except (OverLimitError, LimitError) as error:
        limit = str(error)
    except UnreadableError:
        pass
    return Content(None, list(found), functions=list(functions), limit=limit)


def code_at_start(file: BinaryIO, *, is_pickle: bool = False) -> Content:
    """Names of code outside the allow-list that unpickling a file of any kind would use before it fails.

    A file that only looks like a pickle by chance calls nothing, and has no end as one. One that passes a limit has
    called what it has. What has to be a pickle may also import and change what it names.
    """
    machine = Machine(is_tolerant=True)
    counts, limit, damage = is_pickle, "", ""
    try:
        machine.run(file)
        counts = True
    except (OverLimitError, LimitError) as error:
        limit, counts = str(error), True
    except UnreadableError as error:
        damage = str(error) if is_pickle else ""
    used = machine if counts or machine.is_called else Machine()
    return Content(None, list(used.denied), functions=list(used.functions), limit=limit, damage=damage)
