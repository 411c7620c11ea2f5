"""Computes the state digest: equal for equal global tensors, however they are laid out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


def tensor_digest(name: str, array: npt.NDArray[Any], dtype: str | None = None) -> str:
    """SHA-256 over name, dtype, shape, and the bytes of a global tensor in row-major, little-endian order.

    `dtype` names a format that NumPy has no word for, such as `bfloat16`, whose bytes the array holds.
    """
    ordered = np.asarray(array, order="C")
    little = ordered.astype(ordered.dtype.newbyteorder("<"), copy=False)
    head = f"{name}\n{dtype or ordered.dtype.name}\n{','.join(map(str, ordered.shape))}\n"
    found = hashlib.sha256(head.encode())
    found.update(little.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def state_digest(tensor_digests: Iterable[str]) -> str:
    """`sha256:` and SHA-256 over the sorted digests of all tensors of the state."""
    return "sha256:" + hashlib.sha256("\n".join(sorted(tensor_digests)).encode()).hexdigest()
