"""The only place that shows, without the suite, whether Lightning on two ranks ends and saves when it is asked to.

Run it: `torchrun --standalone --nproc-per-node=2 reproduce_lightning_sigterm.py DIRECTORY`, and send SIGTERM to
torchrun once updates are printed. `save_on_exception` is set, so a checkpoint is to be expected.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint


class Module(lightning.LightningModule):
    """Prints its updates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss of a batch."""
        time.sleep(0.05)
        print(f"{time.time():.1f} rank {self.global_rank} batch {index}", flush=True)  # noqa: T201
        loss = self.layer(batch[0]).mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main(directory: str) -> None:
    """Train for a long time."""
    samples = torch.utils.data.TensorDataset(torch.ones(100_000, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        callbacks=[ModelCheckpoint(dirpath=directory, save_on_exception=True)],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(samples, batch_size=2))


if __name__ == "__main__":
    main(sys.argv[1])
