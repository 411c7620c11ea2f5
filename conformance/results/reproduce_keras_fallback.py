"""Shows that `BackupAndRestore` of Keras 3 restores the previous training state where the newest cannot be read.

The script damages the newest state of an interrupted `fit` in several ways. For each it prints how many optimizer steps
the state has completed that the next `fit` starts from, or the error. It needs Keras 3 and one of its backends.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 6
BLOCK_BYTES = 4096


def model() -> Any:
    """A layer, with an optimizer that counts its steps."""
    import keras  # noqa: PLC0415 - imported where it is used, as its backends take seconds

    made = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64)])
    made.compile(keras.optimizers.Adam(), loss="mse")
    return made


def fit(folder: Path, stop_after: int | None) -> list[int]:
    """Train, and return the counts of optimizer steps at the start of each batch."""
    import keras  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    seen: list[int] = []

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras calls it
            seen.append(int(self.model.optimizer.iterations))
            if len(seen) - 1 == stop_after:
                raise InterruptedError

    kept = keras.callbacks.BackupAndRestore(folder, save_freq=2, double_checkpoint=True, delete_checkpoint=False)
    inputs = np.ones((STEPS * 4, 64), "float32")
    with contextlib.suppress(InterruptedError):
        model().fit(inputs, inputs, batch_size=4, callbacks=[kept, Watch()], verbose=0)
    return seen


def cut(path: Path, size: int) -> None:
    """Keep the first bytes."""
    path.write_bytes(path.read_bytes()[:size])


def zero(path: Path) -> None:
    """Overwrite the first block with zeros, as a lost write leaves it."""
    path.write_bytes(bytes(BLOCK_BYTES) + path.read_bytes()[BLOCK_BYTES:])


def flip(path: Path) -> None:
    """Change one bit of the last tensor."""
    data = bytearray(path.read_bytes())
    data[-64] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "none": Path.exists,
    "a byte cut off": lambda path: cut(path, path.stat().st_size - 1),
    "half cut off": lambda path: cut(path, path.stat().st_size // 2),
    "4 KiB of zeros": zero,
    "empty": lambda path: cut(path, 0),
    "deleted": Path.unlink,
    "one bit flipped": flip,
}


def main() -> None:
    """Print one line for each kind of damage."""
    for name, damage in DAMAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            fit(Path(folder), stop_after=5)
            damage(Path(folder, "latest.weights.h5"))
            try:
                start = f"starts from the state after {fit(Path(folder), stop_after=None)[0]} steps"
            except Exception as error:  # whatever it is, it is what is shown
                start = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            print(f"{name}: {start}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
