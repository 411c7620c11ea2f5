"""Saves two checkpoints with the library of a framework, and seals each by the line that the guide names."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainspec_record.checkpoints import Seal, seal_in_background

STEPS = (10, 20)
SECONDS = 120


def model():
    import torch

    return torch.nn.Linear(64, 64)


def accelerate(directory: Path) -> Callable[[int], Seal]:
    from accelerate import Accelerator
    from torch.optim import AdamW

    accelerator, net = Accelerator(cpu=True), model()
    accelerator.prepare(net, AdamW(net.parameters()))
    return lambda step: seal_in_background(accelerator.save_state(str(directory / f"step-{step}")))


def dcp(directory: Path) -> Callable[[int], Seal]:
    from torch.distributed import checkpoint

    net = model()

    def save(step: int) -> Seal:
        path = directory / f"step-{step}"
        checkpoint.save({"model": net.state_dict()}, checkpoint_id=path, no_dist=True)
        return seal_in_background(path)

    return save


def dcp_asynchronous(directory: Path) -> Callable[[int], Seal]:
    import torch.distributed
    from torch.distributed import checkpoint

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    net = model()

    def save(step: int) -> Seal:
        path = directory / f"step-{step}"
        checkpoint.async_save({"model": net.state_dict()}, checkpoint_id=path).result()
        return seal_in_background(path)

    return save


def orbax(directory: Path) -> Callable[[int], Seal]:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def save(step: int) -> Seal:
        with ocp.CheckpointManager(directory) as manager:
            manager.save(step, args=ocp.args.StandardSave({"weight": jnp.full((64, 64), float(step))}))
            manager.wait_until_finished()
        return seal_in_background(f"{directory}/{step}")

    return save


def deepspeed(directory: Path) -> Callable[[int], Seal]:
    import deepspeed as library
    from torch.optim import SGD

    library.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiled for minutes at its first use
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update(alone)
    library.init_distributed("gloo")
    net = model()
    config = {
        "train_batch_size": 1,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, *_ = library.initialize(model=net, optimizer=SGD(net.parameters(), lr=0.1), config=config)

    def save(step: int) -> Seal:
        engine.global_steps = step
        engine.save_checkpoint(str(directory))
        return seal_in_background(f"{directory}/global_step{engine.global_steps}")

    return save


def transformers(directory: Path) -> None:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from trainspec_record.adapters.transformers import SealCallback

    class Small(PreTrainedModel):
        config_class = PreTrainedConfig

        def __init__(self, config: PreTrainedConfig) -> None:
            super().__init__(config)
            self.line = torch.nn.Linear(64, 64)
            self.post_init()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.line(x).square().mean()}

    every = {"save_strategy": "steps", "save_steps": STEPS[0], "max_steps": STEPS[1]}
    arguments = TrainingArguments(str(directory), use_cpu=True, report_to=[], **every)
    samples = [{"x": torch.ones(64)}] * 8
    Trainer(Small(PreTrainedConfig()), arguments, train_dataset=samples, callbacks=[SealCallback()]).train()


def ray(directory: Path) -> None:
    import ray as library
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def loop() -> None:
        import torch
        from ray import train

        for step in STEPS:
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"model": torch.zeros(64, 64), "step": step}, Path(folder, "state.pt"))
                assert seal_in_background(folder, step=step).wait(SECONDS)
                train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(folder))

    variables = {"PYTHONPATH": os.pathsep.join(sys.path)}
    library.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": variables})
    alone = ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.5})
    where = RunConfig(storage_path=str(directory.parent), name=directory.name)
    TorchTrainer(loop, scaling_config=alone, run_config=where).fit()
    library.shutdown()


def main(framework: str, directory: Path) -> None:
    directory.mkdir()
    save = globals()[framework](directory)
    for step in STEPS if save else ():
        sealed = save(step)
        assert sealed.wait(SECONDS), sealed.problem


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
