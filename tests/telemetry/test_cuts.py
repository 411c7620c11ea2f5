"""Chunks of a column hold the records that have a value in it, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.telemetry.kernels import chunks as cutting


@given(st.data())
def test_values_of_chunks_are_counted_by_bits_wherever_these_begin(data: st.DataObject) -> None:
    shift = data.draw(st.integers(0, 70))
    is_filled = data.draw(st.lists(st.booleans() | st.just(False), max_size=90))
    chunk_of_row = np.array(data.draw(st.lists(st.integers(0, 3), min_size=90, max_size=90)), np.int32)[
        : len(is_filled)
    ]
    around = data.draw(st.booleans())
    bits: Any = np.packbits([around] * shift + is_filled + [around] * 9, bitorder="little")
    counts = np.zeros(4, np.int64)
    cutting.count(chunk_of_row, bits, shift, counts)
    wanted = [sum(f and c == chunk for f, c in zip(is_filled, chunk_of_row, strict=True)) for chunk in range(4)]
    assert counts.tolist() == wanted
