"""Says which functions a call in a pickle would run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainspec_validate.checkpoints.functions import (
    RETURNED,
    STORED,
    Way,
    class_inside,
    is_rebuilt,
    misuses,
    names_in,
    runs_when_called,
    stores_function,
)
from trainspec_validate.checkpoints.pickle_values import Name

_CALLS_ITS_FIRST: Final = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2", "_rebuild_wrapper_subclass"})
_MAKES_ITS_FIRST: Final = frozenset({"__newobj__", "__newobj_ex__", "_reconstructor", "_reconstruct"})


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
        if is_rebuilt(function.module, function.name) and way == "called":
            handed = (name for name in names_in(arguments) if runs_when_called(name.module, name.name))
            yield from (str(name) for name in handed if not name.name[:1].isupper())
    if stores_function(arguments):
        yield STORED


def _run(function: Any, arguments: Any, way: Way) -> Iterator[str]:
    called = class_inside(function)
    if not isinstance(called, Name):
        yield RETURNED
    elif runs_when_called(called.module, called.name, way) or misuses(called, arguments):
        yield str(called)
