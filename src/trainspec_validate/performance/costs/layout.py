"""Declares how a job is divided over ranks, in the plain numbers that the models share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Parallel degrees, sharding, schedule and micro-batches of a job; every field is a count.

    Raises:
        ValueError: a count is below 1, or the sharding stage is not 0 to 3.
    """

    data: int = 1
    """Replicas of the model, shards of a sharded replica included."""
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    """Ranks that split the experts, taken from the data, context and tensor ranks of a stage."""
    expert_tensor: int | None = None
    """Ranks that split one expert's matrices; None means as `tensor`."""
    sequence_parallel: bool = False
    """Whether the tensor ranks also split activations along the sequence."""
    schedule: str = "1f1b"
    """Pipeline schedule, by its name in a training plan."""
    num_virtual_stages: int = 1
    """Pipeline chunks of one rank."""
    stage_layers: tuple[int, ...] = ()
    """Layers of each chunk in pipeline order, for an uneven split; empty means even."""
    sharding_stage: int = 0
    """State that copies share: 0 nothing, 1 the optimizer, 2 gradients too, 3 weights too (ZeRO-1, 2, 3)."""
    sharding_degree: int | None = None
    """Data ranks that share one copy; None means all. Context ranks hold the same weights and share them too."""
    micro_sequences: int = 1
    """Sequences that one data rank processes at once."""
    num_micro_batches: int = 1
    """Micro-batches of one data rank in one optimizer step."""
    sequence_length: int = 1
    """Tokens of one sequence, before context ranks split it."""

    def __post_init__(self) -> None:
        counts = (
            *(self.data, self.tensor, self.pipeline, self.context, self.expert, self.expert_tensor or 1),
            *(self.num_virtual_stages, self.sharding_degree or 1),
            *(self.micro_sequences, self.num_micro_batches, self.sequence_length),
        )
        if min(counts) < 1:
            raise ValueError(f"a count of the layout is below 1: {self}")
        if self.sharding_stage not in range(4):
            raise ValueError(f"sharding stage {self.sharding_stage} is not one of 0, 1, 2, 3")

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def num_shards(self) -> int:
        """Ranks that share one copy of what is sharded: data ranks of a shard group times context ranks."""
        return (self.sharding_degree or self.data) * self.context

    @property
    def expert_tensor_degree(self) -> int:
        """Ranks that split one expert's matrices."""
        return self.expert_tensor or self.tensor

    @property
    def num_expert_copies(self) -> int:
        """Ranks of a stage that hold the same experts; they share the optimizer of those experts."""
        return max(1, self.data * self.context * self.tensor // (self.expert * self.expert_tensor_degree))

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens of one micro-batch on one rank, after context ranks have split the sequence."""
        return self.micro_sequences * self.sequence_length // self.context
