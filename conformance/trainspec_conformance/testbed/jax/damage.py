"""Damages the state of the JAX backend, for tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from trainspec_reference.jax.backend import JaxBackend
from trainspec_reference.jax.passes import Sums


def corrupt(backend: JaxBackend, fault: str) -> None:
    """As `planted.corrupt`."""
    programs = backend._programs
    if fault == "flip-parameter-bit":
        arrays = backend._state.arrays()
        bits = arrays["parameters"].reshape(-1).view(np.uint8)
        bits[2] ^= 0x40
        backend._state = programs.maker.blocks(arrays)
        return

    def once(state: Any, sums: Sums, loss_scale: float) -> Any:
        del programs.exchange
        place = (0,) * sums.gradient.ndim
        damaged = sums.gradient.at[place].set(math.nan if fault == "nan-gradient" else math.inf)
        return programs.exchange(state, sums._replace(gradient=damaged), loss_scale)

    programs.exchange = once  # type: ignore[method-assign]
