"""Recognises files of safetensors whose end was never written: zeros from a page of the file system on, amid values.

A crash, or a download into a file that was allocated before, leaves such files. Training leaves zeros at the end of a
file too: biases, the second matrices of LoRA, means of gradients, rows of tokens that do not occur. These begin where a
tensor or a row does, so only zeros from within a row on count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.checkpoints.formats.safetensors import SUFFIX, Tensor, header, tensors_in
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.view import Checkpoint

_PAGE_BYTES = 4096
_BLOCK_BYTES = 1 << 20
_LEAST_BYTES = 64
"""Zeros at the end that count."""
_VALUE_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Types whose values are seldom zero; those of quantised weights and masks often are."""
_PREFIX_BYTES = 8


def unwritten_ends(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Files without a digest that end in zeros from within a row on, at the begin of a page; and that, in words.

    Reads each file from its end up to the last byte that is not zero.

    Args:
        checkpoint: as it was read.
    """
    for path, fact in checkpoint.files.items():
        if path.endswith(SUFFIX) and fact.kind == "file" and path not in checkpoint.sealed:
            try:
                num_bytes, name = _unwritten(checkpoint.root / path)
            except (OSError, UnreadableError):
                continue  # its reader says so
            if num_bytes:
                words = f"the last {num_bytes:,} bytes are zero, from within a row of tensor {name!r} and a page on"
                yield path, f"{words}: the end was not written"


def _unwritten(path: Path) -> tuple[int, str]:
    """The bytes at the end of a file that were not written, and the tensor in which they begin; 0 for none."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        end = _end_of_values(file, size)
    page = -(-end // _PAGE_BYTES) * _PAGE_BYTES
    if size - page < _LEAST_BYTES:
        return 0, ""
    length, value = header(path)
    tensor = _holding(tensors_in(value), page - _PREFIX_BYTES - length)
    if tensor is None or page - end >= _VALUE_BYTES.get(tensor.dtype, 0):
        return 0, ""
    row_bytes = prod(tensor.shape[1:]) * _VALUE_BYTES[tensor.dtype] if len(tensor.shape) > 1 else size
    within = (page - _PREFIX_BYTES - length - tensor.begin) % row_bytes
    return (size - page, tensor.name) if within else (0, "")


def _end_of_values(file: BinaryIO, size: int) -> int:
    """The place after the last byte of a file that is not zero."""
    start = size
    while start:
        start, num_bytes = max(0, start - _BLOCK_BYTES), min(start, _BLOCK_BYTES)
        file.seek(start)
        if held := len(file.read(num_bytes).rstrip(b"\0")):
            return start + held
    return 0


def _holding(tensors: Iterable[Tensor], place: int) -> Tensor | None:
    """The tensor that a byte after the header is of, and not the first byte of."""
    return next((one for one in tensors if one.begin < place < one.end), None)
