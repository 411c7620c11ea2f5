"""A small model is fitted by Lightning's Trainer: OUT DEVICES MODE."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

OUT, DEVICES, MODE = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PACKAGE = "pytorch_lightning" if MODE == "alone" else "lightning.pytorch"
lightning, callbacks, loggers = (import_module(f"{PACKAGE}{part}") for part in ("", ".callbacks", ".loggers"))
NUM_SAMPLES, BATCH, ACCUMULATED = 64, 4, 2


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.losses: list[float] = []
        self.rates: list[float] = []

    def training_step(self, batch: Any, index: int) -> Any:
        if MODE == "fail" and self.trainer.global_step == 3:
            raise torch.OutOfMemoryError("no memory is left")
        loss = (self.line(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("held_out", (self.line(batch[0]) - batch[1]).square().mean(), sync_dist=True)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.log("norm", torch.nn.utils.get_total_norm([each.grad for each in self.parameters()]))
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_validation_end(self) -> None:
        self.losses.append(float(self.trainer.callback_metrics["held_out"]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def told() -> list[Any]:
    if MODE in {"found", "alone"}:
        return []
    from trainspec_record.adapters.lightning import TrainspecCallback

    return [TrainspecCallback(loss="loss", evaluation_loss="held_out", gradient_norm="norm")]


def main() -> None:
    lightning.seed_everything(0)
    inputs = torch.randn(NUM_SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    saves = callbacks.ModelCheckpoint(dirpath=OUT / "saves", every_n_train_steps=4, save_top_k=-1, filename="{step}")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=DEVICES,
        max_epochs=3 if MODE == "resume" else 2,
        log_every_n_steps=1,
        accumulate_grad_batches=ACCUMULATED,
        logger=loggers.CSVLogger(OUT),
        default_root_dir=OUT,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saves, *told()],
    )
    model = Model()
    resumed = OUT / "saves" / "step=8.ckpt" if MODE == "resume" else None
    trainer.fit(model, DataLoader(data, BATCH), DataLoader(data, 16), ckpt_path=resumed)
    if trainer.is_global_zero:
        truth = {"steps": trainer.global_step, "losses": model.losses, "rates": model.rates}
        (OUT / "truth.json").write_text(json.dumps({**truth, "profiler": type(trainer.profiler).__name__}))


if __name__ == "__main__":
    main()
