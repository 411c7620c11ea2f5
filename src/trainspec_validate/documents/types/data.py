"""The training data of a plan: datasets, their mixture, and the order in which a job reads them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Count, CountOrZero, Fraction, Name, Record, Text, Tokens

Sha256 = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Samples = Annotated[float, Meta(ge=1, le=1e15, extra_json_schema={"x-unit": "{sample}"})]


class Dataset(Record, frozen=True, kw_only=True):
    """One dataset of the mixture."""

    name: Name
    """Identity of the data for readers, such as `fineweb-edu`."""
    weight: Fraction | None = None
    """Share of the tokens of the job that it gives, or of the samples where the plan has no tokens; the weights of a
    mixture add up to 1."""
    digest: Sha256 | None = None
    """Digest of the files that the job reads, after tokenisation."""
    num_tokens: Tokens | None = None
    """Tokens of one epoch."""
    num_samples: Samples | None = None
    """Samples of one epoch."""
    max_epochs: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Largest number of epochs that the job may take from it."""
    reference: Text | None = None
    """Where it is published, with its version."""


class Data(Record, frozen=True, kw_only=True):
    """Datasets that a job reads, and their order."""

    datasets: Annotated[tuple[Dataset, ...], Meta(min_length=1, max_length=10_000)]
    """Datasets that the run reads, each with its weight in the mixture."""
    order: Literal["sequential", "shuffled", "curriculum"] | None = None
    """Order of the samples: as stored, by a pseudo-random permutation, or by a declared curriculum."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Seed of the permutation and of the mixture; absent means `job.seed`."""
    order_scope: Literal["global", "rank"] | None = None
    """`global` where the position in the job decides which sample is read, on any number of ranks; `rank` where each
    data rank has an order of its own."""
    resume: Literal["same-order", "new-order"] | None = None
    """Samples that are read after a recovery: the samples that an uninterrupted job would read, or others."""
    tokenizer_digest: Sha256 | None = None
    """Digest of the tokenizer's files."""


class InitialCheckpoint(Record, frozen=True, kw_only=True):
    """Where the parameters come from that a job starts with."""

    reference: Text
    """Address, repository with revision, or path."""
    save_id: Text | None = None
    """Identifier of the save in the manifest of that checkpoint."""
    digest: Sha256 | None = None
    """Digest of its manifest, or of the list of its files in the format of `sha256sum`, in order of their paths."""
    step: CountOrZero | None = None
    """Optimizer steps that it has behind it."""


class Rollout(Record, frozen=True, kw_only=True):
    """Generation of the responses that a job of reinforcement learning trains on."""

    num_prompts: Count
    """Prompts of one rollout whose responses are trained on, without those that a filter drops."""
    num_responses_per_prompt: Count
    """Responses of each prompt; the group of methods such as GRPO."""
    num_updates: Count | None = None
    """Optimizer steps that train on one rollout; absent where a response becomes several samples."""
    num_passes: Count = 1
    """Times that each response is trained on."""
    num_accelerators: CountOrZero = 0
    """Accelerators that generate and do not train; 0 where generation and training take turns on those of the job."""
    node_group: Name | None = None
    """Node group of these accelerators; absent means as `node_group` of the plan."""
    max_staleness_steps: CountOrZero | None = None
    """Largest number of optimizer steps between the parameters that generate a response and those that train on it."""
