"""Counts the sequences of a batch whose samples are a chosen and a rejected answer, for programs on the Trainer."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._huggingface_training import is_example, shows_trainer
from trainspec_validate.interop.readers._huggingface_weights import is_factory
from trainspec_validate.interop.readers._plan_parts import Draft, like, shown
from trainspec_validate.model.values import cut_to

_FACTORY = {
    **dict.fromkeys(("dpo", "orpo", "rm"), True),
    **dict.fromkeys(("pt", "sft", "kto", "ppo"), False),
}
"""Stages of LLaMA-Factory, and whether `PairwiseDataCollatorWithPadding` makes two sequences of a sample.

Source: hiyouga/LLaMA-Factory:src/llamafactory/data/collator.py and train/*/workflow.py; `pref_loss` of stage `dpo`
selects a loss and not a collator.
"""
_AXOLOTL = {
    **dict.fromkeys(("dpo", "ipo", "orpo", "simpo"), True),
    **dict.fromkeys(("kto", "grpo", "gdpo"), False),
}
"""Values of `rl` of axolotl, and whether its trainer, which is one of TRL, takes pairs."""
_SWIFT = {
    **dict.fromkeys(("dpo", "orpo", "simpo", "cpo", "rm"), True),
    **dict.fromkeys(("kto", "ppo", "grpo", "gkd"), False),
}
"""Values of `rlhf_type` of ms-swift (modelscope/ms-swift:swift/llm/template/base.py, `data_collator`)."""
_TRL = re.compile(r"(?:dpo(?:_vlm)?|orpo|cpo|reward_modeling)\.py|(?:trl |trl\.scripts\.)(?:dpo|orpo|cpo|reward)")
"""Examples and subcommands of TRL whose trainers concatenate the chosen and the rejected answers.

Source: huggingface/trl:trl/cli.py and trl/trainer.
"""
_TRL_UNPAIRED = re.compile(r"(?:trl |trl\.scripts\.)(?:sft|kto|grpo|rloo|gkd|ppo)")
"""Subcommands of TRL that take single answers; `kto` has a label for each."""
_OPEN = re.compile(r"trl\b.*|swift (?:rlhf|\$.*)", re.DOTALL)
"""Commands whose subcommand is not known, and `swift rlhf`, whose type is an argument with a default."""
_SWIFT_UNPAIRED = re.compile(r"swift (?:sft|pt)")
_SWIFT_PAIRED = re.compile(r"swift (?:dpo|orpo|simpo|cpo)")
"""Subcommands of the first releases of ms-swift."""
_PREFERENCES = re.compile(r"(?:^|[_.-])(?:dpo|orpo|cpo|simpo|rm|rlhf|reward|preference)(?:[_.-]|\Z)", re.IGNORECASE)
_LOSSES = frozenset(
    {
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_pair"),
        *("discopop", "apo_zero", "apo_down", "simpo"),
    }
)
"""Values of `loss_type` that trainers of TRL with pairs have and its other trainers have not."""
_UNPAIRED = frozenset(
    {
        *("num_generations", "max_completion_length", "response_length", "max_new_tokens", "lmbda"),
        *("desirable_weight", "undesirable_weight"),
    }
)
"""Arguments of trainers of TRL that have `beta` and take no pairs: those that generate, and KTO."""
_NAMES = ("output_dir", "run_name", "hub_model_id")
_COUNTS = ("micro_sequences", "global_sequences")


def count_pairs(draft: Draft, program: str | None) -> None:
    """Count two sequences for each sample of pairs; leave the counts open where a sample may be a pair."""
    setting, paired = _paired(draft, program)
    if paired is not False:
        double(draft, setting, sure=bool(paired))


def double(draft: Draft, setting: str, *, sure: bool) -> None:
    """Count two sequences for each sample, or leave the counts open where that is not `sure`; `setting` says why."""
    for key in _COUNTS:
        place, number = ("batch", key), draft.counted("batch", key)
        if number is None:
            continue
        if sure:
            how = f"{number} pairs of a chosen and a rejected answer ({setting})"
            draft.put(place, 2 * number, like(draft.derived.get(place, ""), how))
        else:
            draft.drop(
                [place], f"{number} samples, which are one sequence each, or two where they are pairs: {setting}"
            )


def _paired(draft: Draft, program: str | None) -> tuple[str, bool | None]:
    """What shows how many sequences a sample is, and whether it is a pair; None where that is open."""
    kinds = (("stage", _FACTORY), ("rlhf_type", _SWIFT), ("rl", _AXOLOTL))
    for name, known in kinds:
        word, reasons = draft.word(name), draft.reasons(name)
        if word is None and not reasons:
            continue
        if name == "stage" and not is_factory(draft):
            paired = None if _FACTORY.get(word or "") else False
            return f"stage is {shown(word)}, and the program decides", paired
        return (reasons or [f"{name}: {word}"])[0], None if reasons else known.get(word or "")
    if draft.flag("reward_model") and draft.look("base_model", "model_name_or_path"):
        return "reward_model", True
    if is_factory(draft) and draft.word("pref_loss"):
        return "pref_loss is for stage dpo, and the file names no stage", None
    return _paired_by_trainer(draft, program)


def _paired_by_trainer(draft: Draft, program: str | None) -> tuple[str, bool | None]:
    """What shows that a trainer of TRL or ms-swift takes pairs: its program, its arguments, or names of the job."""
    if program and program.endswith(".py") and _TRL.fullmatch(program) and not shows_trainer(draft):
        return f"{program} has the name of an example of TRL, and no argument shows that it is that", None
    if program and (_TRL.fullmatch(program) or _SWIFT_PAIRED.fullmatch(program)):
        return f"{program} of {'TRL' if 'swift' not in program else 'ms-swift'}", True
    if program and (_TRL_UNPAIRED.fullmatch(program) or _SWIFT_UNPAIRED.fullmatch(program)):
        return program, False
    if program == "swift rlhf":
        return "swift rlhf takes pairs for its default, rlhf_type dpo, and the command names no type", None
    if program and (_PREFERENCES.search(program) or _OPEN.fullmatch(program)):
        return f"{cut_to(program, 60)} decides", None
    if (named := _named_so(draft)) and not is_example(program):
        return named, None
    if draft.number("beta") is None or any(draft.values.get(name) is not None for name in _UNPAIRED):
        return "", False
    loss = draft.values.get("loss_type")
    if loss in _LOSSES and not program:
        return f"loss_type {loss} of TRL", True
    return "beta is an argument of trainers that take pairs, as for DPO, and of others", None


def _named_so(draft: Draft) -> str:
    """A name of the job or of its output after a method that takes pairs; empty where none is."""
    for name in _NAMES:
        value = draft.values.get(name)
        if isinstance(value, str) and _PREFERENCES.search(value.rstrip("/").rpartition("/")[2][:200]):
            return f"{name} is {value[-60:]}, after a method that takes pairs, and no program is known"
    return ""
