"""Low-rank adapters (LoRA) of a training plan, which are trained while the model's own parameters are frozen."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Record

LoraTarget = Literal[
    "query",
    "key",
    "value",
    "query-key-value",
    "output",
    "gate",
    "up",
    "down",
    "gate-up",
    "expert-gate",
    "expert-up",
    "expert-down",
    "expert-gate-up",
    "output-head",
    "embedding",
]


class Lora(Record, frozen=True, kw_only=True):
    """Low-rank adapters; the parameters under them are frozen."""

    rank: Annotated[int, Meta(ge=1, le=65_536)]
    """Inner width of an adapter."""
    targets: Annotated[tuple[LoraTarget, ...], Meta(min_length=1)]
    """Matrices with an adapter, in every layer that has them; `query-key-value` and `gate-up` are joint projections
    with one adapter."""
    alpha: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Scale of the adapter's output, over the rank."""
