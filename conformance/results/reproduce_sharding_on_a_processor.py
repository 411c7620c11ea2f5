"""Shows, without the suite, what becomes of sharding that is asked for on a processor.

Run it: `torchrun --standalone --nproc-per-node=2 reproduce_sharding_on_a_processor.py DIRECTORY`. It asks an
Accelerator and a Trainer to shard, and prints of each the class that wraps the model, and how many of its parameters a
rank holds.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    """One layer with 64 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8, bias=False)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean squared output."""
        return {"loss": self.layer(inputs).square().mean()}


def tell(asked: str, model: torch.nn.Module) -> None:
    """Print what a rank holds."""
    held = sum(getattr(one, "to_local", lambda one=one: one)().numel() for one in model.parameters())
    if os.environ["RANK"] == "0":
        print(f"{asked}: {type(model).__name__}, {held} of 64 parameters on this rank")  # noqa: T201


class Telling(TrainerCallback):  # type: ignore[misc]
    """Prints the model that a Trainer trains."""

    def __init__(self) -> None:
        self.trainer: Any = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The step has been made."""
        tell("Trainer with fsdp=full_shard", self.trainer.model_wrapped)


def main(directory: str) -> None:
    """Ask both."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    model = Model()
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    tell("Accelerator with an FSDP plug-in", model)
    AcceleratorState._reset_state(reset_partial_state=True)
    samples = [{"inputs": torch.ones(8)}] * 8
    options = {"max_steps": 1, "per_device_train_batch_size": 1, "save_strategy": "no", "report_to": []}
    arguments = TrainingArguments(output_dir=directory, use_cpu=True, disable_tqdm=True, fsdp="full_shard", **options)
    telling = Telling()
    telling.trainer = Trainer(model=Model(), args=arguments, train_dataset=samples, callbacks=[telling])
    telling.trainer.train()


if __name__ == "__main__":
    main(sys.argv[1])
