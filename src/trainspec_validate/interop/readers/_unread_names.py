"""Finds the facts of a plan that settings which no reader knows may decide, by the words in their names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.model.finding import Pointer

_RATE = ("optimizer", "learning_rate")
_SHARDS = (
    r"^(?:use_|enable_)?(?:torch_)?fsdp2?\Z|fsdp\w*(?:strategy|shard|degree)"
    r"|^(?:use_|enable_)?zero(?:[0-9]|_?stage|_?level|_optimi[sz]er)?\Z"
    r"|shard(?:ing)?_(?:strategy|degree|stage|optim|grad|param|weight)"
)
_FINAL = (
    r"(?:^|_)(?:min|final|end|floor)_(?:lr|learning_rate)|(?:^|_)decay_(?:lr|learning_rate)_to"
    r"|(?:^|_)(?:lr|learning_rate)_(?:decay_)?(?:min|final|end|floor|to|ratio)(?:_|\Z)"
)
_TABLE: tuple[tuple[str, str, tuple[Pointer, ...]], ...] = (
    (
        r"(?:^|_)(?:swiglu|geglu|reglu|glu|gated)(?:_|$)",
        r"attention|attn|router|shared|lora|residual",
        (("model", "gated_ffn"), ("model", "ffn_hidden_size")),
    ),
    (
        _FINAL,
        r"warmup|iters|samples|find|proj",
        ((*_RATE, "final"),),
    ),
    (r"warmup", r"batch|bsz|dataset|cache|profil|loss|moment|beta|kl_|router|bench", ((*_RATE, "warmup_steps"),)),
    (
        r"overlap\w*(?:grad|reduce|comm)|(?:grad|reduce|comm)\w*_overlap",
        r"(?:^|_)(?:tp|ep|cp|pp)_|p2p|pipe|moe|a2a|all_?to_?all|expert|context|sequence|embedding",
        (("communication", "overlap_gradients"),),
    ),
    (
        r"overlap\w*(?:param|gather|comm)|(?:param|gather|comm)\w*_overlap",
        r"(?:^|_)(?:tp|ep|cp|pp)_|p2p|pipe|moe|a2a|all_?to_?all|expert|context|sequence|embedding",
        (("communication", "overlap_parameters"),),
    ),
    (r"(?:^|_)(?:un)?tied?_|(?:^|_)shared?_\w*embed|weight_tying", r"position", (("model", "tied_embeddings"),)),
    (r"(?:^|_)seq(?:uence)?_parallel", r"vocab", (("parallelism", "sequence"), ("parallelism", "context"))),
    (
        _SHARDS,
        r"data|checkpoint|ckpt|save|load|file|init|offload|expert",
        (("parallelism", "sharding"),),
    ),
    (
        r"(?:^|_)dist(?:ributed)?_?optim",
        r"data|checkpoint|ckpt|save|load|file|init|offload|expert|instances",
        (("parallelism", "sharding"), ("communication", "overlap_gradients"), ("communication", "overlap_parameters")),
    ),
    (
        r"accum\w*_(?:steps|iters?|batches)\Z|(?:^|_)accum(?:ulate)?_grad\w*\Z|(?:^|_)num_micro_?batches\Z|grad\w*_accum\Z",
        r"eval|fp32|dtype|fusion",
        (("batch", "accumulation_steps"),),
    ),
    (
        r"(?:^|_)n(?:um)?_(?:kv|key_value|query)_(?:heads|groups)|(?:^|_)(?:use_)?(?:gqa|mqa)(?:_|$)|multi_query|grouped?_query",
        r"index",
        (("model", "num_key_value_heads"), ("model", "attention")),
    ),
    (
        r"^(?:use_|enable_|is_|with_)?(?:fp16|float16|bf16|bfloat16|half(?:_precision)?|amp|autocast|mixed_precision)\Z",
        r"\Z.",
        tuple(("precision", key) for key in ("compute", "parameters", "gradients", "reduction")),
    ),
    (
        r"(?:^|_)cp(?:_|\Z)|context_parallel|(?:^|_)ulysses(?:_|\Z)|ring_?attn|ring_attention",
        r"size\Z|shuffle|load_balanc|dataset|(?:^|_)mask",
        (("parallelism", "context_method"),),
    ),
    (
        r"recompute|(?:^|_)remat(?:_|\Z)|(?:activation|grad(?:ient)?)s?_?(?:checkpoint|ckpt)",
        r"save|load|dir|path|loss|interval",
        (("memory", "activation_policy"),),
    ),
    (
        r"(?:^|_)optim(?:izer)?_(?:selection|type|name|class|kind)\Z|(?:^|_)use_(?:\w+_)?(?:adam|adamw|lion|muon|lamb|sgd|adafactor)\Z",
        r"critic|teacher|draft",
        (("optimizer", "name"),),
    ),
    (
        r"schedules?_method|dual_?pipe|(?:^|_)pipeline_schedule",
        r"lr|layers",
        (("parallelism", "schedule"),),
    ),
    (r"clip_?grad|grad\w*_clip|(?:^|_)clip_norm", r"adaptive", (("optimizer", "clipping"),)),
)
"""Words in a name, words with which it is about something else, and what such a setting decides."""
_RULES = tuple((re.compile(words), re.compile(without), pointers) for words, without, pointers in _TABLE)
_ELSEWHERE = re.compile(
    r"(?:^|\.)(?:profil\w*|eval\w*|valid\w*|test\w*|critic\w*|ref|rollout\w*|reward\w*|infer\w*|generat\w*|vllm\w*"
    r"|teacher\w*|draft\w*|vision\w*|data\w*|dist_?ckpt\w*|checkpoint|callbacks?)\."
)
"""Sections about something else than the model and its training."""
_IDLE = (None, "", "none", "None", "no")


def decides(name: str, value: object) -> Iterator[Pointer]:
    """Keys that a setting decides by its name; nothing where its value switches it off.

    >>> list(decides("--t5-swiglu", True)), list(decides("attention_dropout", 0.1))
    ([('model', 'gated_ffn'), ('model', 'ffn_hidden_size')], [])
    >>> list(decides("decay_lr_to", 0.1)), list(decides("profiler.warmup", 3)), list(decides("use_fsdp", False))
    ([('optimizer', 'learning_rate', 'final')], [], [])
    """
    plain = name.lower().lstrip("-").replace("-", "_")[:200]
    last = plain.removesuffix(".enabled").removesuffix(".enable").rpartition(".")[2]
    if value in _IDLE or _ELSEWHERE.search(plain):
        return
    for words, without, pointers in _RULES:
        if words.search(last) and not without.search(last):
            if value is False and pointers[0] != ("model", "tied_embeddings"):
                continue
            if "parallel" in last and value == 1 and value is not True:
                continue
            yield from pointers


_EIGHT_BIT = re.compile(
    r"(?:use|enable|with)_(?:te_)?fp8|(?:^|[._])fp8(?:_(?:enabled?|linears?|training|mlp|attention))?\Z"
)


def asks_for_eight_bit(name: str) -> bool:
    """Whether a switch asks for products in fp8 by its name.

    >>> asks_for_eight_bit("use_fp8_linears"), asks_for_eight_bit("model.fp8"), asks_for_eight_bit("fp8_interval")
    (True, True, False)
    """
    return bool(_EIGHT_BIT.search(name.lower().lstrip("-").replace("-", "_")))
