"""Shards the state of third-party stacks over ranks, each by the option that it offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from example import Samples
from torch import Tensor, distributed, nn

WIDTH = 1024


class Wide(nn.Module):
    """A network whose parameters are most of what its training takes."""

    def __init__(self, num_parameters: int) -> None:
        super().__init__()
        num_layers = -(-num_parameters // (WIDTH * WIDTH))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(num_layers))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """The mean squared output of residual layers."""
        hidden = inputs
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        return {"loss": hidden.square().mean()}


class Inputs(Samples):
    """Wide samples, of which the loss needs the inputs alone."""

    num_features = WIDTH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs(index)}


class Losses(list[float]):
    """Losses of all ranks in the mean, one after the other."""

    def add(self, loss: Tensor) -> None:
        """One more, which all ranks add at the same time."""
        whole = loss.detach().double().clone()
        distributed.all_reduce(whole)
        self.append(float(whole) / distributed.get_world_size())


def by_transformers(question: dict[str, Any], losses: Losses) -> None:
    """A Trainer whose arguments name full sharding where it is asked for."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 - one stack is asked, and the others may be missing

    class Telling(Trainer):  # type: ignore[misc]
        """A Trainer that reports the loss of each update."""

        def compute_loss(self, *arguments: Any, **more: Any) -> Any:
            """As the Trainer does."""
            found = super().compute_loss(*arguments, **more)
            losses.add(found[0] if isinstance(found, tuple) else found)
            return found

    named = {} if question["sharding"] == "none" else {"fsdp": "full_shard auto_wrap", "fsdp_config": WRAPPED}
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            max_steps=question["num_steps"],
            per_device_train_batch_size=1,
            save_strategy="no",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            **named,
        )
        model, inputs = Wide(question["num_parameters"]), Inputs(64, question["seed"])
        Telling(model=model, args=arguments, train_dataset=inputs).train()


def by_accelerate(question: dict[str, Any], losses: Losses) -> None:
    """A loop that gives a plug-in of full sharding to its Accelerator where it is asked for."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin  # noqa: PLC0415

    wrapped = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Linear"]}
    is_whole = question["sharding"] == "none"
    plugin = None if is_whole else FullyShardedDataParallelPlugin(fsdp_version=2, **wrapped)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    model = Wide(question["num_parameters"])
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Inputs(64, question["seed"]), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _, batch in zip(range(question["num_steps"]), loader, strict=False):
        loss = model(**batch)["loss"]
        losses.add(loss)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def by_deepspeed(question: dict[str, Any], losses: Losses) -> None:
    """An engine whose configuration names stage 3 where full sharding is asked for."""
    import deepspeed  # noqa: PLC0415

    deepspeed.init_distributed("gloo")
    num_ranks, rank = distributed.get_world_size(), distributed.get_rank()
    configuration = {
        "train_batch_size": num_ranks,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 0 if question["sharding"] == "none" else 3},
    }
    model = Wide(question["num_parameters"])
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=configuration)
    inputs = Inputs(64, question["seed"])
    for step in range(question["num_steps"]):
        loss = engine(inputs[num_ranks * step + rank]["inputs"][None])["loss"]
        losses.add(loss)
        engine.backward(loss)
        engine.step()


WRAPPED = {"transformer_layer_cls_to_wrap": ["Linear"]}
STACKS: dict[str, Callable[[dict[str, Any], Losses], None]] = {
    "transformers": by_transformers,
    "accelerate": by_accelerate,
    "deepspeed": by_deepspeed,
}


def answer(stack: str, question: dict[str, Any]) -> dict[str, Any]:
    """Train on as many ranks as are wanted, which torchrun starts, and give the report of the first one."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "in.json", Path(directory) / "out.json"
        source.write_text(json.dumps(question), encoding="utf-8")
        ranks = ["--standalone", f"--nproc-per-node={question['num_ranks']}"]
        command = [sys.executable, "-m", "torch.distributed.run", *ranks, __file__, stack, str(source), str(target)]
        subprocess.run(command, check=True)  # noqa: S603
        return {"memory": "host", **json.loads(target.read_text(encoding="utf-8"))}


def main(stack: str, source: str, target: str) -> None:
    """Train as one rank."""
    question, losses = json.loads(Path(source).read_text(encoding="utf-8")), Losses()
    torch.manual_seed(question["seed"])
    STACKS[stack](question, losses)
    if os.environ["RANK"] == "0":
        Path(target).write_text(json.dumps({"losses": losses}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
