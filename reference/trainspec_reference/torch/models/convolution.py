"""Writes the convolutional network: residual blocks over images, to one class each."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from trainspec_reference.common.job import ModelShape
from trainspec_reference.common.weights import num_norm_groups
from trainspec_reference.torch.models.blocks import NORM_EPSILON, Keep, LayerNorm, empty, keep_all


class Kernel(nn.Module):
    """A 3 x 3 convolution that keeps the size; its kernel is [height, width, channels in, channels out]."""

    def __init__(self, num_in: int, num_out: int, *, has_bias: bool = False) -> None:
        super().__init__()
        self.kernel = empty(3, 3, num_in, num_out)
        self.bias = empty(num_out) if has_bias else None

    def forward(self, image_BCHW: torch.Tensor) -> torch.Tensor:
        """[B, Cin, H, W] to [B, Cout, H, W]."""
        return F.conv2d(image_BCHW, self.kernel.permute(3, 2, 0, 1), self.bias, padding=1)


class ConvolutionBlock(nn.Module):
    """Two convolutions behind a norm over groups of channels, with a residual connection."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width, self.dropout = shape.hidden_size, shape.dropout
        self.num_groups = num_norm_groups(width)
        self.norm, self.conv1, self.conv2 = LayerNorm(width), Kernel(width, width), Kernel(width, width)

    def forward(self, image_BCHW: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] to [B, C, H, W]."""
        scale, bias = self.norm.scale, self.norm.bias
        normed_BCHW = F.group_norm(image_BCHW, self.num_groups, scale, bias, NORM_EPSILON)
        branch_BCHW = self.conv2(F.gelu(self.conv1(normed_BCHW), approximate="tanh"))
        return image_BCHW + F.dropout(branch_BCHW, self.dropout, self.training)


class Head(nn.Module):
    """Channels, averaged over the image, to classes."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.kernel, self.bias = empty(width, num_classes), empty(num_classes)

    def forward(self, image_BCHW: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] to [B, classes]."""
        return image_BCHW.mean((2, 3)) @ self.kernel + self.bias


class ConvolutionModel(nn.Module):
    """Images to classes."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.keep = keep_all
        self.stem = Kernel(shape.image_channels, shape.hidden_size, has_bias=True)
        self.blocks = nn.ModuleDict({str(at): ConvolutionBlock(shape) for at in range(shape.num_layers)})
        self.head = Head(shape.hidden_size, shape.vocabulary_size)

    keep: Keep

    def forward(self, image_BCHW: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] to logits [B, classes]."""
        hidden_BCHW = self.stem(image_BCHW)
        for block in self.blocks.values():
            hidden_BCHW = self.keep(block, hidden_BCHW)
        logits: torch.Tensor = self.head(hidden_BCHW)
        return logits
