"""Compares replicas, which must hold the same state."""

from __future__ import annotations

from collections import Counter

from trainspec_reference.common.backend import Backend
from trainspec_reference.common.ports import TrainingFaultError

_NUM_HEX_DIGITS = 12
"""48 bits of a digest, which a float64 holds exactly."""


def compare(backend: Backend, step: int) -> None:
    """Compare the digests of the state of all ranks after an update; all ranks call it.

    Raises:
        TrainingFaultError: they differ. The rank to blame is the one that a majority does not agree with.
    """
    word = int(backend.digest().removeprefix("sha256:")[:_NUM_HEX_DIGITS], 16)
    found = backend.agree(float(word))
    (most, num_most), *others = Counter(found).most_common()
    if others:
        culprit = next(rank for rank, value in enumerate(found) if value != most)
        is_majority = 2 * num_most > len(found)
        reason = f"replicas differ after update {step}"
        raise TrainingFaultError("corruption", reason, rank=culprit if is_majority else None)
