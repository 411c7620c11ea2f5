"""The only place that declares the model of a training plan: its shape, and the parameters that the shape implies."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.base import Count, CountOrZero, Name, Parameters, Record, Text


class Experts(Record, frozen=True, kw_only=True):
    """The expert layers of a mixture-of-experts model."""

    num_experts: Annotated[int, Meta(ge=2, le=100_000)]
    """Routed experts of one layer."""
    num_active_experts: Annotated[int, Meta(ge=1, le=100_000)]
    """Routed experts that one token visits."""
    num_shared_experts: CountOrZero = 0
    """Experts that every token visits."""
    ffn_hidden_size: Count | None = None
    """Width of one expert."""
    num_layers: Count | None = None
    """Layers with experts; absent means all."""


class Model(Record, frozen=True, kw_only=True):
    """What is trained."""

    name: Name
    """Name of the model."""
    family: Literal["dense-transformer", "moe-transformer", "state-space", "cnn", "other"]
    """Kind of network; it decides which of the keys below are needed."""
    num_parameters: Parameters
    """All parameters, embeddings included."""
    num_active_parameters: Parameters | None = None
    """Parameters that one token uses, for mixture-of-experts models."""
    num_layers: Count | None = None
    """Blocks of the network."""
    hidden_size: Count | None = None
    """Width of the residual stream."""
    num_attention_heads: Count | None = None
    """Query heads."""
    num_key_value_heads: Count | None = None
    """Key and value heads; absent means as many as query heads."""
    head_size: Count | None = None
    """Width of one head; absent means hidden size divided by query heads."""
    ffn_hidden_size: Count | None = None
    """Inner width of a dense feed-forward block."""
    gated_ffn: bool = False
    """True for feed-forward blocks with a gate, such as SwiGLU: three matrices instead of two."""
    vocabulary_size: Annotated[int, Meta(ge=100, le=10_000_000)] | None = None
    """Rows of the embedding table, padding included."""
    tied_embeddings: bool = False
    """True when the output layer shares the embedding table."""
    sequence_length: Count | None = None
    """Tokens of one training sequence."""
    attention: Literal["full", "grouped-query", "multi-query", "latent", "sliding-window", "linear", "none"] | None = (
        None
    )
    """Attention variant; `latent` and `linear` have projections that the parameter check leaves alone."""
    experts: Experts | None = None
    """Expert layers."""
    description: Text | None = None
    """Anything a reader should know of the model."""
