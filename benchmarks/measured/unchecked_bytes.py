"""Measures which damage to a checkpoint loads without an error in PyTorch and Orbax.

Run with `python benchmarks/measured/unchecked_bytes.py`. Bytes of tensors are changed at random, files are cut, and a
save into the directory of another one is killed before it is complete. Checkpoints are made below a temporary
directory. A line of the output names libraries that are not installed and not measured.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NUM_ENTRIES = 150_000
NUM_FLIPS = 60
SEED = 20_261_127


def loads(load: Callable[[], Any]) -> Any | None:
    """The loaded values; None where the loader raised an error."""
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def flipped(path: Path, start: int, stop: int, load: Callable[[], Any], same: Callable[[Any], bool]) -> str:
    """Flip one random bit of a file at a time, and count the loads that give other numbers without an error."""
    chance, content = random.Random(SEED), path.read_bytes()
    num_wrong = 0
    for _ in range(NUM_FLIPS):
        damaged = bytearray(content)
        damaged[chance.randrange(start, stop)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        found = loads(load)
        num_wrong += found is not None and not same(found)
    path.write_bytes(content)
    return f"{num_wrong} of {NUM_FLIPS} flipped bits load without an error"


def of_torch(directory: Path) -> Iterator[str]:
    """A file of `torch.save`."""
    import torch  # noqa: PLC0415

    weights = torch.linspace(1, 2, NUM_ENTRIES)
    path = directory / "state.pt"
    torch.save({"weights": weights}, path)
    start = path.read_bytes().index(weights[:4].numpy().tobytes())
    stop = start + 4 * NUM_ENTRIES

    def same(found: dict[str, Any]) -> bool:
        return torch.equal(found["weights"], weights)

    yield f"torch.save: {flipped(path, start, stop, lambda: torch.load(path, weights_only=True), same)}"
    content = bytearray(path.read_bytes())
    content[start + 1000] ^= 1
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        yield f"torch.save: the checksum of the container finds the change: {archive.testzip() is not None}"


def of_distributed(directory: Path) -> Iterator[str]:
    """A checkpoint of `torch.distributed.checkpoint`, and two saves into one directory."""
    import torch  # noqa: PLC0415
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver  # noqa: PLC0415

    def save(name: str, value: float) -> Path:
        state = {"weights": torch.full((NUM_ENTRIES,), value)}
        state_dict_saver.save(state, checkpoint_id=directory / name, no_dist=True)
        return directory / name

    def load(path: Path) -> Any:
        state = {"weights": torch.zeros(NUM_ENTRIES)}
        state_dict_loader.load(state, checkpoint_id=path, no_dist=True)
        return state["weights"]

    first, second = save("first", 1.0), save("second", 2.0)
    shard = next(first.glob("*.distcp"))
    start = shard.read_bytes().index(torch.full((4,), 1.0).numpy().tobytes())
    ones = torch.full((NUM_ENTRIES,), 1.0)
    words = flipped(shard, start, start + 4 * NUM_ENTRIES, lambda: load(first), lambda found: torch.equal(found, ones))
    yield f"torch.distributed.checkpoint: {words}"
    shutil.copyfile(second / shard.name, shard)  # as a second save leaves it that is killed before its index
    found = loads(lambda: load(first))
    yield (
        "torch.distributed.checkpoint: data of a second save under the index of the first loads without an error: "
        f"{found is not None and bool((found == 2).all())}"
    )
    os.truncate(shard, shard.stat().st_size // 2)
    yield f"torch.distributed.checkpoint: a shard cut by half is noticed: {loads(lambda: load(first)) is None}"


def of_orbax(directory: Path) -> Iterator[str]:
    """A checkpoint of Orbax."""
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    import orbax.checkpoint as ocp  # noqa: PLC0415

    numbers = np.random.default_rng(SEED).standard_normal(NUM_ENTRIES).astype(np.float32)
    path = directory / "orbax"
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(path, {"weights": jnp.asarray(numbers)})
    checkpointer.wait_until_finished()
    largest = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)

    def load() -> Any:
        return np.asarray(checkpointer.restore(path, {"weights": jnp.zeros(NUM_ENTRIES)})["weights"])

    size = largest.stat().st_size
    words = flipped(largest, size // 4, 3 * size // 4, load, lambda found: bool((found == numbers).all()))
    yield f"Orbax: {words}"
    os.truncate(largest, size - 1)
    found = loads(load)
    yield f"Orbax: a file that lacks its last byte loads without an error: {found is not None}"
    os.truncate(largest, size // 2)
    yield f"Orbax: a file cut by half is noticed: {loads(load) is None}"


def main() -> int:
    """Print one line for each measurement; 0 also where a library is not installed."""
    parts = ((of_torch, "torch"), (of_distributed, "torch"), (of_orbax, "orbax"))
    for measured, library in parts:
        if find_spec(library) is None:
            print(f"not measured: {library} is not installed")
            continue
        with tempfile.TemporaryDirectory() as directory:
            for line in measured(Path(directory)):
                print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
