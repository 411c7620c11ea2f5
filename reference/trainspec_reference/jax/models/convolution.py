"""Computes the residual convolutional network: stem, residual blocks, mean pool, head."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from trainspec_reference.common.weights import num_norm_groups
from trainspec_reference.jax.models.parts import NORM_EPSILON, Family, Network, Parameters, cross_entropy


def _begin(network: Network, images_BCHW: jax.Array) -> jax.Array:
    wide, root = network.formats.wide, network.read("root")
    x_BHWD = _convolved(network, images_BCHW.transpose(0, 2, 3, 1), root["stem/kernel"])
    return x_BHWD.astype(wide) + root["stem/bias"].astype(wide)


def _end(network: Network, x_BHWD: jax.Array, classes_B: jax.Array) -> jax.Array:
    formats, root = network.formats, network.read("root")
    logits_BV = formats.product(x_BHWD.mean((1, 2)), root["head/kernel"])
    return cross_entropy(logits_BV.astype(formats.wide) + root["head/bias"], classes_B, formats.wide)


def _block(network: Network, own: Parameters, x_BHWD: jax.Array, key: Any) -> jax.Array:
    normed_BHWD = _group_norm(x_BHWD, own["norm/scale"], own["norm/bias"], network.formats.wide)
    inner_BHWD = jax.nn.gelu(_convolved(network, normed_BHWD, own["conv1/kernel"]), approximate=True)
    branch_BHWD = _convolved(network, inner_BHWD, own["conv2/kernel"]).astype(network.formats.wide)
    return x_BHWD + network.dropped(branch_BHWD, key)


def _convolved(network: Network, x_BHWC: jax.Array, kernel_HWIO: jax.Array) -> jax.Array:
    compute = network.formats.compute
    return jax.lax.conv_general_dilated(
        x_BHWC.astype(compute), kernel_HWIO.astype(compute), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _group_norm(x_BHWD: jax.Array, scale_D: jax.Array, bias_D: jax.Array, wide: Any) -> jax.Array:
    *outer, width = x_BHWD.shape
    groups = num_norm_groups(width)
    x_BHWGE = x_BHWD.astype(wide).reshape(*outer, groups, width // groups)
    mean = x_BHWGE.mean((1, 2, 4), keepdims=True)
    variance = jnp.square(x_BHWGE - mean).mean((1, 2, 4), keepdims=True)
    normed_BHWGE = (x_BHWGE - mean) * jax.lax.rsqrt(variance + NORM_EPSILON)
    return normed_BHWGE.reshape(x_BHWD.shape) * scale_D.astype(wide) + bias_D.astype(wide)


FAMILY = Family("blocks", _begin, _block, _end)
