"""Turns a model configuration of transformers into the model of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.interop.readers._huggingface_count import more_parameters
from trainspec_validate.interop.readers._huggingface_hybrid import STATE_SPACES, write_own, write_state_space
from trainspec_validate.interop.readers._latent_attention import count_latent
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of, shown
from trainspec_validate.interop.readers._position_encoding import put_of_kind
from trainspec_validate.model.values import cut_to

VERSION = "transformers 5.23.0"
_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_GATED_UNTIED = frozenset(
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "deepseek_v2"),
        *("deepseek_v3", "olmo2", "olmo3", "internlm2", "granitemoe", "glm4", "glm4_moe", "smollm3", "gpt_oss"),
    }
)
"""Kinds with a gate in the feed-forward block, whose output table is their own unless the file says otherwise."""
_GATED_TIED = frozenset({"gemma", "gemma2", "gemma3_text", "granite", "cohere", "cohere2", "starcoder2_gated"})
_PLAIN_TIED = frozenset({"gpt2", "opt", "bloom", "gpt_bigcode", "starcoder2", "falcon"})
_PLAIN_UNTIED = frozenset({"gpt_neox", "gptj", "phi"})
_WITH_EXPERTS = frozenset(
    {
        *("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "granitemoe", "glm4_moe", "gpt_oss"),
    }
)
_DENSE = (_GATED_UNTIED | _GATED_TIED | _PLAIN_TIED | _PLAIN_UNTIED) - _WITH_EXPERTS
"""Kinds whose classes have no experts (huggingface/transformers:src/transformers/models)."""
_LATENT = frozenset({"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2"})
_LATENT_NAMES = {"head": "qk_nope_head_dim", "rotary": "qk_rope_head_dim", "value": "v_head_dim"}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


_TWO_PARTS = frozenset({"t5", "mt5", "umt5", "bart", "mbart", "m2m_100", "pegasus", "whisper", "marian", "detr"})
"""Kinds with an encoder and a decoder."""
_SIZES = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim",),
    "ffn_hidden_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocabulary_size": ("vocab_size",),
}
"""Keys of a plan and what kinds of models call them."""
_FOURFOLD = frozenset({"gpt2", "bloom", "falcon", "gptj"})
"""Kinds whose feed-forward block is four times as wide as the model unless the file says otherwise."""
_MIXED_WINDOWS = frozenset({"gemma2", "gemma3_text", "gpt_oss"})


@dataclass(frozen=True, slots=True)
class _Inside:
    """Names of settings below a prefix."""

    prefix: str

    def __call__(self, *keys: str) -> list[str]:
        return [f"{self.prefix}{key}" for key in keys]


def write_model(draft: Draft, prefix: str = "") -> None:
    """The shape of a model, and the number format that it was saved in as a remark."""
    names = _Inside(prefix)
    kind = draft.word(*names("model_type")) or ""
    named = draft.word(*names("_name_or_path", "name_or_path"))
    if named and name_of(named):
        draft.put(("model", "name"), name_of(named), "" if name_of(named) == named else f"made of {named[:120]!r}")
    _leave_two_parts(draft, kind, names)
    for key, settings in _SIZES.items():
        if ("model", key) in draft.unknown:
            continue
        draft.copy(("model", key), *names(*settings))
    if draft.get("model", "num_attention_heads") is None and draft.get("model", "head_size") is not None:
        told = "head_dim comes without a number of attention heads: it may be the size of other heads, as in mamba2"
        draft.drop([("model", "head_size")], told)
    if not _write_state_space(draft, kind, prefix, names):
        hidden = draft.counted("model", "hidden_size")
        if hidden and kind in _FOURFOLD:
            how = f"4 times the hidden size, the default of {kind} in {VERSION}"
            draft.default(("model", "ffn_hidden_size"), 4 * hidden, how, ("model", "hidden_size"))
        _write_gate(draft, kind, names("tie_word_embeddings"))
    _write_attention(draft, kind, names)
    put_of_kind(draft, kind, names("alibi", "no_rope_layers"))
    if _has_experts(draft, kind, names):
        _write_experts(draft, names)
    _count_more(draft, kind, names)
    longest = draft.count(*names("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"))
    if longest:
        why = f"the model can take up to {longest} tokens; the length that it is trained with is set elsewhere"
        draft.lacks(("model", "sequence_length"), why)
    saved = draft.word(*names("torch_dtype", "dtype"))
    if saved:
        draft.remark(
            f"the weights are saved in {cut_to(_FORMATS.get(saved, saved), 40)}; how they are trained is set elsewhere"
        )


def _write_state_space(draft: Draft, kind: str, prefix: str, names: _Inside) -> bool:
    """The layers of a model that has a state space; False for any other model."""
    if kind in STATE_SPACES:
        write_state_space(draft, kind, names)
    elif any(name.startswith(f"{prefix}ssm_cfg") for name in draft.values):
        write_own(draft, prefix)
    else:
        return False
    return True


def _count_more(draft: Draft, kind: str, names: _Inside) -> None:
    """Note what the shape leaves out of the parameters; they stay open where that is not known for the kind."""
    if draft.get("model", "family") is None:
        return
    found = more_parameters(draft, kind, lambda key: names(key)[0])
    why = f"biases and norms of {kind} with these settings are not counted; the checkpoint of the model shows them"
    draft.more_parameters = why if found is None else found


def _leave_two_parts(draft: Draft, kind: str, names: _Inside) -> None:
    """Leave the layers of a model open that has an encoder and a decoder: `num_hidden_layers` counts the encoder."""
    counted = ("encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers", "num_hidden_layers")
    given = {name: draft.values[name] for name in names(*counted) if draft.values.get(name) is not None}
    pair = [name for name in given if "decoder_layers" in name]
    if not (draft.flag(*names("is_encoder_decoder")) or kind in _TWO_PARTS or (len(given) > 1 and pair)):
        return
    draft.used.update(given)
    told = ", ".join(f"{name} {shown(value)}" for name, value in given.items())
    why = f"the model has an encoder and a decoder, of which a plan has no shape: {told or 'no layers are given'}"
    draft.lacks(("model", "num_layers"), why)


def _write_attention(draft: Draft, kind: str, names: _Inside) -> None:
    heads = draft.counted("model", "num_attention_heads")
    if heads:
        one = draft.flag(*names("multi_query")) is True
        if one and draft.get("model", "num_key_value_heads") is None:
            draft.put(("model", "num_key_value_heads"), 1, "multi_query")
        inputs = ("model", "num_attention_heads")
        draft.default(("model", "num_key_value_heads"), heads, "as many as query heads", inputs)
    if kind in _LATENT or draft.look(*names("kv_lora_rank")) is not None:
        draft.put(("model", "attention"), "latent")
        count_latent(draft, lambda key: names(_LATENT_NAMES.get(key, key))[0])
    elif draft.look(*names("sliding_window")) is not None and draft.flag(*names("use_sliding_window")) is not False:
        draft.put(("model", "attention"), "sliding-window")
        if kind in _MIXED_WINDOWS:
            draft.remark("only some layers have a sliding window")


def _write_gate(draft: Draft, kind: str, ties: list[str]) -> None:
    known = {**dict.fromkeys(_GATED_UNTIED, (True, False)), **dict.fromkeys(_GATED_TIED, (True, True))}
    known |= {**dict.fromkeys(_PLAIN_TIED, (False, True)), **dict.fromkeys(_PLAIN_UNTIED, (False, False))}
    tied = draft.flag(*ties)
    if kind not in known:
        draft.lacks(("model", "family"), f"the kind {kind[:60]!r} is not known; whether it has a gate must be said")
        if tied is not None:
            draft.put(("model", "tied_embeddings"), tied)
        return
    gate, usual = known[kind]
    draft.put(("model", "family"), "dense-transformer", f"model_type {kind}")
    draft.put(("model", "gated_ffn"), gate, f"model_type {kind}")
    how = "" if tied is not None else Default(f"the default of {kind} in {VERSION}")
    draft.put(("model", "tied_embeddings"), usual if tied is None else tied, how)


def _has_experts(draft: Draft, kind: str, names: _Inside) -> bool:
    """Whether experts are to be read; where the class has none, family and counts stay open."""
    experts = draft.count(*names(*_EXPERTS))
    if not experts or experts < 2 or kind not in _DENSE:
        return True
    setting = next(name for name in names(*_EXPERTS) if draft.values.get(name) is not None)
    why = f"{setting} is {experts}, but models of model_type {kind} have no experts"
    draft.remark(f"{why}; say in model.family which it is", setting)
    keys = ("family", "experts", "num_parameters", "num_active_parameters")
    draft.drop([("model", key) for key in keys], why)
    return False


def _write_experts(draft: Draft, names: _Inside) -> None:
    experts = draft.count(*names(*_EXPERTS))
    if not experts or experts < 2:
        return
    if draft.get("model", "family") == "dense-transformer":
        draft.put(("model", "family"), "moe-transformer", "there are experts")
    draft.put(("model", "experts", "num_experts"), experts)
    draft.copy(("model", "experts", "num_active_experts"), *names("num_experts_per_tok", "moe_topk"))
    width = draft.copy(("model", "experts", "ffn_hidden_size"), *names("moe_intermediate_size"))
    dense = draft.counted("model", "ffn_hidden_size")
    if width is None and dense:
        width = dense
        how: str = Default("as intermediate_size")
        draft.follow(("model", "experts", "ffn_hidden_size"), dense, how, ("model", "ffn_hidden_size"))
    shared = draft.count(*names("n_shared_experts", "num_shared_experts"))
    columns = draft.count(*names("shared_expert_intermediate_size"))
    if shared or (columns and width):
        pointer = ("model", "experts", "num_shared_experts")
        if shared:
            draft.put(pointer, shared)
        else:
            draft.divide(pointer, columns or 0, width or 0, "columns of shared experts over those of one expert")
    layers, first = draft.counted("model", "num_layers"), draft.count(*names("first_k_dense_replace"))
    step = draft.count(*names("decoder_sparse_step", "moe_layer_freq")) or 1
    if layers and first and first < layers:
        draft.put(("model", "experts", "num_layers"), layers - first, "layers without first_k_dense_replace")
    elif layers and step > 1:
        draft.put(("model", "experts", "num_layers"), layers // step, f"every {step}th layer")
