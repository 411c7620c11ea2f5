"""The optimizer of a training plan: its name and the state that it keeps of each parameter."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.base import Count, Parameters, Record
from trainspec_validate.documents.precision import StateFormat

OptimizerName = Literal["adam", "adamw", "muon", "adafactor", "shampoo", "soap", "sgd", "lion", "other"]
Moments = Annotated[tuple[StateFormat, ...], Meta(max_length=8)]


class AuxiliaryOptimizer(Record, frozen=True, kw_only=True):
    """Optimizer of the parameters that the main optimizer leaves out, such as AdamW for embeddings under Muon."""

    name: OptimizerName
    """Name of the algorithm."""
    num_parameters: Parameters
    """Parameters that it updates."""
    moments: Moments | None = None
    """Number format of each moment; absent means as many as usual, in `precision.optimizer_state`."""


class Optimizer(Record, frozen=True, kw_only=True):
    """How gradients become updates, and what is kept between updates besides the parameters and master weights."""

    name: OptimizerName
    """Name of the algorithm; master weights are declared as `precision.master_parameters`."""
    moments: Moments | None = None
    """Number format of each moment, a tensor with one number for each parameter, the first moment first; absent means
    as many as usual for the algorithm, in `precision.optimizer_state`."""
    factor_format: StateFormat = "fp32"
    """Number format of what is kept for rows and columns: factored moments of Adafactor, preconditioners of Shampoo
    and SOAP."""
    max_preconditioner_size: Count | None = None
    """Largest side of a preconditioner: Shampoo cuts larger matrices into blocks, SOAP has none for larger sides;
    absent means 1,024 for Shampoo and 10,000 for SOAP."""
    bytes_per_parameter: Annotated[float, Meta(ge=0, le=256, extra_json_schema={"x-unit": "By"})] | None = None
    """Optimizer state of one trained parameter before sharding, master weights left out; absent means as the formats
    and the algorithm imply."""
    auxiliary: AuxiliaryOptimizer | None = None
    """Optimizer of the remaining parameters."""
