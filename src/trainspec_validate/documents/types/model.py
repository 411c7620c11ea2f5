"""The model of a training plan: its family, and the shape that parameters and operations follow from."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Count, CountOrZero, Name, Parameters, Record, Text


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


class StateSpace(Record, frozen=True, kw_only=True):
    """The state-space layers of a Mamba or hybrid model."""

    kind: Literal["mamba", "mamba-2", "gated-delta-net", "other"]
    """Layer in use; `gated-delta-net` is that of Qwen3-Next, and the parameters of `other` are taken as stated."""
    state_size: Count
    """Numbers of state for each inner channel; the width of a key head of a gated delta net."""
    inner_size: Count | None = None
    """Inner width of a layer; absent means twice the hidden size."""
    num_heads: Count | None = None
    """Heads of Mamba-2, which its tensor ranks split; absent means heads of 64 channels. Value heads of a gated delta
    net."""
    num_groups: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """Groups of heads of Mamba-2 that share input and output projections of the state; key heads of a gated delta
    net."""
    convolution_width: Annotated[int, Meta(ge=1, le=1024)] = 4
    """Tokens that the causal convolution of a layer sees."""
    time_step_rank: Count | None = None
    """Rank of the time-step projection of Mamba; absent means a sixteenth of the hidden size, rounded up."""
    num_layers: Count | None = None
    """Layers with a state space; absent means all."""


class Image(Record, frozen=True, kw_only=True):
    """The images that a vision model reads."""

    size_pixels: Count
    """Height and width of an image."""
    patch_size_pixels: Count | None = None
    """Height and width of a patch, which is one token of a vision transformer."""
    num_channels: Annotated[int, Meta(ge=1, le=10_000)] = 3
    """Values of one pixel: 3 for RGB, 1 for grey."""
    num_classes: Count | None = None
    """Outputs of the classifier."""


class Model(Record, frozen=True, kw_only=True):
    """Model that is trained."""

    name: Name
    """Published or internal identity, such as `llama-3.1-405b`; its size is compared with `num_parameters`."""
    family: Literal[
        "dense-transformer", "moe-transformer", "vision-transformer", "state-space", "hybrid", "cnn", "other"
    ]
    """Kind of network; it decides which of the keys below are needed."""
    num_parameters: Parameters
    """All parameters, embeddings included, and those of multi-token prediction left out."""
    num_active_parameters: Parameters | None = None
    """Parameters that one token uses, for mixture-of-experts models."""
    num_layers: Count | None = None
    """Blocks of the network."""
    hidden_size: Count | None = None
    """Width of the residual stream."""
    num_attention_heads: Count | None = None
    """Heads that a layer computes queries for; keys and values can have fewer."""
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
    bidirectional_attention: bool = False
    """True for encoders such as BERT, whose tokens attend to later ones; their pooler and the transformation before the
    output layer are counted or not."""
    positions: Literal["learned", "rotary", "sinusoidal", "linear-bias", "relative", "relative-bias", "none"] | None = (
        None
    )
    """How a transformer encodes positions: `learned` has a table, `relative` a projection in each layer, as in
    Transformer-XL and Gopher, and the others no parameters that count. Absent allows for a table."""
    experts: Experts | None = None
    """Expert layers."""
    num_mtp_layers: Annotated[int, Meta(ge=0, le=64)] = 0
    """Layers for multi-token prediction (MTP) on top of `num_layers`, each with a projection of two hidden states."""
    state_space: StateSpace | None = None
    """State-space layers, for the families `state-space` and `hybrid`."""
    num_attention_layers: CountOrZero | None = None
    """Layers with attention, for the family `hybrid`."""
    num_ffn_layers: CountOrZero | None = None
    """Layers with a dense feed-forward block, for the family `hybrid`; those with experts are in `experts`."""
    shared_layers: bool | None = None
    """True where attention and feed-forward layers of a `hybrid` share weights, as in Zamba2; false where each has its
    own."""
    image: Image | None = None
    """Images, for the families `vision-transformer` and `cnn`."""
    description: Text | None = None
    """Anything a reader should know of the model."""
