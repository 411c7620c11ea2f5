"""Shows, without the suite, that the Trainer resumes from a checkpoint with a missing or an older file."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean square of what comes out."""
        return {"loss": self.layer(inputs).square().mean()}


def train(directory: Path, checkpoint: Path | None = None) -> int:
    """Train to step 6, and return the step at which it ended."""
    arguments = TrainingArguments(
        str(directory), max_steps=6, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no"
    )
    samples = [{"inputs": one} for one in torch.randn(64, 8)]
    trainer = Trainer(model=Model(), args=arguments, train_dataset=samples)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return int(trainer.state.global_step)


def main() -> None:
    """Damage the checkpoint of step 4 in two ways, and resume from it."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        train(directory)
        (directory / "checkpoint-4" / "optimizer.pt").unlink()
        last = train(directory, directory / "checkpoint-4")
        print(f"without the state of its optimizer it continues to step {last}")  # noqa: T201
        weights = "model.safetensors"
        shutil.copyfile(directory / "checkpoint-2" / weights, directory / "checkpoint-4" / weights)
        last = train(directory, directory / "checkpoint-4")
        print(f"with the weights of step 2 in the checkpoint of step 4 it continues to step {last}")  # noqa: T201


if __name__ == "__main__":
    main()
