"""Tells options that take no value, after which a word that only the caller knows holds further options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

SEVERAL: Final = frozenset(
    {
        *("rampup_batch_size", "data_path", "split", "recompute_modules", "train_data_path", "cp_comm_type"),
        *("num_experts", "lora_target_modules", "target_modules", "lora_target", "lora_targets", "modules_to_save"),
    }
)
"""Options that take several words."""
_SWITCH: Final = re.compile(
    r"(?:no|use|disable|enable|untie|overlap|apply|skip|calculate|check|accumulate|reset|eod|mock|log|add|init_method)_\w+"
    r"|bf16|fp16|fp8|swiglu|squared_relu|finetune|sequence_parallel|group_query_attention|multi_latent_attention"
    r"|qk_layernorm|recompute_activations|checkpoint_activations|moe_grouped_gemm|async_save|auto_detect_ckpt_format"
    r"|manual_gc|tp_comm_overlap|defer_embedding_wgrad_compute|deepspeed|exit_on_missing_checkpoint"
)
"""Options of Megatron-LM and its forks that only switch something on or off: NVIDIA/Megatron-LM@d98e8a64."""
_VALUED: Final = re.compile(
    r"(?:use_checkpoint_args_from|log_interval|log_\w*(?:dir|file|path|name|level)|check_\w*(?:interval|every\w*|steps)"
    r"|eod_\w*(?:id|token)|apply_\w*(?:every|prob\w*)|skip_\w*(?:steps|samples|iters\w*|batches)|no_\w*_freq"
    r"|add_\w*(?:tokens?|prob\w*)|init_method_std|reset_\w*(?:steps|interval)|no_weight_decay_cond_type)"
)
"""Names that begin like those and take a value."""


def is_switch(name: str, texts: Sequence[str]) -> bool:
    """Whether an option takes no value in a command that writes its options as Megatron-LM does, with dashes.

    Programs with options in underscores, such as those of the Hugging Face Trainer, take `--bf16 True`.

    >>> is_switch("bf16", ["--bf16", "$A", "--train-iters", "5"]), is_switch("bf16", ["--bf16", "$A", "--max_steps"])
    (True, False)
    >>> is_switch("log_interval", ["--log-interval", "$A"]), is_switch("seed", ["--seed", "$A", "--train-iters", "5"])
    (False, False)
    """
    stems = [text[2:].partition("=")[0] for text in texts if text.startswith("--")]
    dashed = sum("-" in stem for stem in stems) > sum("_" in stem for stem in stems)
    return dashed and bool(_SWITCH.fullmatch(name)) and not _VALUED.fullmatch(name)
