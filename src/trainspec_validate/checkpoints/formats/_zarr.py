"""Judges the settings of an array of Zarr, which are in a file of their own or under a key of a store."""

from __future__ import annotations

import re
from typing import Any

_ZARR_KEYS = ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters")
"""Each is required: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html, "Metadata"."""
_ZARR_DTYPE = re.compile(
    r"[<>|][biufcmMSUV][0-9]{1,4}(?:\[\w+\])?|bfloat16|float8_\w+|int[24]|uint[24]|float4_\w+", re.ASCII
)
_MAX_DIMENSIONS = 32


def fault_of_array(data: Any, *, is_v2: bool) -> str:
    """Why settings describe no array in version 2 or 3 of Zarr, in words; empty where they do."""
    shape, chunks = shape_and_chunks(data, is_v2=is_v2)
    if shape is None or chunks is None or len(shape) != len(chunks):
        return "has no shape and chunks that fit each other"
    return _fault_of_version_2(data) if is_v2 else ""


def shape_and_chunks(data: Any, *, is_v2: bool) -> tuple[list[int] | None, list[int] | None]:
    """The shape of an array and of its chunks; None where the settings state no such one."""
    chunks = _sizes(data, "chunks", 1) if is_v2 else _sizes(_grid(data), "chunk_shape", 1)
    return _sizes(data, "shape", 0), chunks


def _fault_of_version_2(data: dict[str, Any]) -> str:
    absent = [key for key in _ZARR_KEYS if key not in data]
    if absent:
        return f"has no {absent[0]}"
    if data["zarr_format"] != 2 or data["order"] not in ("C", "F"):
        return f"has zarr_format {data['zarr_format']!r} and order {data['order']!r}"
    dtype, packing = data["dtype"], data["compressor"]
    if isinstance(dtype, str) and not _ZARR_DTYPE.fullmatch(dtype):
        return f"has the type {dtype!r}, which Zarr has not"
    is_packing = packing is None or (isinstance(packing, dict) and isinstance(packing.get("id"), str))
    if not is_packing:
        return "has a compressor without an id"
    return "has filters, which TensorStore refuses" if data["filters"] else ""


def _grid(data: Any) -> Any:
    """The configuration of the grid of chunks that version 3 of Zarr states."""
    grid = data.get("chunk_grid") if isinstance(data, dict) else None
    return grid.get("configuration") if isinstance(grid, dict) and grid.get("name") == "regular" else None


def _sizes(data: Any, key: str, least: int) -> list[int] | None:
    """A list of whole numbers from `least`; None where there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, list) or len(value) > _MAX_DIMENSIONS:
        return None
    return value if all(type(size) is int and least <= size < 1 << 63 for size in value) else None
