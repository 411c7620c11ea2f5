"""Asks the stacks of others for the update that one gradient gives."""

from __future__ import annotations

import base64
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # DeepSpeed looks for ninja there

import numpy as np
import torch
from example import Model, Samples
from torch import Tensor

NUM_SAMPLES = 16
Batch = dict[str, Tensor]


class Louder(torch.nn.Module):
    """The example with its loss times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.example, self.factor = Model(0.0), factor

    def forward(self, inputs: Tensor, targets: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """As `Model.forward`."""
        return {"loss": self.example(inputs, targets, ids)["loss"] * self.factor}


def batch_of(samples: Samples) -> Batch:
    """All samples as one batch."""
    found: Batch = torch.utils.data.default_collate([samples[index] for index in range(NUM_SAMPLES)])
    return found


def by_accelerate(model: Louder, samples: Samples, clip_norm: float | None) -> None:
    """The loop of its documentation, which clips where the task asks for it."""
    from accelerate import Accelerator  # noqa: PLC0415 - one stack is asked, and the others may be missing

    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    accelerator.backward(prepared(**batch_of(samples))["loss"])
    if clip_norm is not None:
        accelerator.clip_grad_norm_(prepared.parameters(), clip_norm)
    optimizer.step()


def by_deepspeed(model: Louder, samples: Samples, clip_norm: float | None) -> None:
    """An engine whose configuration names clipping where it is asked for."""
    import deepspeed  # noqa: PLC0415

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    deepspeed.init_distributed("gloo")
    configuration = {
        "train_batch_size": NUM_SAMPLES,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        **({} if clip_norm is None else {"gradient_clipping": clip_norm}),
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    engine.backward(engine(**batch_of(samples))["loss"])
    engine.step()


def by_transformers(model: Louder, samples: Samples, clip_norm: float | None) -> None:
    """A Trainer whose arguments name clipping where it is asked for."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415

    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            max_steps=1,
            per_device_train_batch_size=NUM_SAMPLES,
            save_strategy="no",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            **({} if clip_norm is None else {"max_grad_norm": clip_norm}),
        )
        Trainer(model=model, args=arguments, train_dataset=samples, optimizers=(optimizer, constant)).train()


def by_lightning(model: Louder, samples: Samples, clip_norm: float | None) -> None:
    """A Trainer whose arguments name clipping where it is asked for."""
    import lightning  # noqa: PLC0415

    class Module(lightning.LightningModule):
        """The code of a user."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Batch, index: int) -> Tensor:  # noqa: ARG002 - the form that is called
            """The loss of a batch."""
            loss: Tensor = self.model(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Gradient descent alone."""
            return torch.optim.SGD(self.parameters(), lr=1.0)

    named = {} if clip_norm is None else {"gradient_clip_val": clip_norm}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "barebones": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=1, **quiet, **named)
    trainer.fit(Module(), torch.utils.data.DataLoader(samples, batch_size=NUM_SAMPLES))


STACKS: dict[str, Callable[[Louder, Samples, float | None], None]] = {
    "accelerate": by_accelerate,
    "deepspeed": by_deepspeed,
    "transformers": by_transformers,
    "lightning": by_lightning,
}


def update(stack: str, question: dict[str, Any], factor: float) -> list[float]:
    """Change of all parameters, in the order of their names, by one update of gradient descent at a rate of 1."""
    torch.manual_seed(question["seed"])
    model = Louder(factor)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    STACKS[stack](model, Samples(NUM_SAMPLES, question["seed"]), question["clip_norm"])
    after = dict(model.named_parameters())
    change = [(before[name] - after[name].detach()).double().flatten() for name in sorted(before)]
    return [float(one) for one in torch.cat(change)]


def answer(stack: str, question: dict[str, Any]) -> dict[str, Any]:
    """The step that each factor gives."""
    found = np.array([update(stack, question, factor) for factor in question["factors"]], "<f8")
    content = base64.b64encode(found.tobytes()).decode()
    return {"updates": {"dtype": "float64", "shape": list(found.shape), "base64": content}}
