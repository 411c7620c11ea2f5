"""Files as `torch.save` writes them, of plain values and of pickles made by hand; PyTorch is not needed."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path


def save(path: Path, value: object) -> None:
    """Save plain values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(saved(pickle.dumps(value, protocol=2)))


def saved(content: bytes) -> bytes:
    """The container around a pickle that has no tensors."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as container:
        container.writestr("archive/data.pkl", content)
        container.writestr("archive/byteorder", "little")
        container.writestr("archive/version", "3\n")
    return buffer.getvalue()


def saved_before_1_6(value: object) -> bytes:
    """The pickles of versions of PyTorch before 1.6, without tensors."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    parts = (0x1950A86A20F9469CFC6C, 1001, system, value, [])
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)
