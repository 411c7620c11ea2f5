"""Turns arguments of Megatron-LM on the shape of a model into the model of a plan."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers import _megatron_deepspeed as deepspeed
from trainspec_validate.interop.readers._latent_attention import count_latent
from trainspec_validate.interop.readers._plan_parts import LARGEST, Default, Draft, is_count, name_of, shown
from trainspec_validate.interop.readers._position_encoding import put_megatron
from trainspec_validate.interop.readers._state_space_layers import Names, counted, put_layers, put_state
from trainspec_validate.model.values import cut_to

ARGUMENTS = "NVIDIA/Megatron-LM@d98e8a64:megatron/training/arguments.py"
_BERT_TIES = (
    "false with the core models and true with the legacy models, whose BERT ties its tables whatever "
    "untie_embeddings_and_output_weights says; the version and its switches decide"
)
_PADDING = 128
_TOKENIZERS = "NVIDIA/Megatron-LM@d98e8a64:megatron/core/tokenizers/utils/build_tokenizer.py"
SIZED_TOKENIZERS = frozenset({"NullTokenizer", "NullMultimodalTokenizer", "TikTokenizer"})
"""Tokenizers that take their size from `vocab_size`; every other one has its own."""
_TOKENIZER_TYPES = SIZED_TOKENIZERS | {
    *("BertWordPieceLowerCase", "BertWordPieceCase", "GPT2BPETokenizer", "SentencePieceTokenizer"),
    *("GPTSentencePieceTokenizer", "HuggingFaceTokenizer", "Llama2Tokenizer", "MultimodalTokenizer", "SFTTokenizer"),
    *("NullSFTTokenizer", "PretrainedFromHF", "HFTokenizer", "HFGPT2Tokenizer", "FalconTokenizer"),
}
"""Tokenizers that Megatron-LM and its forks take."""
_NULL = frozenset({"NullTokenizer", "NullMultimodalTokenizer"})
_END_OF_DOCUMENT = (
    "such a tokenizer adds a token for the end of a document in some releases and forks "
    "(NVIDIA/Megatron-LM before c9dfe347, flagos-ai/Megatron-LM-FL@175ae90e) and none in others"
)
_OTHER_MODELS = ("decoder_seq_length", "decoder_num_layers", "vision_model_type", "img_h", "bert_binary_head")
"""Arguments of models with a part next to the decoder."""
_OTHER_PROGRAMS = re.compile(
    r"(?i)bert|(?:^|[_-])t5|_ict|vision|vit|dino|retro|mamba|hybrid|hyena|vlm|llava|mimo|multimodal|realm"
)
"""Programs of models that are no plain decoders."""
_SEQUENCE_TO_SEQUENCE = re.compile(r"(?i)(?:^|[_-])t5(?![0-9a-z])|_bart|enc_?dec")
_SEEN = re.compile(
    r"^(?:[a-z]+_)*(?:vision|visual|vit|image|img|audio|video|mm|multimodal|projector)_"
    r"(?!(?:data|path|dir|root|folder|token_id|tag)s?$)[a-z_]+$|^patch_(?:size|dim)$"
)
"""Arguments of an encoder of images, video or sound, whose weights the shape of the decoder leaves out."""
_VISION = ("vision_model_type", "img_h")
_TWO_PARTS = "the model has an encoder and a decoder, of which a plan has no shape"
_PATTERNS = ("hybrid_override_pattern", "hybrid_layer_pattern")
_TRANSFORMER = "NVIDIA/Megatron-LM:megatron/core/transformer/transformer_config.py"
_LATENT_NAMES = {"head": "qk_head_dim", "rotary": "qk_pos_emb_head_dim", "value": "v_head_dim"}
_TERM = re.compile(r"\[([01](?:,[01])*)\](?:\*([0-9]{1,4}))?")


def write_model(draft: Draft) -> None:
    """The shape of the model; what arguments leave out follows the defaults of Megatron-LM."""
    family = _write_family(draft)
    name = name_of(draft.word("hf_model_id") or "")
    if name:
        draft.put(("model", "name"), name)
    layers = _write_layers(draft)
    hidden = draft.copy(("model", "hidden_size"), "hidden_size")
    draft.copy(("model", "num_attention_heads"), "num_attention_heads")
    _write_length(draft)
    draft.copy(("model", "head_size"), "kv_channels")
    _write_feed_forward(draft, hidden)
    _write_vocabulary(draft)
    _write_heads(draft)
    put_megatron(draft)
    _count_more(draft)
    untied = draft.flag("untie_embeddings_and_output_weights")
    shared = draft.flag("share_embeddings_and_output_weights")
    tied = shared if shared is not None else not untied
    how = "" if untied is not None or shared is not None else Default(f"the default of {ARGUMENTS}")
    bert = "bert" in (draft.word("$program") or "").lower()
    if untied and shared is None and bert and not draft.flag("use_mcore_models"):
        draft.lacks(("model", "tied_embeddings"), _BERT_TIES)
    else:
        draft.put(("model", "tied_embeddings"), tied, how)
    if draft.copy(("model", "num_mtp_layers"), "mtp_num_layers", least=0):
        draft.remark("layers that predict further tokens are not counted in num_parameters", "mtp_num_layers")
    count = deepspeed.num_experts(draft.look("num_experts", "num_moe_experts"))
    if family == "moe-transformer" or (family in {"other", "hybrid"} and count is not None and count != 1):
        _write_experts(draft, None if family == "hybrid" else layers)
        if family == "other":
            told = "the pattern of layers is not read; count its layers with experts"
            draft.lacks(("model", "experts", "num_layers"), told)


def _count_more(draft: Draft) -> None:
    """Parameters that arguments ask for and the shape leaves out: norms of queries and keys, biases of their input."""
    normed, biased = draft.flag("qk_layernorm"), draft.flag("add_qkv_bias")
    for part, value in draft.values.items():
        if _SEEN.search(part) and value not in (None, False):
            draft.more_parameters = f"{cut_to(part, 60)} is given, so the model has more parts than the decoder"
            return
    if draft.reasons("qk_layernorm", "add_qkv_bias"):
        draft.more_parameters = draft.reasons("qk_layernorm", "add_qkv_bias")[0]
        return
    layers, heads = draft.counted("model", "num_layers"), draft.counted("model", "num_attention_heads")
    if not (normed or biased) or not layers or not heads:
        return
    latent = draft.get("model", "attention") == "latent"
    size = draft.counted("model", "head_size") or (draft.counted("model", "hidden_size") or 0) // heads
    groups = draft.counted("model", "num_key_value_heads") or heads
    width = (draft.count("q_lora_rank") or 0) + (draft.count("kv_lora_rank") or 0) if latent else 2 * size
    vectors = 1 if draft.word("normalization") == "RMSNorm" else 2
    bias = size * (heads + 2 * groups) if biased and not latent else 0
    more = layers * ((vectors * width if normed else 0) + bias)
    draft.more_parameters = more, more


def _is_sequence_to_sequence(draft: Draft) -> bool:
    """Whether the model has an encoder of text and a decoder."""
    several = draft.look("decoder_num_layers") is not None and not draft.look("vision_model_type")
    return several or bool(_SEQUENCE_TO_SEQUENCE.search(draft.word("$program") or ""))


def _write_layers(draft: Draft) -> int | None:
    """Layers of a decoder; an encoder and a decoder have layers of their own."""
    if not _is_sequence_to_sequence(draft):
        return draft.copy(("model", "num_layers"), "num_layers", "encoder_num_layers")
    names = ("encoder_num_layers", "num_layers", "decoder_num_layers")
    given = ", ".join(f"{name} {shown(draft.values[name])}" for name in names if draft.look(name) is not None)
    draft.lacks(("model", "num_layers"), f"{_TWO_PARTS}: {given or 'no number of layers is given'}")
    return None


def _write_length(draft: Draft) -> None:
    """The sequence of the decoder; with a vision encoder seq_length is the sequence of that encoder."""
    pointer = ("model", "sequence_length")
    encoder, decoder = draft.look("seq_length", "encoder_seq_length"), draft.look("decoder_seq_length")
    if _is_sequence_to_sequence(draft):
        draft.lacks(
            pointer,
            f"{_TWO_PARTS}: {encoder or 'no'} positions in the encoder, {decoder or 'no'} given for the decoder",
        )
    elif decoder is not None or draft.reasons("decoder_seq_length"):
        draft.copy(pointer, "decoder_seq_length")
        if encoder is not None and pointer not in draft.unknown:
            draft.derived[pointer] = f"decoder_seq_length; seq_length {shown(encoder)} is the sequence of the encoder"
    elif any(draft.look(name) is not None for name in _VISION):
        draft.lacks(
            pointer, f"seq_length {shown(encoder)} is the sequence of the encoder; no decoder_seq_length is given"
        )
    else:
        draft.copy(pointer, "seq_length", "encoder_seq_length")


def _write_family(draft: Draft) -> str | None:
    experts = deepspeed.num_experts(draft.look("num_experts", "num_moe_experts"))
    several = [name for name in _OTHER_MODELS if draft.look(name) is not None]
    program = draft.word("$program") or ""
    if _OTHER_PROGRAMS.search(program):
        several.append("$program")
    if str(draft.values.get("tokenizer_type", "")).startswith("Bert"):
        several.append("tokenizer_type")
    if several:
        named = program if several[0] == "$program" else several[0]
        told = f"{named}: the model is no plain decoder; its family and parameters must be given"
        draft.remark(told, several[0])
    for reason in draft.reasons("num_experts", "num_moe_experts"):
        draft.lacks(("model", "family"), reason)
        return None
    pattern = draft.word(*_PATTERNS)
    if pattern and not [name for name in several if name != "$program"] and (family := _write_pattern(draft, pattern)):
        return family
    if pattern:
        told = f"the pattern of layers {cut_to(pattern, 60)} is not read; a plan states it in model.family"
        draft.remark(f"{told} and in counts of layers", next(name for name in _PATTERNS if draft.look(name)))
    hybrid = pattern or draft.flag("is_hybrid_model") or several
    if not hybrid and draft.look("num_layers", "encoder_num_layers") is None and draft.look("hidden_size") is None:
        draft.lacks(("model", "family"), "the source does not describe the model")
        return None
    family = "other" if hybrid else "moe-transformer" if experts is not None and experts != 1 else "dense-transformer"
    stated = hybrid or experts is not None
    draft.put(("model", "family"), family, "" if stated else Default(f"no experts, the default of {ARGUMENTS}"))
    return family


def _write_pattern(draft: Draft, pattern: str) -> str | None:
    """The layers that a pattern counts, and what its state-space layers are; None where it has others."""
    layers = counted(pattern)
    if layers is None or not layers.state_space or not layers.attention:
        return None
    setting = next(name for name in _PATTERNS if draft.look(name))
    family = put_layers(draft, layers, setting)
    how = f"signs of {setting}"
    draft.put(("model", "num_layers"), layers.whole, how)
    names = {
        "state": "mamba_state_dim",
        "heads": "mamba_num_heads",
        "head": "mamba_head_dim",
        "groups": "mamba_num_groups",
    }
    usual = {"mamba_state_dim": 128, "mamba_head_dim": 64, "mamba_num_groups": 8}
    put_state(draft, Names("mamba-2", **names), draft.count("hidden_size"), usual, _TRANSFORMER)
    return family


def _write_heads(draft: Draft) -> None:
    pointer = ("model", "num_key_value_heads")
    if (window := draft.look("window_size")) is not None or draft.reasons("window_size"):
        told = f"window_size is {shown(window)}: attention of a window, in the layers that window_attn_skip_freq leaves"
        draft.lacks(("model", "attention"), told)
    if draft.flag("multi_latent_attention"):
        draft.put(("model", "attention"), "latent")
        draft.look("num_query_groups")
        count_latent(draft, lambda key: _LATENT_NAMES.get(key, key))
        return
    if draft.word("attention_head_type") == "multiquery" and "n_head_kv" in draft.values:
        draft.copy(pointer, "n_head_kv")
    elif draft.word("attention_head_type") == "multiquery" or draft.flag("multi_query_attention"):
        draft.put(pointer, 1, "one head of keys and values, by the kind of attention heads")
    elif draft.flag("group_query_attention") is False:
        draft.look("num_query_groups")
    else:
        draft.copy(pointer, "num_query_groups", "num_key_value_heads")
    heads = draft.counted("model", "num_attention_heads")
    if heads:
        how = f"no grouped queries, the default of {ARGUMENTS}"
        draft.default(pointer, heads, how, ("model", "num_attention_heads"))


def _write_feed_forward(draft: Draft, hidden: int | None) -> None:
    swiglu, quick = draft.flag("swiglu", "gated_linear_unit"), draft.flag("quick_geglu")
    other = draft.word("glu_activation")
    gated = True if quick or other else swiglu
    how = "" if gated is not None else Default(f"no gate, the default of {ARGUMENTS}")
    draft.put(("model", "gated_ffn"), bool(gated), how)
    if draft.copy(("model", "ffn_hidden_size"), "ffn_hidden_size") is None and hidden and hidden < LARGEST // 4:
        width = int(4 * hidden * 2 / 3 / 64) * 64 if swiglu else 4 * hidden
        if draft.get("model", "ffn_hidden_size") is None and not draft.reasons("ffn_hidden_size"):
            rule = "8/3 of the hidden size, down to a multiple of 64" if swiglu else "4 times the hidden size"
            inputs = (("model", "hidden_size"), ("model", "gated_ffn"))
            draft.default(("model", "ffn_hidden_size"), max(width, 1), f"{rule}, the default of {ARGUMENTS}", *inputs)


def _write_vocabulary(draft: Draft) -> None:
    padded = draft.copy(("model", "vocabulary_size"), "padded_vocab_size", "pad_vocab_size_to")
    size, step = draft.count("vocab_size"), draft.count("make_vocab_size_divisible_by")
    if padded:
        return
    if size is None:
        if draft.copy(("model", "vocabulary_size"), "vocab_size") is None:
            draft.lacks(("model", "vocabulary_size"), "the tokenizer defines it; the arguments only name the tokenizer")
        return
    if draft.flag("should_pad_vocab") is False:
        draft.put(("model", "vocabulary_size"), size)
        return
    kind = draft.word("tokenizer_type")
    if kind and kind not in _TOKENIZER_TYPES and draft.word("$program") is None:
        draft.put(("model", "vocabulary_size"), size)  # Megatron-LM, which pads the size, refuses such a tokenizer
        return
    if kind and kind not in SIZED_TOKENIZERS:
        why = f"the tokenizer decides it: {cut_to(kind, 60)} takes no vocab_size ({_TOKENIZERS})"
        draft.lacks(("model", "vocabulary_size"), why)
        return
    multiple = (step or _PADDING) * (draft.count("tensor_model_parallel_size") or 1)
    padded = -(-size // multiple) * multiple
    if kind in _NULL and padded == size:
        draft.lacks(("model", "vocabulary_size"), f"{size} or {size + multiple}: {_END_OF_DOCUMENT}")
        return
    how = f"{size} padded to a multiple of {multiple}, after {ARGUMENTS}"
    draft.put(("model", "vocabulary_size"), padded, how if size % multiple else "")


def _write_experts(draft: Draft, layers: int | None) -> None:
    if deepspeed.is_fork(draft):
        deepspeed.write_experts(draft, layers)
        return
    draft.copy(("model", "experts", "num_experts"), "num_experts", "num_moe_experts")
    active = draft.copy(("model", "experts", "num_active_experts"), "moe_router_topk")
    topk = "no moe_router_topk is given: 2 by default, and 1 in Megatron Core before 0.5"
    if active is None:
        draft.lacks(("model", "experts", "num_active_experts"), topk)
    width = draft.copy(("model", "experts", "ffn_hidden_size"), "moe_ffn_hidden_size")
    if width is None and draft.counted("model", "ffn_hidden_size"):
        width = draft.counted("model", "ffn_hidden_size")
        how: str = Default(f"as ffn_hidden_size, the default of {ARGUMENTS}")
        draft.follow(("model", "experts", "ffn_hidden_size"), width, how, ("model", "ffn_hidden_size"))
    shared = draft.count("moe_shared_expert_intermediate_size")
    if shared and width:
        how = f"{shared} columns of shared experts over {width} of one expert"
        draft.divide(("model", "experts", "num_shared_experts"), shared, width, how)
    frequency = draft.look("moe_layer_freq")
    for reason in draft.reasons("moe_layer_freq"):
        draft.lacks(("model", "experts", "num_layers"), reason)
        draft.more_parameters = reason
    if frequency is None or layers is None or frequency == 1:
        return
    count = expert_layers(frequency, layers)
    if count is None:
        why = "moe_layer_freq is not understood, which says how many layers have experts"
        draft.lacks(("model", "experts", "num_layers"), why)
        draft.more_parameters = why
    elif count != layers:
        draft.put(("model", "experts", "num_layers"), count, "counted in moe_layer_freq")


def expert_layers(frequency: object, layers: int) -> int | None:
    """Layers with experts: every n-th one, or as a list or a sum of lists marks them.

    >>> expert_layers(2, 24), expert_layers("[0]*3+[1]*58", 61), expert_layers([0, 1, 1], 3), expert_layers("x", 4)
    (12, 58, 2, None)
    """
    if is_count(frequency) and isinstance(frequency, int):
        return -(-layers // frequency)
    if isinstance(frequency, list):
        return sum(frequency) if all(item in (0, 1) for item in frequency) else None
    if not isinstance(frequency, str) or len(frequency) > 4096:
        return None
    total, terms = 0, re.sub(r"[()\s]", "", frequency).split("+")
    for term in terms:
        found = _TERM.fullmatch(term)
        if found is None:
            return None
        total += found[1].count("1") * int(found[2] or 1)
    return total
