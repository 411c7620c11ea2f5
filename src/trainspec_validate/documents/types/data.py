"""The training data of a plan: datasets, their mixture, and the order in which a job reads them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Fraction, Name, Record, Text, Tokens

Sha256 = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Samples = Annotated[float, Meta(ge=1, le=1e15, extra_json_schema={"x-unit": "{sample}"})]


class Dataset(Record, frozen=True, kw_only=True):
    """One dataset of the mixture."""

    name: Name
    """Name of the dataset."""
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
    """What a job reads, and in which order."""

    datasets: Annotated[tuple[Dataset, ...], Meta(min_length=1, max_length=10_000)]
    """Datasets of the mixture."""
    order: Literal["sequential", "shuffled", "curriculum"] | None = None
    """Order of the samples: as stored, by a pseudo-random permutation, or by a declared curriculum."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Seed of the permutation and of the mixture; absent means `job.seed`."""
    order_scope: Literal["global", "rank"] | None = None
    """`global` where the position in the job decides which sample is read, on any number of ranks; `rank` where each
    data rank has an order of its own."""
    resume: Literal["same-order", "new-order"] | None = None
    """What is read after a recovery: the samples that an uninterrupted job would read, or others."""
    tokenizer_digest: Sha256 | None = None
    """Digest of the tokenizer's files."""
