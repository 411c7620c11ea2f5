"""Counts parameters of Megatron-LM that the shape of a model leaves out: biases, positions and further norms."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.model.values import cut_to

_SWITCHES = ("disable_bias_linear", "add_bias_linear", "normalization", "position_embedding_type", "embed_layernorm")
_POSITIONS = (
    *("use_rotary_position_embeddings", "no_position_embedding", "add_position_embedding"),
    *("use_alibi_position_embeddings", "max_position_embeddings", "rotary_pct"),
)
_WITHOUT_TABLE = frozenset({"rope", "rotary", "mrope", "yarn", "alibi", "none", "relative"})
"""Kinds of positions without a table of parameters."""
_TABLE = frozenset({"learned_absolute", "absolute", "learned"})
_CENTRED = frozenset({"layernorm", "layernorm1p"})
_UNCENTRED = frozenset({"rmsnorm"})


def count_biases(draft: Draft) -> None:
    """Add biases of linear layers and norms and the table of positions to the parameters, or say why they are open."""
    hidden, layers = draft.counted("model", "hidden_size"), draft.counted("model", "num_layers")
    if isinstance(draft.more_parameters, str) or not hidden or not layers:
        return
    draft.look(*_SWITCHES), draft.look(*_POSITIONS)
    for reason in draft.reasons(*_SWITCHES, *_POSITIONS):
        draft.more_parameters = reason
        return
    biased = draft.flag("add_bias_linear")
    biased = not draft.flag("disable_bias_linear") if biased is None else biased
    norm, table = (draft.word("normalization") or "LayerNorm").casefold(), _positions(draft)
    if isinstance(table, str):
        draft.more_parameters = table
    elif norm not in _CENTRED | _UNCENTRED:
        draft.more_parameters = f"normalization is {cut_to(norm, 40)}, whose parameters are not known"
    elif biased and (draft.get("model", "experts") or draft.get("model", "attention") == "latent"):
        draft.more_parameters = "linear layers have biases; those of experts or latent attention are not counted"
    else:
        more, active = draft.more_parameters
        vectors = _biases(draft, hidden) if biased else 0
        added = layers * vectors + table * hidden + (2 * hidden if draft.flag("embed_layernorm") else 0)
        added += (2 * layers + 1) * hidden if norm in _CENTRED else 0
        draft.more_parameters = more + added, active + added


def _positions(draft: Draft) -> int | str:
    """Rows of the table of positions; why their number is not known."""
    kind = (draft.word("position_embedding_type") or "").rpartition(".")[2].casefold()
    without = any(draft.flag(name) for name in (*_POSITIONS[:2], "use_alibi_position_embeddings"))
    if kind in _WITHOUT_TABLE or without or draft.flag("add_position_embedding") is False:
        return 0
    if kind and kind not in _TABLE:
        return f"position_embedding_type is {cut_to(kind, 40)}, whose parameters are not known"
    return draft.count("max_position_embeddings") or "the table of positions has no max_position_embeddings"


def _biases(draft: Draft, hidden: int) -> int:
    """Biases of one layer: of the attention, unless `add_qkv_bias` counts them, and of both products behind it."""
    heads = draft.counted("model", "num_attention_heads") or 1
    groups = draft.counted("model", "num_key_value_heads") or heads
    size = draft.counted("model", "head_size") or hidden // heads
    ffn = draft.counted("model", "ffn_hidden_size") or 0
    inputs = 0 if draft.flag("add_qkv_bias") else size * (heads + 2 * groups)
    return inputs + hidden + ffn * (2 if draft.get("model", "gated_ffn") else 1) + hidden
