"""Damages the state of the NumPy backend, for tests."""

from __future__ import annotations

import numpy as np

from trainspec_conformance.testbed.plain.backend import PlainBackend


def corrupt(backend: PlainBackend, fault: str) -> None:
    """As `planted.corrupt`."""
    if fault == "flip-parameter-bit":
        backend._parameters.vector[:1].view(np.uint32)[0] ^= np.uint32(1 << 22)
    else:
        backend._planted = fault
