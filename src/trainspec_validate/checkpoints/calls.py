"""Says which functions a call in a pickle would run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

from trainspec_validate.checkpoints.functions import (
    RETURNED,
    Way,
    class_inside,
    class_of_partial,
    is_rebuilt,
    is_rebuilt_by_a_program,
    misuses,
    names_in,
    runs_when_called,
)
from trainspec_validate.checkpoints.held import STORED, stores_function
from trainspec_validate.checkpoints.pickle_values import Inert, Name

_CALLS_ITS_FIRST: Final = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2", "_rebuild_wrapper_subclass"})
_MAKES_ITS_FIRST: Final = frozenset({"__newobj__", "__newobj_ex__", "_reconstructor", "_reconstruct"})
_CALLS_ITS_OTHERS: Final = frozenset({"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"})
"""Functions of NumPy that call what they are given with the rest."""
CODE: Final = "byte code that the pickle holds"
NESTED: Final = "a pickle inside of the pickle"
_NUM_COUNTS = 5
"""Numbers that byte code begins with: those of arguments, variables and flags."""
_PICKLE: Final = re.compile(rb"\x80[\x00-\x05]|[c(](?=[^\n]*\n)")
"""Start of a pickle: its protocol, or, before protocol 2, often a name or a group."""


def run_by_call(function: Any, arguments: Any, way: Way) -> Iterator[str]:
    """The functions that a call would run and that plain state does not need, by their names."""
    yield from _run(function, arguments, way)
    if isinstance(function, Name):
        first = arguments[:1] if isinstance(arguments, tuple) else ()
        for given in first:
            if function.name in _CALLS_ITS_FIRST:
                yield from _run(given, arguments, "called")
            elif function.name in _MAKES_ITS_FIRST:
                yield from _run(given, arguments, "made")
        if function.name in _CALLS_ITS_OTHERS and isinstance(arguments, tuple):
            for given in arguments:
                yield from _run(given, (), "called") if isinstance(given, Name) else ()
            yield from (RETURNED for given in arguments[1:] if isinstance(given, Inert))
        if is_rebuilt(function.module, function.name) and way == "called":
            yield from _run_by_rebuilding(arguments)
    if isinstance(arguments, tuple) and _is_code(arguments):
        yield CODE
    if stores_function(arguments):
        yield STORED


def _run_by_rebuilding(arguments: Any) -> Iterator[str]:
    """What a function of a program runs that makes an object of its parts: it may call the first, or unpickle bytes."""
    handed = (name for name in names_in(arguments) if runs_when_called(name.module, name.name))
    yield from (str(name) for name in handed if not name.name[:1].isupper())
    given = arguments if isinstance(arguments, tuple) else ()
    for one in given:
        made = one.function if isinstance(one, Inert) else None
        if one is given[0] and isinstance(made, Name) and is_rebuilt_by_a_program(made.module, made.name):
            yield RETURNED
        if isinstance(one, bytes | bytearray) and _PICKLE.match(one) and one.endswith(b"."):
            yield NESTED


def _is_code(arguments: tuple[Any, ...]) -> bool:
    """Whether a call makes byte code of its parts, under whatever name the class is imported."""
    numbers = takewhile(lambda one: isinstance(one, int), arguments)
    rest = arguments[len(list(numbers)) :]
    is_long = len(arguments) - len(rest) >= _NUM_COUNTS and len(rest) > _NUM_COUNTS
    return is_long and isinstance(rest[0], bytes | Inert) and isinstance(rest[1], tuple) and isinstance(rest[2], tuple)


def _run(function: Any, arguments: Any, way: Way) -> Iterator[str]:
    made = class_of_partial(function, arguments)
    if made is not function:
        function, way = made, "made"
    called = class_inside(function)
    if not isinstance(called, Name):
        yield RETURNED
    elif runs_when_called(called.module, called.name, way) or misuses(called, arguments):
        yield str(called)
