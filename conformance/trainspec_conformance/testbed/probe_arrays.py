"""Reads the request of a probe, and writes arrays in the requested form."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from trainspec_validate.documents.types.base import Record

Array = npt.NDArray[Any]
MAX_BYTES = 1 << 30
"""Largest request that is read."""
_DTYPES = ("float64", "float32", "int64")
_NOT_FINITE = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}
Part = TypeVar("Part", bound=Record)
Plain = TypeVar("Plain")


class ProbeInputError(ValueError):
    """The request cannot be answered in this form."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a probe."""

    operation: str
    values: Mapping[str, Any]

    @staticmethod
    def read(path: Path) -> Request:
        """The request in a file.

        Raises:
            ProbeInputError: the file holds no request.
        """
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ProbeInputError(f"{path} is larger than {MAX_BYTES} bytes")
            values = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ProbeInputError(f"{path}: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("operation"), str):
            raise ProbeInputError(f"{path} is no object with the key operation")
        return Request(values["operation"], values)

    def get(self, key: str, kind: type[Plain], default: Plain | None = None) -> Plain:
        """The value of a key; without a default it must be there.

        Raises:
            ProbeInputError: it is not there, or of another type.
        """
        if key not in self.values and default is not None:
            return default
        try:
            return msgspec.convert(self._value(key), kind)
        except msgspec.ValidationError as error:
            raise ProbeInputError(f"{key}: {error}") from error

    def record(self, key: str, kind: type[Part]) -> Part:
        """The value of a key as a part of a document.

        Raises:
            ProbeInputError: it is not there, or no such part.
        """
        return self.get(key, kind)

    def array(self, key: str, num_axes: int) -> Array:
        """The value of a key as an array of so many axes.

        Raises:
            ProbeInputError: it is not there, or no such array.
        """
        value = self._value(key)
        try:
            found = _packed(value) if isinstance(value, dict) else np.array(_numbers(value), np.float64)
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise ProbeInputError(f"{key} is no array: {error}") from error
        if found.ndim != num_axes:
            raise ProbeInputError(f"{key} has {found.ndim} axes, wanted {num_axes}")
        return found

    def written(self, array: Array) -> Any:
        """An array in the form that the request wants."""
        ordered = np.ascontiguousarray(array)
        if self.values.get("arrays", "lists") == "base64":
            little = ordered.astype(ordered.dtype.newbyteorder("<"), copy=False)
            text = base64.b64encode(little.tobytes()).decode()
            return {"dtype": ordered.dtype.name, "shape": list(ordered.shape), "base64": text}
        return _words(ordered.tolist())

    def _value(self, key: str) -> Any:
        if key not in self.values:
            raise ProbeInputError(f"{key} is missing")
        return self.values[key]


def _packed(value: Mapping[str, Any]) -> Array:
    if value["dtype"] not in _DTYPES:
        raise ValueError(f"the dtype is not one of {', '.join(_DTYPES)}")
    found = np.frombuffer(base64.b64decode(value["base64"], validate=True), np.dtype(value["dtype"]).newbyteorder("<"))
    return found.reshape(value["shape"])


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _words(value: Any) -> Any:
    """Lists of numbers with words for those that JSON has not."""
    if isinstance(value, list):
        return [_words(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return value
