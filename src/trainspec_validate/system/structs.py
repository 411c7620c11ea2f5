"""Turns plain values into typed ones, also where several threads meet a type for the first time.

msgspec describes a type at its first use. A thread that meets the type meanwhile takes the part of the description that
is there, and the process ends with a segmentation fault (seen with msgspec 0.22.0 and Python 3.11). So one thread at a
time describes types.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

Typed = TypeVar("Typed")
Kind = TypeVar("Kind")
_DESCRIBING = threading.Lock()
_DESCRIBED: set[Any] = set()


def described(model: Kind) -> Kind:
    """The type, once msgspec has described it and the types of its fields."""
    if model not in _DESCRIBED:
        with _DESCRIBING, suppress(msgspec.ValidationError):
            msgspec.convert(None, model)
        _DESCRIBED.add(model)
    return model


def converted(data: Any, model: type[Typed]) -> Typed:
    """A plain value as a value of the type.

    Raises:
        msgspec.ValidationError: the value does not satisfy the type.
    """
    return msgspec.convert(data, described(model))


def decoded(content: bytes | str, model: type[Typed]) -> Typed:
    """A JSON text as a value of the type.

    Raises:
        msgspec.DecodeError: it is no JSON text, or does not satisfy the type.
    """
    return msgspec.json.decode(content, type=described(model))
