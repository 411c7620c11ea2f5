"""Works out the figures of starter documents, so that all three agree with each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from trainspec_validate.model.catalog import CatalogAccelerator
from trainspec_validate.performance.costs import reliability
from trainspec_validate.planner.starter.machines import Build, assumed, build_of

_SEQUENCE = 4096
_MOST_TOKENS = 8e7
"""Tokens of one step beyond which sequences are cut: the largest published batches are far below."""
_SHORTEST_STEP_SECONDS, _LONGEST_STEP_SECONDS = 0.05, 15.0
STATE_BYTES = 18
"""Bytes of one parameter: 2 weights, 4 master copy, 4 gradients, 8 moments."""
_WEIGHT_AND_GRADIENT_BYTES = 6
SAVED_BYTES = 14
"""Bytes of one parameter in a checkpoint: weights, master copy, moments."""
RESERVE_BYTES = 4e9
FAILURES = 6.5
"""Failures per 1000 node-days that stop a job: arXiv:2410.21680."""
_PLANNED_SECONDS = 30 * 86400.0
_MOST_STEPS = 1_000_000
_TOKENS_PER_PARAMETER = 20
_LONGEST_RUN_SECONDS = 180 * 86400.0
"""A model is too large for a machine that does not show it 20 tokens per parameter in half a year."""
BLOCKING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Preset:
    """A dense transformer of a customary shape."""

    name: str
    num_layers: int
    hidden: int
    num_heads: int
    num_groups: int
    ffn: int
    vocabulary: int
    tied: bool
    million_tokens: float
    """Tokens of one step that such a model is customarily trained with, in units of 2^20."""

    @property
    def num_parameters(self) -> int:
        """All parameters, norms included."""
        head = self.hidden // self.num_heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.num_groups * head
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        tables = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.num_layers * layer + tables + self.hidden


PRESETS = (
    Preset("dense-405b", 126, 16384, 128, 8, 53248, 131072, tied=False, million_tokens=16),
    Preset("dense-70b", 80, 8192, 64, 8, 28672, 131072, tied=False, million_tokens=4),
    Preset("dense-8b", 32, 4096, 32, 8, 14336, 131072, tied=False, million_tokens=4),
    Preset("dense-1b", 16, 2048, 32, 8, 8192, 131072, tied=True, million_tokens=1),
    Preset("dense-160m", 12, 768, 12, 4, 2048, 65536, tied=True, million_tokens=0.5),
    Preset("dense-40m", 6, 512, 8, 4, 1536, 32768, tied=True, million_tokens=0.5),
    Preset("dense-7m", 4, 256, 4, 2, 768, 16384, tied=True, million_tokens=0.25),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model is placed on the ranks, and the memory that it takes there."""

    preset: Preset
    data: int
    tensor: int
    sequence: int
    recompute: str
    sharding: str
    """State that the data ranks share, as a plan names it."""
    peak_bytes: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Every figure that the documents state."""

    accelerator: CatalogAccelerator
    """As the catalog has it; `assumed` has what it lacks."""
    build: Build
    num_nodes: int
    domain: int
    used: int
    """Accelerators of a domain, and those of them that the job uses."""
    layout: Layout

    @property
    def has_reserve(self) -> bool:
        """Whether some memory is left free."""
        return has_reserve(assumed(self.accelerator))

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.num_nodes * self.build.num_per_node * self.build.num_ranks

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of one step: the customary batch, unless steps would be long, short or very large."""
        one, tokens = self._step_seconds(self.layout.data), self.layout.data * self.layout.sequence
        customary = self.layout.preset.million_tokens * 2**20 / tokens
        wanted = max(_SHORTEST_STEP_SECONDS / one, min(customary, _LONGEST_STEP_SECONDS / one))
        return max(1, min(round(wanted), int(_MOST_TOKENS / tokens)))

    @property
    def global_sequences(self) -> int:
        """Sequences of one step."""
        return self.layout.data * self.accumulation_steps

    @property
    def peak_flops_per_second(self) -> float:
        """Dense peak of one rank in the format of the plan."""
        return assumed(self.accelerator).peak_flops_per_second[self.build.format] / self.build.num_ranks

    @property
    def step_seconds(self) -> float:
        """Time of one step at the assumed utilisation, counted as six operations per parameter and token."""
        return float(f"{self._step_seconds(self.global_sequences):.3g}")

    def _step_seconds(self, num_sequences: int) -> float:
        operations = 6.0 * self.layout.preset.num_parameters * num_sequences * self.layout.sequence
        return operations / (self.world * self.peak_flops_per_second * self.build.utilisation)

    @property
    def num_steps(self) -> int:
        """Steps of a month, and of less where steps are short."""
        return max(1, min(_MOST_STEPS, int(_PLANNED_SECONDS / self.step_seconds)))

    @property
    def planned_seconds(self) -> float:
        """Time of the steps."""
        return self.num_steps * self.step_seconds

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of one checkpoint."""
        return float(SAVED_BYTES * self.layout.preset.num_parameters)

    @property
    def storage_bytes_per_second(self) -> float:
        """A rate that stores a checkpoint in about a quarter of a minute, if the nodes can send so much."""
        wanted = math.ceil(self.checkpoint_bytes / 15 / 10e9) * 10e9
        sent = self.num_nodes * self.build.num_nics * float(self.build.network["rate"])
        return wanted if self.num_nodes == 1 else min(wanted, sent)

    @property
    def persist_seconds(self) -> float:
        """Time until a save is durable, with half as much again for bad days."""
        return float(math.ceil(1.5 * self.checkpoint_bytes / self.storage_bytes_per_second))

    @property
    def restore_seconds(self) -> float:
        """Time to read a checkpoint back and to verify it."""
        return float(math.ceil(1.2 * self.checkpoint_bytes / self.storage_bytes_per_second) + 2)

    @property
    def mtbf_seconds(self) -> float:
        """Mean time between failures of the job."""
        return reliability.job_mtbf_seconds(self.num_nodes, FAILURES)

    @property
    def interval_steps(self) -> int:
        """Steps between saves, by Daly's formula."""
        best = reliability.recommended_interval(BLOCKING_SECONDS, self.mtbf_seconds, self.persist_seconds)
        return max(1, round(best / self.step_seconds))

    @property
    def interval_seconds(self) -> float:
        """Time between saves."""
        return self.interval_steps * self.step_seconds


def sizes(accelerator: CatalogAccelerator, num_nodes: int) -> Sizes:
    """Every figure for an accelerator and a number of nodes."""
    whole = assumed(accelerator)
    build = build_of(whole)
    domain, used = _domain(build, num_nodes)
    return Sizes(accelerator, build, num_nodes, domain, used, _layout(whole, build, num_nodes))


def has_reserve(accelerator: CatalogAccelerator) -> bool:
    """Whether an accelerator has memory to leave free; one that keeps everything on the chip has not."""
    return accelerator.memory_bytes > 2 * RESERVE_BYTES


def _domain(build: Build, num_nodes: int) -> tuple[int, int]:
    """Accelerators of a scale-up domain, and the largest part of it that divides the cluster evenly."""
    if build.max_domain is None:
        return build.num_per_node, build.num_per_node
    most = build.max_domain // build.num_per_node
    nodes = max(size for size in range(1, min(most, num_nodes) + 1) if num_nodes % size == 0)
    used = nodes * build.num_per_node
    return (used if build.topology == "torus" else build.max_domain), used


def _layout(accelerator: CatalogAccelerator, build: Build, num_nodes: int) -> Layout:
    """The largest preset that fits and steps fast enough, with as little recomputation as it then needs."""
    flops = accelerator.peak_flops_per_second[build.format] / build.num_ranks * build.utilisation
    world = num_nodes * build.num_per_node * build.num_ranks
    capacity = 0.9 * accelerator.memory_bytes / build.num_ranks
    if has_reserve(accelerator):
        capacity -= RESERVE_BYTES
    for preset in PRESETS:
        tensor = _tensor(accelerator, build, preset, world)
        data, sequence = world // tensor, _SEQUENCE
        while data * sequence > _MOST_TOKENS:
            sequence //= 2
        for sharding, recompute in product(("optimizer", "parameters"), ("selective", "full")):
            peak = _peak_bytes(preset, world, tensor, sequence, recompute, sharding)
            layout = Layout(preset, data, tensor, sequence, recompute, sharding, peak)
            shortest = 6.0 * preset.num_parameters * sequence / (tensor * flops)
            enough = 6.0 * preset.num_parameters * _TOKENS_PER_PARAMETER * preset.num_parameters / (world * flops)
            gathers = sharding == "optimizer" or _gathers_in_time(accelerator, build, num_nodes, flops / sequence)
            fits = peak <= capacity and gathers
            if fits and shortest <= _LONGEST_STEP_SECONDS and enough <= _LONGEST_RUN_SECONDS:
                return layout
    return layout


def _gathers_in_time(accelerator: CatalogAccelerator, build: Build, num_nodes: int, sequences: float) -> bool:
    """Whether ranks exchange weights and gradients of a sequence, 8 bytes a parameter, faster than they compute it.

    `sequences` is the rate of one rank over the operations of a parameter.
    """
    if num_nodes == 1 and accelerator.scale_up:
        return True
    sent = build.num_nics * float(build.network["rate"]) / (build.num_per_node * build.num_ranks)
    return 8 / sent <= 0.5 * 6 / sequences


def _tensor(accelerator: CatalogAccelerator, build: Build, preset: Preset, world: int) -> int:
    """Tensor ranks: those of a node for models with large layers and for thousands of replicas, else one."""
    most = math.gcd(build.num_per_node * build.num_ranks, preset.num_groups)
    wanted = preset.num_parameters > 30e9 or world > 2048
    return most if wanted and accelerator.scale_up else 1


def _peak_bytes(  # noqa: PLR0913, PLR0917
    preset: Preset, world: int, tensor: int, sequence: int, recompute: str, sharding: str
) -> float:
    """State, gathered layers and activations of one sequence on one rank.

    Weights that all ranks share are gathered anew for each micro-batch, so that they are shared only where they
    would not fit otherwise.

    With selective recomputation a layer keeps 34 bytes per token and hidden value: arXiv:2205.05198, table 2;
    with full recomputation it keeps its input in 16 bits, and one layer at a time is whole.
    """
    kept_whole = _WEIGHT_AND_GRADIENT_BYTES if sharding == "optimizer" else 0
    state = (kept_whole / tensor + (STATE_BYTES - kept_whole) / world) * preset.num_parameters
    layer_parameters = (preset.num_parameters - preset.vocabulary * preset.hidden) / preset.num_layers
    gathered = 0 if kept_whole else 3 * 2 * max(layer_parameters, preset.vocabulary * preset.hidden) / tensor
    cell = sequence * preset.hidden / tensor
    kept = 34 * preset.num_layers if recompute == "selective" else 2 * preset.num_layers + 34
    logits = 6 * sequence * preset.vocabulary / tensor
    return state + gathered + kept * cell + logits
