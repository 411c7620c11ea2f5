"""Shows, without the suite, that the remains of a failed save are taken for a checkpoint.

The Trainer and Accelerate look for the newest one by the number in its name alone.
"""

from __future__ import annotations

import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FILE_BYTES = 4096  # the weights take 16 KiB; files that may not grow fail as those of a full disk do


class Model(torch.nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean square of what comes out."""
        return {"loss": self.layer(inputs).square().mean()}


class Filling(TrainerCallback):  # type: ignore[misc]
    """Limits the size of files once the first checkpoint is saved."""

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        """A save has ended."""
        limit(FILE_BYTES)


def limit(num_bytes: int) -> None:
    """Limit the size of files, or allow any."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def trainer(directory: str) -> Trainer:
    """A Trainer that saves each second update."""
    arguments = TrainingArguments(
        directory, max_steps=6, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no"
    )
    samples = [{"inputs": one} for one in torch.randn(64, 64)]
    return Trainer(model=Model(), args=arguments, train_dataset=samples, callbacks=[Filling()])


def tried(directory: str, checkpoint: str | None = None) -> None:
    """Train, and say how it ended."""
    try:
        trainer(directory).train(resume_from_checkpoint=checkpoint)
        print("trained to the end")  # noqa: T201
    except Exception as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201


def by_accelerate(directory: str) -> None:
    """Save twice, the second time on a full disk, and load the newest one."""
    named = ProjectConfiguration(project_dir=directory, automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=named)
    accelerator.prepare(Model())
    for num_bytes in (resource.RLIM_INFINITY, FILE_BYTES):
        limit(num_bytes)
        try:
            accelerator.save_state()
        except Exception as error:
            print(f"save_state: {type(error).__name__}: {error}")  # noqa: T201
    limit(resource.RLIM_INFINITY)
    try:
        accelerator.load_state()
    except Exception as error:
        print(f"load_state: {type(error).__name__}: {error}")  # noqa: T201


def main() -> None:
    """Fill, free, look for the newest checkpoint, and resume from it."""
    with TemporaryDirectory() as directory:
        tried(directory)
        limit(resource.RLIM_INFINITY)
        newest = get_last_checkpoint(directory)
        left = {path.name: sorted(file.name for file in path.iterdir()) for path in sorted(Path(directory).iterdir())}
        print(f"newest, as the Trainer looks for it: {newest}, of {left}")  # noqa: T201
        tried(directory, newest)
    with TemporaryDirectory() as directory:
        by_accelerate(directory)


if __name__ == "__main__":
    main()
