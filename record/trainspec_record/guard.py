"""Keeps a mistake of the recorder, or in its use, from reaching the training script."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from trainspec_record.printing import neutral, printable

LOGGER = logging.getLogger("trainspec_record")
"""Says each thing once, as a warning; silence it like any logger."""
MAX_TOLD = 256
MAX_LETTERS = 2_000
_told: set[str] = set()
P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


def tell_once(message: str) -> None:
    """Log a warning that was not logged before; after many different ones, nothing."""
    if message not in _told and len(_told) < MAX_TOLD:
        _told.add(message)
        LOGGER.warning("%s", neutral(printable(message[:MAX_LETTERS])))


def never_raises(otherwise: U) -> Callable[[Callable[P, T]], Callable[P, T | U]]:
    """A decorator after which a function returns a value instead of raising, and says once what went wrong."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | U]:
        @wraps(function)
        def inner(*args: P.args, **kwargs: P.kwargs) -> T | U:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001, RUF100 - training goes on, whatever it is
                tell_once(f"{function.__qualname__} recorded nothing: {type(error).__name__}: {error}")
                return otherwise

        return inner

    return decorate
