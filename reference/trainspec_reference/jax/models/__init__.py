"""Finds the network of a family, and how tensor ranks may split its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from trainspec_reference.common.job import ModelShape
from trainspec_reference.jax.layout import Split
from trainspec_reference.jax.models import convolution, state_space, transformer
from trainspec_reference.jax.models.parts import Family


def family_of(shape: ModelShape) -> Family:
    """The network of a family."""
    families = {
        "transformer": transformer.FAMILY,
        "convolution": convolution.FAMILY,
        "state-space": state_space.FAMILY,
    }
    return families[shape.family]


def splits_of(shape: ModelShape, num_tensor: int) -> Mapping[str, Split]:
    """How tensor ranks divide the parameters; those that are not named are whole on each.

    Raises:
        ValueError: the family or its shape cannot be divided so.
    """
    if num_tensor == 1:
        return {}
    match shape.family:
        case "transformer":
            return transformer.splits(shape, num_tensor)
        case "state-space":
            return state_space.splits(shape, num_tensor)
        case _:
            raise ValueError(f"{shape.family} cannot be split over {num_tensor} tensor ranks; set tensor to 1")
