"""Shows, without the suite, that torch.load and safetensors load altered bytes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file


def flip(path: Path, pattern: bytes) -> None:
    """Change one bit within the bytes of a tensor."""
    content = bytearray(path.read_bytes())
    content[content.index(pattern) + 2] ^= 1
    path.write_bytes(content)


def main() -> None:
    """Save, flip, load and compare."""
    weights = {"weights": torch.linspace(1, 2, 1000)}
    pattern = weights["weights"][100:104].numpy().tobytes()
    with TemporaryDirectory() as directory:
        zipped, safe = Path(directory) / "state.pt", Path(directory) / "state.safetensors"
        torch.save(weights, zipped)
        save_file(weights, safe)
        flip(zipped, pattern)
        flip(safe, pattern)
        for name, loaded in (("torch.load", torch.load(zipped)), ("safetensors", load_file(safe))):
            same = torch.equal(loaded["weights"], weights["weights"])
            print(f"{name}: loaded without an error, equal to what was saved: {same}")  # noqa: T201


if __name__ == "__main__":
    main()
