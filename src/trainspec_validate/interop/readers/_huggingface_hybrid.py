"""Reads the layers of models with state spaces from configurations of transformers and of state-spaces/mamba."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._state_space_layers import Layers, Names, counted, put_layers, put_state

Inside = Callable[..., list[str]]
_MAMBA_2: Final = {"convolution": "mamba_d_conv", "expansion": "mamba_expand", "heads": "mamba_n_heads"}
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "mamba": {"kind": "mamba", "state": "state_size", "inner": "intermediate_size", "rank": "time_step_rank"},
    "falcon_mamba": {"kind": "mamba", "state": "state_size", "inner": "intermediate_size", "rank": "time_step_rank"},
    "mamba2": {
        "kind": "mamba-2",
        "state": "state_size",
        "heads": "num_heads",
        "head": "head_dim",
        "groups": "n_groups",
    },
    "jamba": {"kind": "mamba", "state": "mamba_d_state", "expansion": "mamba_expand", "rank": "mamba_dt_rank"},
    "bamba": {"kind": "mamba-2", "state": "mamba_d_state", **_MAMBA_2, "groups": "mamba_n_groups"},
    "falcon_h1": {
        "kind": "mamba-2",
        "state": "mamba_d_state",
        **_MAMBA_2,
        "inner": "mamba_d_ssm",
        "groups": "mamba_n_groups",
    },
    "granitemoehybrid": {"kind": "mamba-2", "state": "mamba_d_state", **_MAMBA_2, "groups": "mamba_n_groups"},
    "zamba": {"kind": "other", "state": "mamba_d_state", "expansion": "mamba_expand"},
    "zamba2": {
        "kind": "mamba-2",
        "state": "mamba_d_state",
        "expansion": "mamba_expand",
        "heads": "n_mamba_heads",
        "groups": "mamba_ngroups",
    },
    "nemotron_h": {
        "kind": "mamba-2",
        "state": "ssm_state_size",
        "heads": "mamba_num_heads",
        "head": "mamba_head_dim",
        "groups": "n_groups",
    },
}
"""Settings of transformers 5.23.0 by kind of model (huggingface/transformers:src/transformers/models)."""
_BLOCKS: Final = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
_CONVOLUTIONS: Final = ("conv_kernel", "mamba_d_conv")
STATE_SPACES: Final = frozenset(_NAMES)
_ONLY: Final = frozenset({"mamba", "falcon_mamba", "mamba2"})
_OWN_STATE: Final = {"mamba": 16, "mamba-2": 128}
_OWN: Final = "state-spaces/mamba:mamba_ssm/modules"


def write_state_space(draft: Draft, kind: str, names: Inside) -> None:
    """The layers of a model of transformers that has a state space in some or all of them."""
    if kind in _ONLY:  # the width of the layer itself, and not of a feed-forward block
        draft.drop([("model", "ffn_hidden_size")], "no layer has a feed-forward block")
    hidden, layers = draft.counted("model", "hidden_size"), _layers(draft, kind, names)
    if layers is None:
        draft.lacks(("model", "family"), f"{kind}: the settings do not say which layers have attention")
    else:
        put_layers(draft, layers, f"model_type {kind}")
    settings = {key: value if key == "kind" else names(value)[0] for key, value in _NAMES[kind].items()}
    settings["convolution"] = next((name for name in names(*_CONVOLUTIONS) if name in draft.values), "")
    if kind == "zamba2" and settings["state"] not in draft.values:
        settings["state"] = names("state_size")[0]
    put_state(draft, Names(**settings), hidden)
    tied = draft.flag(*names("tie_word_embeddings"))
    if tied is not None:
        draft.put(("model", "tied_embeddings"), tied)
    if kind == "nemotron_h" and draft.word(*names("mlp_hidden_act")) == "relu2":
        draft.put(("model", "gated_ffn"), False, "mlp_hidden_act relu2")
    elif kind in {"jamba", "bamba", "falcon_h1", "granitemoehybrid"}:
        draft.put(("model", "gated_ffn"), True, f"model_type {kind}")


def _layers(draft: Draft, kind: str, names: Inside) -> Layers | None:
    whole = draft.counted("model", "num_layers")
    pattern = draft.word(*names("hybrid_override_pattern")) if kind == "nemotron_h" else None
    if pattern:
        return counted(pattern)
    if whole is None:
        return None
    if kind == "nemotron_h":
        return _of_blocks(draft.look(*names("layers_block_type")))
    if kind in _ONLY:
        return Layers(whole, whole, 0, 0)
    if kind == "falcon_h1":
        return Layers(whole, whole, whole, whole)
    if kind == "jamba":
        return _of_jamba(draft, whole, names)
    attention = _listed(draft, kind, names)
    if attention is None or len(attention) > whole:
        return None
    if kind in {"zamba", "zamba2"}:  # each layer has a state space, and some use the shared block before it
        return Layers(whole, whole, len(attention), shared=True)
    return Layers(whole, whole - len(attention), len(attention), whole if kind == "bamba" else None)


def _of_blocks(blocks: object) -> Layers | None:
    """The layers of a list of their kinds, in which each layer has one part."""
    if not isinstance(blocks, list) or not all(isinstance(block, str) and block in _BLOCKS for block in blocks):
        return None
    return counted("".join(_BLOCKS[block] for block in blocks))


def _listed(draft: Draft, kind: str, names: Inside) -> list[object] | None:
    """The layers with attention, by their numbers or by a list of the kinds of all layers."""
    if kind == "bamba":
        found = draft.look(*names("attn_layer_indices"))
        return found if isinstance(found, list) else None
    kinds = draft.look(*names("layers_block_type"), *(names("layer_types") if kind == "granitemoehybrid" else ()))
    if isinstance(kinds, list):
        return [block for block in kinds if isinstance(block, str) and block in {"attention", "hybrid"}]
    found = draft.look(*names("hybrid_layer_ids"))
    return found if isinstance(found, list) else None


def _of_jamba(draft: Draft, whole: int, names: Inside) -> Layers | None:
    """Layers by period and offset, as `JambaConfig` counts them."""
    counts = []
    for part in ("attn", "expert"):
        period, offset = draft.count(*names(f"{part}_layer_period")), draft.look(*names(f"{part}_layer_offset"))
        if not period or not isinstance(offset, int) or not 0 <= offset < period or whole > 10_000:
            return None
        counts.append(sum(number % period == offset for number in range(whole)))
    experts = counts[1] if (draft.count(*names("num_experts")) or 1) > 1 else 0
    return Layers(whole, whole - counts[0], counts[0], whole - experts, experts)


def write_own(draft: Draft, prefix: str) -> None:
    """The layers of a model of state-spaces/mamba itself, whose layers have settings in `ssm_cfg`."""
    hidden, whole = draft.counted("model", "hidden_size"), draft.counted("model", "num_layers")
    layer = draft.word(f"{prefix}ssm_cfg.layer") or "Mamba1"
    kind = {"Mamba1": "mamba", "Mamba2": "mamba-2"}.get(layer, "other")
    attention = draft.look(f"{prefix}attn_layer_idx")
    if attention:
        draft.copy(("model", "num_attention_heads"), f"{prefix}attn_cfg.num_heads")
        draft.copy(("model", "head_size"), f"{prefix}attn_cfg.head_dim")
    words, multiple = draft.counted("model", "vocabulary_size"), draft.count(f"{prefix}pad_vocab_size_multiple")
    if words and multiple and words % multiple and not prefix:
        padded = -(-words // multiple) * multiple
        draft.put(("model", "vocabulary_size"), padded, f"{words}, padded to a multiple of {multiple}")
    tied = draft.flag(f"{prefix}tie_embeddings")
    if tied is not None:
        draft.put(("model", "tied_embeddings"), tied)
    width = draft.count(f"{prefix}d_intermediate")
    if whole and (attention is None or isinstance(attention, list)):
        num_attention = len(attention or [])
        layers = Layers(whole, whole - num_attention, num_attention, whole if width else 0)
        put_layers(draft, layers, "ssm_cfg and attn_layer_idx" if num_attention else "ssm_cfg")
    inside = f"{prefix}ssm_cfg."
    names = {"state": "d_state", "convolution": "d_conv", "expansion": "expand"}
    defaults = {"d_conv": 4, "expand": 2}
    if kind == "mamba":
        names["rank"] = "dt_rank"
    elif kind == "mamba-2":
        names |= {"head": "headdim", "groups": "ngroups", "heads": "nheads"}
        defaults["headdim"] = 64
    if kind in _OWN_STATE:
        defaults["d_state"] = _OWN_STATE[kind]
    settings = Names(kind, **{key: f"{inside}{value}" for key, value in names.items()})
    put_state(draft, settings, hidden, {f"{inside}{key}": value for key, value in defaults.items()}, _OWN)
