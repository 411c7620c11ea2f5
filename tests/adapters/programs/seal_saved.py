"""Saves two checkpoints with the library of a framework, seals each, and resumes, by the lines that the guide names."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainspec_record.checkpoints import Seal, newest_good, seal_in_background

STEPS = (10, 20)
SECONDS = 120
Save = Callable[[int], Seal]
Load = Callable[[Path], float]
"""Restores a checkpoint; gives the step that its state holds."""


def model():
    import torch

    return torch.nn.Linear(64, 64)


def fill(net, step: int) -> None:
    import torch

    torch.nn.init.constant_(net.weight, float(step))


def accelerate(directory: Path) -> tuple[Save, Load]:
    from accelerate import Accelerator
    from torch.optim import AdamW

    accelerator, net = Accelerator(cpu=True), model()
    accelerator.prepare(net, AdamW(net.parameters()))

    def save(step: int) -> Seal:
        fill(net, step)
        return seal_in_background(accelerator.save_state(str(directory / f"step-{step}")))

    def load(good: Path) -> float:
        accelerator.load_state(str(good))
        return net.weight[0, 0].item()

    return save, load


def dcp(directory: Path) -> tuple[Save, Load]:
    from torch.distributed import checkpoint

    net = model()

    def save(step: int) -> Seal:
        path = directory / f"step-{step}"
        fill(net, step)
        checkpoint.save({"model": net.state_dict()}, checkpoint_id=path, no_dist=True)
        return seal_in_background(path)

    def load(good: Path) -> float:
        state = {"model": net.state_dict()}
        checkpoint.load(state, checkpoint_id=good, no_dist=True)
        return state["model"]["weight"][0, 0].item()

    return save, load


def dcp_asynchronous(directory: Path) -> tuple[Save, Load]:
    import torch.distributed
    from torch.distributed import checkpoint

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    net = model()

    def save(step: int) -> Seal:
        path = directory / f"step-{step}"
        fill(net, step)
        checkpoint.async_save({"model": net.state_dict()}, checkpoint_id=path).result()
        return seal_in_background(path)

    def load(good: Path) -> float:
        state = {"model": net.state_dict()}
        checkpoint.load(state, checkpoint_id=good)
        return state["model"]["weight"][0, 0].item()

    return save, load


def orbax(directory: Path) -> tuple[Save, Load]:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def save(step: int) -> Seal:
        with ocp.CheckpointManager(directory) as manager:
            manager.save(step, args=ocp.args.StandardSave({"weight": jnp.full((64, 64), float(step))}))
            manager.wait_until_finished()
        return seal_in_background(f"{directory}/{step}")

    def load(good: Path) -> float:
        with ocp.CheckpointManager(directory) as manager:
            found = manager.restore(int(good.name), args=ocp.args.StandardRestore({"weight": jnp.zeros((64, 64))}))
        return float(found["weight"][0, 0])

    return save, load


def deepspeed(directory: Path) -> tuple[Save, Load]:
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
        fill(net, step)
        engine.save_checkpoint(str(directory))
        return seal_in_background(f"{directory}/global_step{engine.global_steps}")

    def load(good: Path) -> float:
        engine.load_checkpoint(str(directory), tag=good.name)
        return net.weight[0, 0].item()

    return save, load


def transformers(directory: Path, good: Path | None = None) -> float | None:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

    from trainspec_record.adapters.transformers import SealCallback

    class Small(PreTrainedModel):
        config_class = PreTrainedConfig

        def __init__(self, config: PreTrainedConfig) -> None:
            super().__init__(config)
            self.line = torch.nn.Linear(64, 64)
            self.post_init()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.line(x).square().mean()}

    begun: list[int] = []

    class Begin(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            begun.append(state.global_step)

    every = {"save_strategy": "steps", "save_steps": STEPS[0], "max_steps": STEPS[1]}
    arguments = TrainingArguments(str(directory), use_cpu=True, report_to=[], **every)
    samples = [{"x": torch.ones(64)}] * 8
    callbacks = [SealCallback(), Begin()]
    trainer = Trainer(Small(PreTrainedConfig()), arguments, train_dataset=samples, callbacks=callbacks)
    if good is None:
        trainer.train()
    else:
        trainer.train(resume_from_checkpoint=str(good))
    return begun[0]


def ray(directory: Path, good: Path | None = None) -> float | None:
    import ray as library
    import torch
    from ray.train import Checkpoint, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    if good is not None:
        with Checkpoint.from_directory(good).as_directory() as folder:
            return torch.load(Path(folder, "state.pt"))["step"]

    def loop() -> None:
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
    return None


OF_THEIR_OWN = (transformers, ray)
"""Their libraries call for each save."""


def main(framework: str, directory: Path) -> None:
    """Save where the directory is not there yet, and else print the step of the state that is resumed from."""
    run, is_resumed = globals()[framework], directory.exists()
    good = newest_good(directory) if is_resumed else None
    if run in OF_THEIR_OWN:
        begun = run(directory, good)
    else:
        save, load = run(directory)
        begun = load(good) if good is not None else None
        for step in () if is_resumed else STEPS:
            sealed = save(step)
            assert sealed.wait(SECONDS), sealed.problem
    if is_resumed:
        sys.stdout.write(f"resumed from step {begun:g}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
