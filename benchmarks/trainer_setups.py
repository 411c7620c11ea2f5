"""Lists the compared setups of the PyTorch trainer: a naive one, and one for each ingredient."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from trainspec_reference.common.job import Data, Job, ModelShape, Rates

from trainspec_validate.documents.types.plan import TrainingPlan

SHAPES = {
    "cpu": ModelShape(
        num_layers=4, hidden_size=128, num_heads=4, ffn_hidden_size=512, vocabulary_size=1024, sequence_length=256
    ),
    "cuda": ModelShape(
        num_layers=6, hidden_size=2048, num_heads=16, ffn_hidden_size=8192, vocabulary_size=32768, sequence_length=2048
    ),
}
LOAD_SECONDS = {"cpu": 0.02, "cuda": 0.02}
"""Time that loading a batch takes in addition to making its samples, as reading from storage would."""
MICRO_SEQUENCES = {"cpu": 2, "cuda": 4}
NUM_MICRO_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to run the same training."""

    name: str
    is_input_ahead: bool = False
    """Loaded during the step before, from page-locked memory where there is a device; else in the loop."""
    is_attention_fused: bool = False
    overlaps_exchange: bool = False
    compute: str = "fp32"
    saves_beside: bool = False
    """Checkpoints are written asynchronously; else training waits."""
    hosts: tuple[str, ...] = field(default=("a", "a"))

    def job(self, device: str, num_steps: int) -> Job:
        """The job."""
        num_ranks = len(self.hosts)
        micro = MICRO_SEQUENCES[device]
        document: dict[str, Any] = {
            "apiVersion": "trainspec/v1",
            "kind": "TrainingPlan",
            "metadata": {"name": "benchmark"},
            "model": {"name": "benchmark", "family": "dense-transformer", "num_parameters": 1_000_000},
            "parallelism": {"num_accelerators": num_ranks, "data": num_ranks},
            "batch": {
                "global_sequences": micro * NUM_MICRO_BATCHES * num_ranks,
                "micro_sequences": micro,
                "accumulation_steps": NUM_MICRO_BATCHES,
            },
            "precision": {"compute": self.compute, "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"},
            "communication": {"overlap_gradients": self.overlaps_exchange, "bucket_bytes": 1_000_000.0},
            "memory": {
                "activation_policy": "none",
                "pinned_input": self.is_input_ahead,
                "prefetch_depth": 2 if self.is_input_ahead else 0,
            },
        }
        data = Data(delay_seconds=LOAD_SECONDS[device])
        plan = msgspec.convert(document, TrainingPlan)
        return Job(plan, None, num_steps, model=SHAPES[device], rates=Rates(), data=data, device=device)


def setups() -> list[Setup]:
    """Naive, naive with one ingredient each, and all together."""
    naive = Setup("naive")
    ingredients: dict[str, dict[str, Any]] = {
        "input ahead": {"is_input_ahead": True},
        "fused attention": {"is_attention_fused": True},
        "overlapped exchange": {"overlaps_exchange": True},
        "tf32 products": {"compute": "tf32"},
        "bf16 products": {"compute": "bf16"},
        "asynchronous saves": {"saves_beside": True},
    }
    alone = [replace(naive, name=name, **changes) for name, changes in ingredients.items()]
    everything = {key: value for changes in ingredients.values() for key, value in changes.items()} | {
        "compute": "bf16"
    }
    no_bf16 = {key: value for key, value in everything.items() if key != "compute"}
    together = [replace(naive, name="all but bf16", **no_bf16), replace(naive, name="all together", **everything)]
    return [naive, *alone, *together]
