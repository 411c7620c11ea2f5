"""Makes a network of a family from its global parameters."""

from __future__ import annotations

from trainspec_reference.common.job import ModelShape
from trainspec_reference.torch.models.convolution import ConvolutionModel
from trainspec_reference.torch.models.state_space import StateSpaceModel
from trainspec_reference.torch.models.transformer import TransformerModel
from trainspec_reference.torch.parts import Part

Network = TransformerModel | ConvolutionModel | StateSpaceModel


def make_model(shape: ModelShape, part: Part) -> Network:
    """The part of the network that this rank holds; parameters are empty until they are loaded.

    Raises:
        ValueError: the family cannot be split this way.
    """
    match shape.family:
        case "transformer":
            return TransformerModel(shape, part)
        case "convolution":
            return ConvolutionModel(shape)
        case "state-space":
            return StateSpaceModel(shape, part)
