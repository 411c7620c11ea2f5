"""Turns options that recompute some layers, or all, into the policy of a plan, which has no word for some."""

from __future__ import annotations

from typing import Any

from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to
from trainspec_validate.system.digits import is_digits

_POLICY: Pointer = ("memory", "activation_policy")
_METHODS = ("recompute_method", "activations_checkpoint_method")
_NUM_RECOMPUTED = ("recompute_num_layers", "activations_checkpoint_num_layers", "checkpoint_num_layers")
"""Names of today, of 2021, and of Megatron-DeepSpeed."""
_PARTIAL = ("num_micro_batches_with_partial_activation_checkpoints", "activations_checkpoint_layers_per_pipeline")
"""Settings of NeMo that recompute fewer layers for some micro-batches or stages.

Source: NVIDIA/NeMo@8cfedd72:examples/nlp/language_modeling/conf/megatron_gpt_config.yaml.
"""


def policy_of_layers(draft: Draft) -> tuple[str | None, str]:
    """The policy of full recomputation, which may be asked for in a part of the layers, and how it follows.

    The method `block` recomputes as many layers of each chunk of a stage as are asked for, and none of the others;
    `uniform` recomputes all, as many at once as are asked for. Source: NVIDIA/Megatron-LM@d98e8a64:
    megatron/core/recompute.py, lines 156 to 183.
    """
    number = draft.number(*_NUM_RECOMPUTED)
    method = draft.known(("uniform", "block"), *_METHODS)
    if why := _why_open(draft, method, number):
        draft.lacks(_POLICY, why)
        return None, ""
    least, most = _layers_of_chunks(draft)
    asked = f"{_NUM_RECOMPUTED[0]} {number:g}" if number is not None else ""
    if method == "block" and number == 0:
        return "none", f"{asked} with the method block: no layer is recomputed"
    if method == "block" and (number is None or most is None or number < most):
        whole = f"a chunk of a stage has {most}" if most else "the layers of a stage are not known"
        draft.lacks(
            _POLICY, f"the method block recomputes a part of the layers: {asked or 'no number is given'}, {whole}"
        )
        return None, ""
    if method != "block" and number is not None and number > 1 and least and number >= least:
        draft.lacks(_POLICY, f"{asked}: all {least} layers of a chunk are recomputed at once, and kept for that time")
        return None, ""
    return "full", "" if method != "block" else f"{asked}: all layers of each chunk of a stage"


def _why_open(draft: Draft, method: str | None, number: float | None) -> str:
    """Why settings leave open which layers are recomputed, whatever the stages hold; empty where they do not."""
    for reason in draft.reasons(*_METHODS, *_NUM_RECOMPUTED):
        return reason
    if partial := next((name for name in _PARTIAL if draft.look(name) is not None), None):
        return f"{partial}: fewer layers are recomputed for some micro-batches or stages"
    if method == "uniform" and number == 0:
        return "the method uniform with groups of 0 layers, which Megatron-LM refuses"
    if method is None and draft.values.get("recompute_num_layers") is not None:
        return "recompute_num_layers without the recompute_method, which decides what it counts"
    return ""


def _layers_of_chunks(draft: Draft) -> tuple[int | None, int | None]:
    """The fewest and the most layers of a chunk of a stage."""
    split = draft.get("parallelism", "stage_layers")
    if isinstance(split, list) and split:
        return min(split), max(split)
    layers, stages = draft.counted("model", "num_layers"), draft.counted("parallelism", "pipeline")
    open_keys = {("parallelism", key) for key in ("pipeline", "num_virtual_stages", "stage_layers")}
    if layers is None or not open_keys.isdisjoint(draft.unknown):
        return None, None
    chunks = (stages or 1) * (draft.counted("parallelism", "num_virtual_stages") or 1)
    return layers // chunks, -(-layers // chunks)


def put_selective(draft: Draft, mode: str, option: Any, name: str, how: str = "") -> None:
    """Set the policy of a program whose selective mode recomputes whole layers where its option is a number.

    Source: pytorch/torchtitan@000204a4:torchtitan/distributed/activation_checkpoint.py, and
    pytorch/torchtune@bd2a0fc7:torchtune/training/activations.py.
    """
    word = str(option)
    if mode != "selective" or not is_digits(word):
        draft.put(_POLICY, mode, how)
    elif int(word[:4]) == 1:
        draft.put(_POLICY, "full", f"{name} 1: each layer is recomputed whole")
    else:
        draft.lacks(_POLICY, f"{name} {cut_to(word, 20)}: one layer of so many is recomputed, and the others are kept")
