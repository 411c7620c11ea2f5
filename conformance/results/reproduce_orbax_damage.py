"""Shows, without the suite, what Orbax does when the newest of two steps is damaged."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import jax.numpy as jnp
import orbax.checkpoint as ocp


def main() -> None:
    """Save two steps, damage the description of the newer, and ask for the newest."""
    with TemporaryDirectory() as directory:
        manager = ocp.CheckpointManager(Path(directory))
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave({"weights": jnp.full(1000, float(step))}))
        manager.wait_until_finished()
        file = Path(directory) / "2" / "default" / "_METADATA"
        content = bytearray(file.read_bytes())
        content[content.index(b'"')] ^= 1
        file.write_bytes(content)
        newest = ocp.CheckpointManager(Path(directory))
        print(f"newest step: {newest.latest_step()}, of {newest.all_steps()}")  # noqa: T201
        try:
            newest.restore(newest.latest_step(), args=ocp.args.StandardRestore({"weights": jnp.zeros(1000)}))
        except ValueError as error:
            print(f"restore: {type(error).__name__}: {str(error)[:80]}")  # noqa: T201


if __name__ == "__main__":
    main()
