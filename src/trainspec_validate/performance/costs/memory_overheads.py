"""Gives the memory that an implementation adds to the tensors of a model on a device."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
LEAST_FRAGMENTATION = 0.06
"""Least share that an allocator reserves beyond its tensors: it returns cached blocks before it fails. Chosen
with 804 published runs that ran and 339 that ran out of memory (benchmarks/score_feasibility.py): beyond it more runs
that ran are refused, and hardly more of the others."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Memory that an implementation adds to the tensors of the model; every default has its source here.

    Raises:
        ValueError: a number is negative, or an offloaded share exceeds 1.
    """

    context_bytes: float = 0.92 * GIB
    """Device context and kernels: 0.47 to 0.92 GiB, stas00/ml-engineering@744d01e1:training/performance/README.md."""
    communication_bytes: float = 1.45 * GIB
    """Buffers of the collectives, where there is more than one rank: 0.55 GiB became 2.00 GiB, same source."""
    fragmentation: float = 0.12
    """Memory that the allocator reserves beyond its tensors, as a share of them: the median of 20 published runs of
    pytorch/torchtitan@b5bcd76c:benchmarks is 0.125, of those without a pipeline 0.117; they are between 0.09 and
    0.30. benchmarks/score_memory.py computes it."""
    gathered_units: float = 2.0
    """Layers whose weights are gathered at once where weights are sharded: the one at work and the next."""
    gathers_matrices: bool = False
    """Whether a matrix is gathered, and its gradient reduced, by itself, and not a layer as one unit."""
    gathered_weight_bytes: float = 2.0
    """Bytes of one gathered weight of a layer: 2 in 16 bits, 1 where 8-bit weights are gathered."""
    gathered_table_bytes: float = 2.0
    """Bytes of one gathered weight of a table; 8-bit products leave the tables alone."""
    gradients_come_late: bool = False
    """Whether gradients of a step of one micro-batch have no memory before their layer goes backward."""
    gathered_gradient_bytes: float = 2.0
    """Bytes of one gradient of the unit at work, before it is reduced and sharded."""
    tables_stay_gathered: bool = True
    """Whether the tables of the vocabulary are gathered for the whole step, as the root unit of FSDP is."""
    stage_stays_gathered: bool = False
    """Whether a whole pipeline stage, with its gradients, stays gathered during a step: without it, each
    micro-batch gathers anew. pytorch/torchtitan@9dec370a:torchtitan/parallelisms/parallelize_llama.py does."""
    accumulated_gradient_bytes: float = 4.0
    """Bytes of one gradient of a stage that stays gathered, which adds up its micro-batches."""
    keeps_stage_outputs: bool = False
    """Whether a stage keeps two tensors of its boundary for every micro-batch until the step ends, the last stage
    its outputs: pytorch/pytorch@01386103:torch/distributed/pipelining/stage.py has a buffer for the input and one
    for the gradient of each micro-batch, and its last stage collects the outputs."""
    loss_bytes_per_logit: float = 6.0
    """A 16-bit logit and its fp32 copy (stas00/ml-engineering@744d01e1:training/performance/README.md)."""
    cached_copy_bytes: float = 0.0
    """Bytes of one weight's cached low-precision copies, in addition to its weights where those are not sharded."""
    optimizer_copies: float = 0.0
    """Moments of the optimizer that its step has a second time, when activations are gone: one for `foreach` of
    https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html, the root of all second moments."""
    offloaded_parameters: float = 0.0
    """Share of the weights that waits on the host."""
    offloaded_gradients: float = 0.0
    """Share of the gradients that leaves for the host when they are made."""
    offloaded_optimizer: float = 0.0
    """Share of the optimizer that lives on the host."""
    offloaded_activations: float = 0.0
    """Share of the kept activations that waits on the host."""

    def __post_init__(self) -> None:
        numbers = (
            *(self.context_bytes, self.communication_bytes, self.fragmentation),
            *(self.gathered_units, self.gathered_weight_bytes, self.gathered_table_bytes),
            *(self.gathered_gradient_bytes, self.accumulated_gradient_bytes, self.cached_copy_bytes),
            *(self.loss_bytes_per_logit, self.optimizer_copies),
        )
        shares = (
            *(self.offloaded_parameters, self.offloaded_gradients),
            *(self.offloaded_optimizer, self.offloaded_activations),
        )
        if min(*numbers, *shares) < 0 or max(shares) > 1:
            raise ValueError(f"an overhead is negative, or an offloaded share exceeds 1: {self}")


XLA = Overheads(
    context_bytes=0.0,
    communication_bytes=0.0,
    fragmentation=0.003,
    gathers_matrices=True,
    gradients_come_late=True,
    loss_bytes_per_logit=4.0,
    tables_stay_gathered=False,
)
"""A step that XLA has compiled for a TPU: its memory is planned ahead. "0.3% fragmentation" of erfanzar/EasyDeL#166.
The context is not in the memory that a TPU reports: "of 30.75G hbm" and "reserved 1.25G" there are the 32 GiB of a TPU
v4 together, "of 15.48G hbm" and "reserved 530.00M" of erfanzar/EasyDeL#142 are the 16 GiB of a core of a TPU v3.
Each weight is gathered just before its product: jax-ml/scaling-book@0819a7d8:training.md, the algorithm of FSDP. XLA
fuses the loss between two products (https://openxla.org/xla/architecture): a logit and its gradient have memory, of 16
bits each. A buffer has it from its first use to its last: openxla/xla:xla/service/buffer_assignment.h."""
