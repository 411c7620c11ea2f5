"""Says which parts of a model a predicted step leaves out or counts in full, for the answers of `trainspec plan`."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.units import percent
from trainspec_validate.performance.costs.transformer import (
    attention_flops_per_token,
    model_flops_per_token,
    parameters,
)
from trainspec_validate.performance.derived.plan import computed_shape_of


def gaps(model: Model) -> Iterator[str]:
    """Parts of a transformer that its predicted time does not count as they are, with their share of the operations."""
    shape, length = computed_shape_of(model), model.sequence_length
    if shape is None or length is None:
        return
    attention = attention_flops_per_token(shape, length, causal=True)
    tables = 0.0 if shape.tied_embeddings else shape.embedding_parameters
    size = parameters(shape)
    counted = model_flops_per_token(size.active, attention, tables)
    if model.num_mtp_layers:
        # A layer, the output layer that it shares, and the projection of two hidden states (arXiv:2412.19437, 2.2).
        matrices = (size.attention + size.active_feed_forward) / shape.num_layers
        one = 6 * (matrices + shape.embedding_parameters + 2 * shape.hidden_size**2) + attention / shape.num_layers
        share = percent(round(model.num_mtp_layers * one / counted, 3))
        layers = "layer" if model.num_mtp_layers == 1 else f"{model.num_mtp_layers} layers"
        yield f"step time leaves out the {layers} for multi-token prediction, {share} of the model's operations on top"
    if model.attention == "sliding-window":
        share = percent(round(attention / counted, 3))
        yield (
            f"step time counts attention over the whole sequence, {share} of the model's operations, since no key "
            "gives the width of the window"
        )
