"""The only place that makes a gradient smaller on the wire, and remembers what it did not send."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_reference.plain.formats import rounded
from trainspec_validate.documents.communication import Compression

Array = npt.NDArray[Any]
METHODS = ("fp16", "bf16", "top-k")
_INDEX = np.dtype("<u4")
_VALUE = np.dtype("<f4")


class GradientCompressor:
    """Compresses one vector, step by step.

    Raises:
        ValueError: there is no such method.
    """

    def __init__(self, settings: Compression, num_entries: int) -> None:
        if settings.method not in METHODS:
            raise ValueError(f"the plain backend has no compression {settings.method}: one of {', '.join(METHODS)}")
        self._settings = settings
        self._num_sent = max(1, round((settings.density or 0.01) * num_entries))
        self.residual = np.zeros(num_entries, np.float32)
        """What was not sent so far, where it is fed back."""

    def encoded(self, vector: Array) -> bytes:
        """What travels of the vector and of the residual; the residual becomes the rest."""
        corrected = vector + self.residual if self._settings.error_feedback else vector
        payload = self._payload(corrected)
        if self._settings.error_feedback:
            self.residual = corrected - self.decoded(payload)
        return payload

    def _payload(self, vector: Array) -> bytes:
        match self._settings.method:
            case "fp16":
                with np.errstate(over="ignore"):
                    return vector.astype("<f2").tobytes()
            case "bf16":
                return (rounded(vector, "bf16").view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes()
            case _:
                largest = np.argpartition(-np.abs(vector), self._num_sent - 1)[: self._num_sent]
                chosen = np.sort(largest)
                return chosen.astype(_INDEX).tobytes() + vector[chosen].astype(_VALUE).tobytes()

    def decoded(self, payload: bytes) -> Array:
        """The vector that a payload stands for."""
        match self._settings.method:
            case "fp16":
                return np.frombuffer(payload, "<f2").astype(np.float32)
            case "bf16":
                return (np.frombuffer(payload, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
            case _:
                found = np.zeros_like(self.residual)
                num_sent = len(payload) // (_INDEX.itemsize + _VALUE.itemsize)
                indices = np.frombuffer(payload, _INDEX, num_sent)
                found[indices] = np.frombuffer(payload, _VALUE, num_sent, num_sent * _INDEX.itemsize)
                return found
