"""Shows, without the suite, which samples Lightning deals out: two ranks, a sequential loader.

Run it twice: `torchrun --standalone --nproc-per-node=2 reproduce_lightning_order.py DIRECTORY`. The first run stops
after five of ten steps, the second continues from the checkpoint of the first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint


class Module(lightning.LightningModule):
    """Prints the numbers of the samples of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss of a batch."""
        ids = batch[0].flatten().int().tolist()
        print(f"rank {self.global_rank} step {self.global_step + 1} batch {index} samples {ids}")  # noqa: T201
        return self.layer(batch[0]).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main(directory: str) -> None:
    """Train five optimizer steps, or the five after them."""
    last = Path(directory) / "last.ckpt"
    samples = torch.utils.data.TensorDataset(torch.arange(40.0)[:, None])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=10 if last.exists() else 5,
        logger=False,
        enable_progress_bar=False,
        callbacks=[ModelCheckpoint(dirpath=directory, save_last=True, every_n_train_steps=5)],
    )
    loader = torch.utils.data.DataLoader(samples, batch_size=2, shuffle=False)
    trainer.fit(Module(), loader, ckpt_path=str(last) if last.exists() else None)


if __name__ == "__main__":
    main(sys.argv[1])
