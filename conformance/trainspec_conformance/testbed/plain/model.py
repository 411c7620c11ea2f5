"""The plain model: a state-space language model with gradients written out by hand."""

# ruff: noqa: N803, N806, N815 - shapes stand in names: B samples, T positions, D hidden units, V tokens

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import MicroBatch

EPSILON = 1e-5
Array = npt.NDArray[Any]
Dropout = Callable[[tuple[int, ...]], Array | None]
"""Factors of activations of a shape, 0 or one over the share that is kept; None drops nothing."""


def no_dropout(_shape: tuple[int, ...]) -> Array | None:
    """Every activation is kept."""
    return None


def _sigmoid(x: Array) -> Array:
    # exp of the negative magnitude cannot overflow
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


@dataclass(frozen=True, slots=True)
class _Layer:
    """What the backward pass of a layer needs of its forward pass."""

    normal_BTD: Array
    """Before scale and bias."""
    deviation_BT1: Array
    input_BTD: Array
    """Of the projection."""
    value_BTD: Array
    gate_BTD: Array
    state_BTD: Array
    kept_BTD: Array | None


def loss_and_gradients(
    weights: Mapping[str, Array], batch: MicroBatch, weight_per_target: float, dropout: Dropout = no_dropout
) -> tuple[float, dict[str, Array]]:
    """Sum of the losses of all targets, and the gradient of that sum times `weight_per_target` by name."""
    embedding_VD = weights["token_embedding"]
    hidden_BTD, layers = _hidden(weights, batch.inputs, dropout)
    loss, logits_gradient_BTV = _cross_entropy(hidden_BTD @ embedding_VD.T, batch.targets, weight_per_target)
    found: dict[str, Array] = {}
    hidden_gradient_BTD = logits_gradient_BTV @ embedding_VD
    for number in reversed(range(len(layers))):
        gradients, hidden_gradient_BTD = _backward(_part(weights, number), layers[number], hidden_gradient_BTD)
        found.update({f"layers/{number}/{name}": value for name, value in gradients.items()})
    embedding_gradient_VD = _outer(logits_gradient_BTV, hidden_BTD)
    np.add.at(embedding_gradient_VD, batch.inputs, hidden_gradient_BTD)
    found["token_embedding"] = embedding_gradient_VD
    return loss, found


def loss_alone(weights: Mapping[str, Array], batch: MicroBatch) -> float:
    """Sum of the losses of all targets, with nothing dropped."""
    hidden_BTD, _ = _hidden(weights, batch.inputs, no_dropout)
    return _cross_entropy(hidden_BTD @ weights["token_embedding"].T, batch.targets, 0.0)[0]


def _hidden(weights: Mapping[str, Array], inputs_BT: Array, dropout: Dropout) -> tuple[Array, list[_Layer]]:
    layers: list[_Layer] = []
    hidden_BTD = weights["token_embedding"][inputs_BT]
    while part := _part(weights, len(layers)):
        hidden_BTD, layer = _forward(part, hidden_BTD, dropout)
        layers.append(layer)
    return hidden_BTD, layers


def _part(weights: Mapping[str, Array], layer: int) -> dict[str, Array]:
    prefix = f"layers/{layer}/"
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _forward(weights: Mapping[str, Array], hidden_BTD: Array, dropout: Dropout) -> tuple[Array, _Layer]:
    centred_BTD = hidden_BTD - hidden_BTD.mean(-1, keepdims=True)
    deviation_BT1 = np.sqrt((centred_BTD**2).mean(-1, keepdims=True) + EPSILON)
    normal_BTD = centred_BTD / deviation_BT1
    input_BTD = normal_BTD * weights["norm/scale"] + weights["norm/bias"]
    value_BTD, gate_BTD = np.split(input_BTD @ weights["in_proj"], 2, axis=-1)
    keep_D = _sigmoid(weights["decay"])
    state_BTD = value_BTD * weights["input_gain"]
    for position in range(1, state_BTD.shape[1]):
        state_BTD[:, position] += keep_D * state_BTD[:, position - 1]
    mixed_BTD = state_BTD * weights["output_gain"] * gate_BTD * _sigmoid(gate_BTD)
    branch_BTD = mixed_BTD @ weights["out_proj"]
    kept_BTD = dropout(branch_BTD.shape)
    layer = _Layer(normal_BTD, deviation_BT1, input_BTD, value_BTD, gate_BTD, state_BTD, kept_BTD)
    return hidden_BTD + (branch_BTD if kept_BTD is None else branch_BTD * kept_BTD), layer


def _backward(weights: Mapping[str, Array], layer: _Layer, above_BTD: Array) -> tuple[dict[str, Array], Array]:
    """Gradients of a layer's weights, and of its input, from that of its output."""
    sigmoid_BTD = _sigmoid(layer.gate_BTD)
    silu_BTD = layer.gate_BTD * sigmoid_BTD
    read_BTD = layer.state_BTD * weights["output_gain"]
    branch_BTD = above_BTD if layer.kept_BTD is None else above_BTD * layer.kept_BTD
    mixed_BTD = branch_BTD @ weights["out_proj"].T
    gate_BTD = mixed_BTD * read_BTD * (sigmoid_BTD + silu_BTD * (1 - sigmoid_BTD))
    keep_D = _sigmoid(weights["decay"])
    state_BTD = mixed_BTD * silu_BTD * weights["output_gain"]
    for position in range(state_BTD.shape[1] - 2, -1, -1):
        state_BTD[:, position] += keep_D * state_BTD[:, position + 1]
    keep_gradient_D = (state_BTD[:, 1:] * layer.state_BTD[:, :-1]).sum((0, 1))
    projected_BTE = np.concatenate((state_BTD * weights["input_gain"], gate_BTD), -1)
    input_BTD = projected_BTE @ weights["in_proj"].T
    gradients = {
        "out_proj": _outer(read_BTD * silu_BTD, branch_BTD),
        "output_gain": (mixed_BTD * silu_BTD * layer.state_BTD).sum((0, 1)),
        "input_gain": (state_BTD * layer.value_BTD).sum((0, 1)),
        "decay": keep_gradient_D * keep_D * (1 - keep_D),
        "in_proj": _outer(layer.input_BTD, projected_BTE),
        "norm/scale": (input_BTD * layer.normal_BTD).sum((0, 1)),
        "norm/bias": input_BTD.sum((0, 1)),
    }
    return gradients, above_BTD + _norm_backward(layer, input_BTD * weights["norm/scale"])


def _norm_backward(layer: _Layer, above_BTD: Array) -> Array:
    along_BT1 = (above_BTD * layer.normal_BTD).mean(-1, keepdims=True)
    centred_BTD = above_BTD - above_BTD.mean(-1, keepdims=True) - layer.normal_BTD * along_BT1
    return np.asarray(centred_BTD / layer.deviation_BT1)


def _outer(left_BTD: Array, right_BTE: Array) -> Array:
    """Sum over samples and positions of the products of each entry with each."""
    return left_BTD.reshape(-1, left_BTD.shape[-1]).T @ right_BTE.reshape(-1, right_BTE.shape[-1])


def _cross_entropy(logits_BTV: Array, targets_BT: Array, weight_per_target: float) -> tuple[float, Array]:
    """Sum of the losses, and the gradient of the logits; targets below 0 count for nothing."""
    is_counted_BT1 = (targets_BT >= 0)[..., None]
    target_BT1 = np.maximum(targets_BT, 0)[..., None]
    logits_BTV = logits_BTV - logits_BTV.max(-1, keepdims=True)
    log_total_BT1 = np.log(np.exp(logits_BTV).sum(-1, keepdims=True))
    loss_BT1 = log_total_BT1 - np.take_along_axis(logits_BTV, target_BT1, -1)
    gradient_BTV = np.exp(logits_BTV - log_total_BT1)
    at_target_BT1 = np.take_along_axis(gradient_BTV, target_BT1, -1)
    np.put_along_axis(gradient_BTV, target_BT1, at_target_BT1 - 1, -1)
    gradient_BTV *= np.where(is_counted_BT1, weight_per_target, 0).astype(gradient_BTV.dtype)
    return float(loss_BT1[is_counted_BT1].sum(dtype=np.float64)), gradient_BTV
