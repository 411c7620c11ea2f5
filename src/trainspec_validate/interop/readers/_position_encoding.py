"""Puts the way in which a model encodes positions into a plan, where settings or the kind of model state it."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.model.values import cut_to

POSITIONS = ("model", "positions")
_WORDS = {
    **dict.fromkeys(("learned", "learned_absolute", "absolute"), "learned"),
    **dict.fromkeys(("rope", "rotary", "mrope", "yarn"), "rotary"),
    **dict.fromkeys(("relative", "rpe"), "relative-bias"),
    **dict.fromkeys(("none", "nope"), "none"),
    "alibi": "linear-bias",
    "sinusoidal": "sinusoidal",
}
"""Words of frameworks; `relative` of Megatron-LM and `rpe` of GPT-NeoX are the bias of T5."""
_ROTARY = frozenset(
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "deepseek_v2"),
        *("deepseek_v3", "olmo2", "olmo3", "internlm2", "glm4", "glm4_moe", "gpt_oss", "gemma", "gemma2"),
        *("gemma3_text", "granite", "granitemoe", "cohere", "starcoder2", "gpt_neox", "gptj", "phi"),
    }
)
_LEARNED = frozenset({"gpt2", "opt", "gpt_bigcode"})
"""Kinds of transformers whose classes have one encoding (huggingface/transformers:src/transformers/models)."""


def put_word(draft: Draft, word: str | None, how: str) -> None:
    """The encoding that a framework names by a word; a word that is not known leaves it open.

    >>> draft = Draft({})
    >>> put_word(draft, "rope", "position_embedding_type rope")
    >>> draft.get("model", "positions")
    'rotary'
    """
    found = _WORDS.get((word or "").rpartition(".")[2].casefold())
    if found:
        draft.put(POSITIONS, found, how)
    elif word:
        draft.lacks(POSITIONS, f"{how}, which this reader does not know")


def put_of_kind(draft: Draft, kind: str, names: list[str]) -> None:
    """The encoding of a kind of model of transformers; `names` are its settings `alibi` and `no_rope_layers`."""
    alibi, without = names
    if draft.look(without):
        draft.lacks(POSITIONS, f"{without}: some layers have rotary positions and others none")
    elif kind in _ROTARY:
        draft.put(POSITIONS, "rotary", f"model_type {kind}")
    elif kind in _LEARNED:
        draft.put(POSITIONS, "learned", f"model_type {kind}")
    elif kind == "bloom":
        draft.put(POSITIONS, "linear-bias", f"model_type {kind}")
    elif kind == "falcon" and (flag := draft.flag(alibi)) is not None:
        draft.put(POSITIONS, "linear-bias" if flag else "rotary", f"alibi {str(flag).lower()}")


def put_megatron(draft: Draft) -> None:
    """The encoding that arguments of Megatron-LM name; its default is left out."""
    word = draft.word("position_embedding_type")
    some = ("no_rope_freq", "no_rope_frequency")
    if draft.look(*some) is not None or draft.reasons(*some):
        draft.lacks(POSITIONS, "no_rope_freq: some layers have rotary positions and others none")
    elif draft.flag("use_rotary_position_embeddings"):
        draft.put(POSITIONS, "rotary", "use_rotary_position_embeddings")
    elif draft.flag("use_alibi_position_embeddings"):
        draft.put(POSITIONS, "linear-bias", "use_alibi_position_embeddings")
    elif word:
        put_word(draft, word, f"position_embedding_type {cut_to(word, 40)}")
    for reason in draft.reasons("position_embedding_type"):
        draft.lacks(POSITIONS, reason)
