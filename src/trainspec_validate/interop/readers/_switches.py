"""Distinguishes options that take no value, after which a word that only the caller knows holds further options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trainspec_validate.interop.readers._shell_words import cut_words

SEVERAL: Final = frozenset(
    {
        *("rampup_batch_size", "data_path", "split", "recompute_modules", "train_data_path", "cp_comm_type"),
        *("num_experts", "lora_target_modules", "target_modules", "lora_target", "lora_targets", "modules_to_save"),
    }
)
"""Options that take several words."""
CHANGED_NAME: Final = re.compile(r"--[\w-]*\$(?:\(|\{\w*[^\w}])")
"""An option whose name is a part or a change of a variable, or what a command prints."""
NUMBERED: Final = re.compile(r"\$(?:[0-9]|\{[0-9]\})")
FURTHER: Final = re.compile(
    r"\$[@*]|\$\{?[A-Za-z0-9_]*(?:(?i:args|opts|options|flags|extras?|params)\}?|\[[@*]\]\})|\$\{@.{0,40}"
)
"""Words that are further options, by what they are called."""
ONE_OF_THEM: Final = re.compile(r"\$\{@:(?: -1|[ ]?[1-9][0-9]{0,2}:1)\}|\$\*|\$\{\w+\[\*\]\}|\$\{@:?-[^-{}][^{}]*\}")
"""A part of the words of the caller that is one word, or all words or items as one word, or words with a value to use
where there are none."""
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


_REFERENCE: Final = re.compile(r"\$\w+|\$\{[^{}]*\}|\$\(.*\)|`[^`]*`", re.DOTALL)
"""A word that is one reference as a whole."""
_PRINTED: Final = re.compile(r"\$\((?!\().*\)|`[^`]*`|\$\{\w+\[[@*]\][^{}]*\}", re.DOTALL)
"""A word that is what a command prints, or the items of an array."""
_MADE: Final = re.compile(r"\$\((?!\().*\)|`[^`]*`|\$\{(?:!\w+|\w+(?:[^\w{}\[]|\[[^@*]|\[[@*]\].)).*\}", re.DOTALL)
"""A word that is what a command prints, or a part or a change of a variable."""
_ARGUMENTS: Final = re.compile(r"\$\(arguments(?:-of-[^()\s]*)?\)")
_OF_THE_JOB: Final = re.compile(
    r"\$\{?(?:SLURM|PBS|LSB|OMPI|PMI|MASTER|NODE|HOST|RANK|LAUNCH|CMD|COMMAND|PYTHON|LOG|OUT)"
)
"""References to what the launcher takes, to another command or to a file of its output."""


def may_override(text: str, name: str = "", values: Sequence[str] = ()) -> bool:
    """Whether a word is made of texts that the script or one of its commands has, so that it may repeat an option.

    A variable that the script does not set is empty unless the caller sets it. Right after the name of an option, or
    in a list of values, such a word is a value, but for arguments that are not known, which may be anything.

    >>> [may_override(text) for text in ("$A", "${A[@]}", "${A/x/--x}", "$(options)")]
    [False, False, True, True]
    >>> may_override("$(date)", "lr"), may_override("$(arguments)", "lr"), may_override("$(date)", "lr", ["1"])
    (False, True, True)
    """
    if _ARGUMENTS.fullmatch(text):
        return True
    return (
        bool(_MADE.fullmatch(text))
        and not _OF_THE_JOB.match(text)
        and (not name or (bool(values) and not in_list(values)))
    )


def holds_option(text: str) -> bool:
    """Whether one of the words of a text is an option.

    >>> holds_option("--lr 4"), holds_option("$(join --lr 4)")
    (True, False)
    """
    return any(word.strip("\"'").startswith("--") for word in cut_words(text))


def in_list(values: Sequence[str]) -> bool:
    """Whether an option takes several words; words of the caller may be none."""
    return sum(not _REFERENCE.fullmatch(value) for value in values) > 1


def holds_further(text: str, name: str, values: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether a word that only the caller knows can be nothing else than further options.

    So it is after a switch, after the value of an option that takes one, and wherever no value is due: there a
    reference may also name the program, and what a command prints or an array holds may not. Programs with options in
    underscores, such as those of the Hugging Face Trainer, take `--bf16 True`, so the style of the names decides.

    >>> dashed = ["--bf16", "$A", "--train-iters", "5"]
    >>> holds_further("$A", "bf16", [], dashed), holds_further("$A", "bf16", [], ["--bf16", "--max_steps"])
    (True, False)
    >>> holds_further("$A", "lr", ["1"], dashed), holds_further("$A", "lr", [], dashed)
    (True, False)
    >>> holds_further("$(options)", "", [], dashed), holds_further("$PROGRAM", "", [], dashed)
    (True, False)
    """
    if not name:
        return bool(_PRINTED.fullmatch(text))
    if name in SEVERAL or not _REFERENCE.fullmatch(text) or _OF_THE_JOB.match(text):
        return False
    stems = [word[2:].partition("=")[0] for word in texts if word.startswith("--")]
    dashed = sum("-" in stem for stem in stems) > sum("_" in stem for stem in stems)
    is_switch = _SWITCH.fullmatch(name) and not _VALUED.fullmatch(name)
    return dashed and bool(values or is_switch)
