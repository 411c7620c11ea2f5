"""Turns arrays into JSON for a probe, and the arrays of its answer back into numbers."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_DTYPES = ("float64", "float32", "int64")
_NOT_FINITE = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}


def packed(array: npt.NDArray[Any]) -> dict[str, Any]:
    """An array as an object of dtype, shape and little-endian bytes."""
    ordered = np.ascontiguousarray(array)
    little = ordered.astype(ordered.dtype.newbyteorder("<"), copy=False)
    text = base64.b64encode(little.tobytes()).decode()
    return {"dtype": ordered.dtype.name, "shape": list(ordered.shape), "base64": text}


def unpacked(value: Any) -> Array:
    """The array of an answer, in either form, in float64.

    Raises:
        ValueError: it is no array of numbers.
    """
    try:
        if isinstance(value, Mapping):
            return _of_bytes(value)
        return np.asarray(_numbers(value), np.float64)
    except (KeyError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise ValueError(f"not an array of numbers: {error}") from error


def _of_bytes(value: Mapping[str, Any]) -> Array:
    if value["dtype"] not in _DTYPES:
        raise ValueError(f"the dtype is not one of {', '.join(_DTYPES)}")
    content = base64.b64decode(value["base64"], validate=True)
    found = np.frombuffer(content, np.dtype(value["dtype"]).newbyteorder("<"))
    return found.reshape([int(length) for length in value["shape"]]).astype(np.float64)


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if value is None or isinstance(value, bool):
        return math.nan if value is None else value
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
