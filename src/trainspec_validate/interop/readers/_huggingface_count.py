"""Counts parameters of transformers models in addition to those of a plan's shape: biases, positions, further norms."""

from __future__ import annotations

from collections.abc import Callable

from trainspec_validate.interop.readers._plan_parts import Draft

SOURCE = "the modeling files of transformers 5.23.0"
_NORMED_HEADS = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
"""Kinds with a norm over each query head and each key head."""
_NORMED_WIDTHS = frozenset({"olmo2", "olmo3"})
"""Kinds with a norm over all query heads together, and one over all key heads."""
_FOUR_NORMS = frozenset({"gemma2", "gemma3_text", "glm4"})
_OPEN_BIAS = frozenset(
    {
        *("llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "granite", "granitemoe"),
        *("olmo2", "olmo3", "smollm3"),
    }
)
"""Kinds whose `attention_bias` gives all four projections a bias."""
_INPUT_BIAS = frozenset({"glm4", "glm4_moe"})
"""Kinds whose `attention_bias` gives queries, keys and values a bias, and the output none."""
_PLAIN = frozenset({"mistral", "mixtral", "phi3"})
_ONE_NORM = frozenset({"cohere", "cohere2"})
_LATENT = frozenset({"deepseek_v2", "deepseek_v3"})
_POSITIONS = {"gpt2": 1024, "gpt_bigcode": 1024, "opt": 2048}
"""Kinds with learned positions, and how many unless the file says otherwise."""
_FULL_BIAS = frozenset({"gpt2", "gpt_bigcode", "opt", "bloom", "gpt_neox", "starcoder2"})
"""Kinds with a bias in every projection and norm of a layer, and in the last norm."""


class _Sizes:
    """The sizes that the counts need, as facts of a draft and settings of the file."""

    def __init__(self, draft: Draft, name: Callable[[str], str]) -> None:
        self.draft, self.name = draft, name
        self.hidden = draft.counted("model", "hidden_size") or 0
        self.layers = draft.counted("model", "num_layers") or 0
        self.heads = draft.counted("model", "num_attention_heads") or 1
        self.head = draft.counted("model", "head_size") or self.hidden // self.heads
        self.queries = self.heads * self.head
        self.keys = (draft.counted("model", "num_key_value_heads") or self.heads) * self.head
        self.ffn = draft.counted("model", "ffn_hidden_size") or 0
        self.vocabulary = draft.counted("model", "vocabulary_size") or 0

    def on(self, setting: str, *, usual: bool = False) -> bool:
        """Whether a switch of the file is on."""
        value = self.draft.flag(self.name(setting))
        return usual if value is None else value

    def count(self, setting: str) -> int:
        """A count of the file, 0 where there is none."""
        return self.draft.count(self.name(setting)) or 0


def more_parameters(draft: Draft, kind: str, name: Callable[[str], str]) -> tuple[int, int] | None:
    """Parameters in addition to those of the shape, of all and of those that a token uses; None if unknown.

    Source: huggingface/transformers:src/transformers/models, one modeling file for each kind.
    """
    sizes = _Sizes(draft, name)
    if kind == "gpt_oss":
        return _of_gpt_oss(sizes)
    if kind in _FULL_BIAS:
        whole = _of_full_bias(sizes, kind)
    elif kind in _LATENT:
        whole = _of_latent(sizes)
    elif kind in _ONE_NORM or kind in {"gptj", "phi"}:
        whole = _of_parallel(sizes, kind)
    else:
        whole = _of_root_mean_square(sizes, kind)
    return None if whole is None else (whole, whole)


def _of_root_mean_square(sizes: _Sizes, kind: str) -> int | None:
    """Kinds of which each layer has norms without bias before, and some of them after, its two blocks."""
    layer = 0
    if kind in _NORMED_HEADS or (kind == "glm4_moe" and sizes.on("use_qk_norm")):
        layer += 2 * sizes.head
    elif kind in _NORMED_WIDTHS:
        layer += sizes.queries + sizes.keys
    if kind in _FOUR_NORMS:
        layer += 2 * sizes.hidden
    if kind in {"qwen2", "qwen2_moe"}:
        layer += sizes.queries + 2 * sizes.keys
    elif kind == "internlm2":
        layer += sizes.queries + 2 * sizes.keys + sizes.hidden if sizes.on("bias", usual=True) else 0
    elif kind in _OPEN_BIAS and sizes.on("attention_bias"):
        layer += sizes.queries + 2 * sizes.keys + sizes.hidden
    elif kind in _INPUT_BIAS and sizes.on("attention_bias"):
        layer += sizes.queries + 2 * sizes.keys
    elif kind not in {*_OPEN_BIAS, *_INPUT_BIAS, *_PLAIN}:
        return None
    if sizes.on("mlp_bias"):
        if kind not in {"llama", "granite"}:
            return None
        layer += 2 * sizes.ffn + sizes.hidden
    gates = sizes.hidden * _expert_layers(sizes) if kind == "qwen2_moe" else 0
    return sizes.layers * layer + gates


def _expert_layers(sizes: _Sizes) -> int:
    return sizes.draft.counted("model", "experts", "num_layers") or sizes.layers


def _of_full_bias(sizes: _Sizes, kind: str) -> int | None:
    """Kinds of the form of GPT-2: biases throughout, and a norm of two vectors."""
    switch = {"gpt_neox": "attention_bias", "starcoder2": "use_bias", "opt": "enable_bias"}.get(kind)
    if switch and not sizes.on(switch, usual=True):
        return None
    narrow = sizes.count("word_embed_proj_dim") not in {0, sizes.hidden}
    if kind == "opt" and (narrow or not sizes.on("do_layer_norm_before", usual=True)):
        return None
    layer = sizes.queries + 2 * sizes.keys + sizes.hidden + sizes.ffn + sizes.hidden
    positions = 0
    if kind in _POSITIONS:
        given = sizes.count("n_positions") or sizes.count("max_position_embeddings") or _POSITIONS[kind]
        positions = (given + (2 if kind == "opt" else 0)) * sizes.hidden
    after_table = 2 * sizes.hidden if kind == "bloom" else 0
    return sizes.layers * (layer + 2 * sizes.hidden) + sizes.hidden + positions + after_table


def _of_parallel(sizes: _Sizes, kind: str) -> int | None:
    """Kinds whose attention and feed-forward share one norm."""
    if kind in _ONE_NORM:
        normed = sizes.queries + sizes.keys if kind == "cohere" and sizes.on("use_qk_norm") else 0
        biased = sizes.queries + 2 * sizes.keys + sizes.hidden if sizes.on("attention_bias") else 0
        return sizes.layers * (normed + biased - sizes.hidden)
    if sizes.on("qk_layernorm"):
        return None
    attention = sizes.queries + 2 * sizes.keys + sizes.hidden if kind == "phi" else 0
    layer = attention + sizes.ffn + sizes.hidden  # the bias of the one norm is as long as the norm that is missing
    return sizes.layers * layer + sizes.hidden + sizes.vocabulary


def _of_latent(sizes: _Sizes) -> int | None:
    """Norms over the compressed queries and keys."""
    if sizes.on("attention_bias"):
        return None
    return sizes.layers * (sizes.count("q_lora_rank") + sizes.count("kv_lora_rank"))


def _of_gpt_oss(sizes: _Sizes) -> tuple[int, int]:
    """Biases of attention, router and experts, and one sink for each head."""
    experts = sizes.draft.counted("model", "experts", "num_experts") or 0
    active = sizes.draft.counted("model", "experts", "num_active_experts") or 0
    width = sizes.draft.counted("model", "experts", "ffn_hidden_size") or 0
    biased = sizes.queries + 2 * sizes.keys + sizes.hidden if sizes.on("attention_bias", usual=True) else 0
    layer = biased + sizes.heads + experts
    expert = 2 * width + sizes.hidden
    return sizes.layers * (layer + experts * expert), sizes.layers * (layer + active * expert)
