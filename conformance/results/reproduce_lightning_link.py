"""Shows, without the suite, that last.ckpt of Lightning names an old checkpoint after a resume."""

# ruff: noqa: ARG002 - callbacks have the form that the stack calls
from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint


class Module(lightning.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss of a batch."""
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Killed(Callback):
    """Ends the attempt at the begin of a step, as a kill does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """An optimizer step is next."""
        if trainer.global_step == self._step:
            raise SystemExit


def attempt(directory: Path, step: int) -> None:
    """Train until the kill, from the checkpoint that last.ckpt names, if any, and print its final target."""
    saves = ModelCheckpoint(
        dirpath=directory,
        filename="{step}",
        monitor="step",
        mode="max",
        save_top_k=3,
        save_last="link",
        every_n_train_steps=2,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=20,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=directory,
        callbacks=[Killed(step), saves],
    )
    samples = torch.utils.data.TensorDataset(torch.randn(64, 4))
    last = directory / "last.ckpt"
    try:
        found = str(last) if last.exists() else None
        trainer.fit(Module(), torch.utils.data.DataLoader(samples, batch_size=2), ckpt_path=found)
    except SystemExit:
        names = {path.name: path.readlink().name for path in sorted(directory.glob("last*"))}
        print(f"killed at step {step}: {names}")  # noqa: T201


def main() -> None:
    """An attempt, and a second attempt that resumes from it."""
    with TemporaryDirectory() as name:
        attempt(Path(name), 3)
        attempt(Path(name), 7)


if __name__ == "__main__":
    main()
