"""Shows, without the suite, what DeepSpeed does by default.

It clips gradients, forgets random states, trusts `latest`, and runs what a checkpoint says.

Run it with one process: `DS_ACCELERATOR=cpu torchrun --standalone --nproc-per-node=1 reproduce_deepspeed_defaults.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it looks for ninja there

import deepspeed
import torch


def engine() -> Any:
    """An engine that names no clipping."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    settings = {"train_batch_size": 4, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9}
    made = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2), config=settings)
    return made[0]


def losses(one: Any, num_steps: int) -> list[float]:
    """Losses of some optimizer steps with the same batch."""
    batch, found = torch.ones(4, 8), []
    for _ in range(num_steps):
        loss = (one(batch) - 100).square().mean()
        one.backward(loss)
        one.step()
        found.append(loss.item())
    return found


class Hostile:
    """An object that makes a directory when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._canary),)


def read_hostile(one: Any, directory: Path) -> None:
    """Load a checkpoint one file of which names a function to be run."""
    canary = directory / "canary"
    torch.save(Hostile(canary), directory / "saved" / "mp_rank_00_model_states.pt")
    try:
        one.load_checkpoint(str(directory), tag="saved")
    except (AttributeError, TypeError) as error:
        print(f"load_checkpoint with a hostile file: {type(error).__name__} {error}")  # noqa: T201
    print(f"what the hostile file says was run: {canary.exists()}")  # noqa: T201


def main() -> None:
    """Print the clipping limit, and compare a resumed run with an uninterrupted run."""
    deepspeed.init_distributed("gloo")
    whole = engine()
    print(f"gradient_clipping of an engine whose configuration does not name it: {whole.gradient_clipping()}")  # noqa: T201
    with TemporaryDirectory() as directory:
        losses(whole, 3)
        whole.save_checkpoint(directory, tag="saved")
        wanted = losses(whole, 3)
        resumed = engine()
        resumed.load_checkpoint(directory)
        found = losses(resumed, 3)
        (Path(directory) / "latest").write_text("")
        try:
            resumed.load_checkpoint(directory)
        except AssertionError as error:
            print(f"load_checkpoint with an empty file `latest`: {type(error).__name__} {error}")  # noqa: T201
        read_hostile(resumed, Path(directory))
    print(f"uninterrupted {wanted}, resumed {found}, equal: {wanted == found}")  # noqa: T201
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
