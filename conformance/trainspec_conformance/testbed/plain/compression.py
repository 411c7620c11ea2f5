"""Compresses a gradient before it is sent, and keeps the residual."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import CheckpointUnreadableError

from trainspec_conformance.testbed.plain.formats import rounded
from trainspec_validate.documents.types.communication import Compression

Array = npt.NDArray[Any]
METHODS = ("fp16", "bf16", "top-k")
_INDEX = np.dtype("<u4")
_VALUE = np.dtype("<f4")
_RESIDUAL = re.compile(r"residual/(\d+)-of-(\d+)")


class GradientCompressor:
    """Compresses one vector, step by step; what a step did not send counts once the step is applied.

    Raises:
        ValueError: there is no such method.
    """

    def __init__(self, settings: Compression, num_entries: int) -> None:
        if settings.method not in METHODS:
            raise ValueError(f"the plain backend has no compression {settings.method}: one of {', '.join(METHODS)}")
        self._settings = settings
        self._num_sent = max(1, round((settings.density or 0.01) * num_entries))
        self.residual = np.zeros(num_entries, np.float32)
        """What was not sent up to the last step that was applied, where it is fed back."""
        self._pending: Array | None = None
        """The same with the step that was sent last, which may come to nothing."""

    def encoded(self, vector: Array) -> bytes:
        """The sent part of the vector and of the residual."""
        corrected = vector + self.residual if self._settings.error_feedback else vector
        payload = self._payload(corrected)
        if self._settings.error_feedback:
            self._pending = corrected - self.decoded(payload)
        return payload

    def commit(self) -> None:
        """The step that was sent last is applied: the residual becomes what it did not send."""
        if self._pending is not None:
            self.residual, self._pending = self._pending, None

    def forget(self) -> None:
        """Nothing is left to be sent."""
        self.residual, self._pending = np.zeros_like(self.residual), None

    def catch_up(self, num_updates: int) -> None:
        """The state of another rank, with so many optimizer steps more, is taken over.

        Where it is one, all ranks have what this one sent last. Beyond that it is unknown what was sent.
        """
        if num_updates == 1:
            self.commit()
        elif num_updates:
            self.forget()

    def restore(self, found: Mapping[str, Array], rank: int, num_ranks: int) -> None:
        """Take over what ranks of a checkpoint had not sent; those of another number are treated as the plan says.

        Raises:
            CheckpointUnreadableError: the plan refuses the number of ranks, or a residual is of another model.
        """
        self.forget()
        names = {match: found[match[0]] for name in found if (match := _RESIDUAL.fullmatch(name))}
        if any(array.shape != self.residual.shape or array.dtype != np.float32 for array in names.values()):
            raise CheckpointUnreadableError(f"a residual is not float32{list(self.residual.shape)}")
        writers = {int(match[1]): array for match, array in names.items()}
        on_resize = self._settings.residual_on_resize
        if len(writers) in (0, num_ranks) or on_resize not in ("refuse", "reset"):
            for writer, array in writers.items():
                if writer % num_ranks == rank:
                    self.residual = self.residual + array
        elif on_resize == "refuse":
            raise CheckpointUnreadableError(f"the plan refuses {num_ranks} ranks for the residuals of {len(writers)}")

    def resize(self, before: int, after: int) -> None:
        """Ranks were lost or have come, and this one continues with its own state.

        Raises:
            ValueError: the plan refuses that.
        """
        if before != after and self._settings.residual_on_resize == "refuse":
            raise ValueError(f"the plan refuses {after} ranks for the residuals of {before}")
        if before != after and self._settings.residual_on_resize == "reset":
            self.forget()

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
        """The vector that a payload represents."""
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
