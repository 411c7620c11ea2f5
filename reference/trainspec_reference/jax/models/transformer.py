"""Computes the decoder-only transformer: pre-norm, causal attention, tied output head."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from trainspec_reference.common.job import ModelShape
from trainspec_reference.jax.layout import Split
from trainspec_reference.jax.models.parts import Family, Network, Parameters, cross_entropy, layer_norm


def splits(shape: ModelShape, num_tensor: int) -> Mapping[str, Split]:
    """Heads and inner columns over the tensor ranks, as in arXiv:1909.08053.

    Raises:
        ValueError: they cannot be divided evenly.
    """
    hidden, inner = shape.hidden_size, shape.ffn_hidden_size
    if shape.num_heads % num_tensor or inner % num_tensor:
        raise ValueError(f"{num_tensor} tensor ranks divide neither {shape.num_heads} heads nor {inner} columns evenly")
    found = {}
    for layer in range(shape.num_layers):
        found[f"layers/{layer}/attention/qkv"] = Split((hidden, 3, hidden), 2)
        found[f"layers/{layer}/attention/output"] = Split((hidden, hidden), 0)
        found[f"layers/{layer}/ffn/up"] = Split((hidden, inner), 1)
        found[f"layers/{layer}/ffn/down"] = Split((inner, hidden), 0)
    return found


def _begin(network: Network, tokens_BT: jax.Array) -> jax.Array:
    wide, root = network.formats.wide, network.read("root")
    positions_TD = network.context.rows(root["position_embedding"], tokens_BT.shape[1]).astype(wide)
    embedded_BTD: jax.Array = root["token_embedding"].astype(wide)[tokens_BT] + positions_TD
    return embedded_BTD


def _end(network: Network, x_BTD: jax.Array, targets_BT: jax.Array) -> jax.Array:
    formats, root = network.formats, network.read("root")
    x_BTD = layer_norm(x_BTD, root["final_norm/scale"], root["final_norm/bias"], formats.wide)
    return cross_entropy(formats.product(x_BTD, root["token_embedding"].T), targets_BT, formats.wide)


def _block(network: Network, own: Parameters, x_BTD: jax.Array, key: Any) -> jax.Array:
    formats = network.formats
    keys = (None, None) if key is None else tuple(jax.random.split(key))
    normed_BTD = network.norm(x_BTD, own["attention_norm/scale"], own["attention_norm/bias"])
    attended_BTD = _attention(network, own, network.tensor.enter(normed_BTD))
    x_BTD = x_BTD + network.dropped(network.joined(attended_BTD), keys[0])
    normed_BTD = network.norm(x_BTD, own["ffn_norm/scale"], own["ffn_norm/bias"])
    inner_BTF = jax.nn.gelu(formats.product(network.tensor.enter(normed_BTD), own["ffn/up"]), approximate=True)
    return x_BTD + network.dropped(network.joined(formats.product(inner_BTF, own["ffn/down"])), keys[1])


def _attention(network: Network, own: Parameters, x_BTD: jax.Array) -> jax.Array:
    head_size = network.shape.hidden_size // network.shape.num_heads
    qkv_BTE = network.formats.product(x_BTD, own["attention/qkv"])
    qkv_BT3NH = qkv_BTE.reshape(*x_BTD.shape[:2], 3, -1, head_size)
    if qkv_BT3NH.dtype == jnp.float16 and jax.default_backend() == "cpu":
        qkv_BT3NH = qkv_BT3NH.astype(network.formats.wide)  # XLA has no half-precision attention for CPUs
    query_BTNH, key_BTNH, value_BTNH = (qkv_BT3NH[:, :, part] for part in range(3))
    mixed_BTNH = network.context.attend(query_BTNH, key_BTNH, value_BTNH)
    return network.formats.product(mixed_BTNH.reshape(*x_BTD.shape[:2], -1), own["attention/output"])


FAMILY = Family("layers", _begin, _block, _end)
