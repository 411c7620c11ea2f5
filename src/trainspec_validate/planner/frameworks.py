"""Says which layouts each training framework can run, so that a plan for a framework runs in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainspec_validate.performance.costs.layout import Layout


@dataclass(frozen=True, slots=True)
class Abilities:
    """Dimensions, schedules and sharding that a framework offers; the defaults are all that a search has."""

    source: str
    tensor: bool = True
    context: bool = True
    pipeline: bool = True
    virtual_stages: bool = True
    uneven_stages: bool = True
    expert: bool = True
    stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages without a pipeline."""
    pipeline_stages: tuple[int, ...] = (0, 1, 2)
    """ZeRO stages under a pipeline."""
    copies_split_models: bool = True
    """Whether whole copies of a model that other ranks split are possible."""
    partial_stages: tuple[int, ...] = (1, 2, 3)
    """ZeRO stages that a part of the data ranks can share, with copies between the parts."""
    optimizer_on_host: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages at which the optimizer alone can wait on the host."""
    state_on_host: tuple[int, ...] = (3,)
    """ZeRO stages at which weights, gradients and optimizer can."""

    def runs(self, layout: Layout) -> bool:
        """Whether the framework can run a layout."""
        w = layout
        wanted = (
            (w.tensor > 1, self.tensor),
            (w.context > 1, self.context),
            (w.pipeline > 1, self.pipeline),
            (w.num_virtual_stages > 1, self.virtual_stages),
            (bool(w.stage_layers), self.uneven_stages),
            (w.expert > 1, self.expert),
        )
        return all(able for used, able in wanted if used) and self._shares(w)

    def offloads(self, layout: Layout, offload: str) -> bool:
        """Whether the framework can leave this much of the model state of a layout on the host."""
        stages = {"optimizer": self.optimizer_on_host, "state": self.state_on_host}.get(offload)
        return stages is None or layout.sharding_stage in stages

    def _shares(self, layout: Layout) -> bool:
        stage, split = layout.sharding_stage, layout.tensor * layout.context * layout.pipeline > 1
        if stage == 0:
            return self.copies_split_models or not split
        whole = layout.sharding_degree is None or stage in self.partial_stages
        return whole and stage in (self.pipeline_stages if layout.pipeline > 1 else self.stages)


_MEGATRON = Abilities(
    "NVIDIA/Megatron-LM:megatron/training/arguments.py (use_distributed_optimizer; use_megatron_fsdp shards gradients "
    "and parameters, without a pipeline)",
    pipeline_stages=(0, 1),
    optimizer_on_host=(1,),
    state_on_host=(),
)
_FSDP = Abilities(
    "https://docs.pytorch.org/docs/stable/fsdp.html (ShardingStrategy)",
    tensor=False,
    context=False,
    pipeline=False,
    expert=False,
    stages=(0, 2, 3),
    partial_stages=(2, 3),
    optimizer_on_host=(),
)
ABILITIES: Mapping[str, Abilities] = {
    "megatron-lm": _MEGATRON,
    "megatron-core": _MEGATRON,
    "megatron-bridge": _MEGATRON,
    "nemo": _MEGATRON,
    "torchtitan": Abilities(
        "pytorch/torchtitan@395a5262:torchtitan/config/job_config.py (fully_shard; no sharding of optimizers alone), "
        "torchtitan/models/llama3/infra/parallelize.py (DDP has not supported > 1D parallelism)",
        stages=(0, 2, 3),
        pipeline_stages=(2,),
        partial_stages=(2, 3),
        copies_split_models=False,
        optimizer_on_host=(),
    ),
    "deepspeed": Abilities(
        "https://www.deepspeed.ai/tutorials/pipeline/ (1F1B), deepspeed/runtime/pipe/engine.py (ZeRO-2 and ZeRO-3 are "
        "refused), https://www.deepspeed.ai/docs/config-json/ (zero_optimization, mics_shard_size, tensor_parallel)",
        context=False,
        virtual_stages=False,
        uneven_stages=False,
        pipeline_stages=(0, 1),
        partial_stages=(3,),
        optimizer_on_host=(1, 2, 3),
        state_on_host=(),
    ),
    "maxtext": Abilities(
        "AI-Hypercomputer/maxtext:src/maxtext/configs/base.yml (ici and dcn axes, shard_optimizer_over_data), "
        "src/maxtext/layers/pipeline.py (circular pipeline of equal stages, which is not 1F1B)",
        pipeline=False,
        stages=(0, 1, 3),
        partial_stages=(3,),
        state_on_host=(),
    ),
    "fms-fsdp": replace(
        _FSDP,
        source="foundation-model-stack/fms-fsdp@078c29e7:fms_fsdp/utils/train_utils.py (fsdp, hsdp and ddp alone)",
        stages=(0, 3),
        partial_stages=(3,),
        state_on_host=(),
    ),
    "pytorch": _FSDP,
    "llm-foundry": replace(_FSDP, expert=True, state_on_host=()),
}
"""By the name of a framework."""
ANY = Abilities("the space of a search")


def abilities_of(name: str | None) -> Abilities:
    """Abilities of a framework; all of them for one that is not listed.

    >>> abilities_of("maxtext").pipeline, abilities_of(None).pipeline
    (False, True)
    """
    return ABILITIES.get((name or "").lower(), ANY)
