"""Judges which weights a Trainer's job holds: loaded in a format, quantised, or with adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.readers._plan_parts import Default, Draft
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_LOADED = (
    *("torch_dtype", "dtype", "model_dtype", "model.torch_dtype", "model.dtype"),
    *("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"),
)
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "float32": "fp32", "fp32": "fp32"}
STORED = ("parameters", "master_parameters", "gradients", "reduction", "optimizer_state")
"""Formats of a plan that differ between weights that are trained and weights that are frozen or quantised."""
_SWITCHES = frozenset({"use_peft", "use_lora", "lora_enable", "use_dora", "use_qlora"})
"""Switches of adapters."""
_VARIANTS = frozenset({"use_dora", "use_qlora"})
"""Switches of a kind of adapter; one that is off says nothing of the others."""
_QUANTISED = frozenset({"load_in_4bit", "load_in_8bit", "q_lora", "qlora"})
_METHODS = frozenset({"finetuning_type", "train_type", "tuner_type", "sft_type", "adapter", "peft_type", "peft_method"})
_WHOLE = frozenset({"full", "none", "false", ""})
_MARKS = frozenset({"lora_r", "lora_rank", "lora_alpha", "lora_target_modules", "lora_target"})
_BITS = frozenset({"quantization_bit", "quant_bits", "bits"})
_ADAPTERS = re.compile(r"(?:^|_)(?:q?lora|dora|peft)(?:_|\Z)")
"""Parts of the names of further arguments that ask for adapters."""
_LATENT = re.compile(r"(?:[qkvo]|qk|kv)_lora_rank")
"""Sizes of latent attention, which is no adapter."""
_FROZEN = re.compile(r"(?:un)?freeze(?:_\w+)?|\w+_(?:un)?freeze|tune_\w+|trainable_\w+|only_train_\w+")
"""Names of arguments that leave a part of the model as it is."""
_TUNED = re.compile(r"tune_\w+")
_LANGUAGE = frozenset({"tune_language_model", "tune_mm_llm", "tune_llm"})
"""Switches of the language model among those of each part of a model that also sees."""
_FACTORY = frozenset(
    {
        *("finetuning_type", "template", "cutoff_len", "use_muon", "use_galore", "use_badam", "enable_liger_kernel"),
        *("dataset_dir", "overwrite_cache", "plot_loss", "pref_loss", "lora_target", "quantization_bit", "val_size"),
    }
)
"""Arguments that LLaMA-Factory adds to those of the Trainer (hiyouga/LLaMA-Factory:src/llamafactory/hparams)."""
_TRL = frozenset(
    {
        *(
            "max_completion_length",
            "num_generations",
            "sft_model_path",
            "reward_model_path",
            "total_episodes",
            "kl_coef",
        ),
        *(
            "missing_eos_penalty",
            "response_length",
            "dataset_text_field",
            "max_prompt_length",
            "loss_type",
            "rpo_alpha",
        ),
        *("desirable_weight", "undesirable_weight", "dataset_num_proc", "num_mini_batches", "vllm_mode", "use_vllm"),
    }
)
"""Arguments of the trainers of TRL, which extend those of transformers (huggingface/trl:trl/trainer)."""
_TRL_PROGRAM = re.compile(r"(?:^|[_-])(?:sft|dpo|ppo|grpo|kto|orpo|cpo|rloo|gkd|trl)(?:[_.-]|\Z)", re.IGNORECASE)
_STAGES = frozenset({"pt", "sft", "rm", "ppo", "dpo", "kto"})


def loaded_format(draft: Draft) -> tuple[str, str]:
    """The format in which the weights are loaded, and the setting that says so; both empty where none does.

    The format is empty where a setting names none, such as `auto`.
    """
    if draft.flag("pure_bf16"):
        return "bf16", "pure_bf16"
    name = next((name for name in _LOADED if draft.look(name) is not None or draft.reasons(name)), "")
    word = str(draft.look(name) or "").removeprefix("torch.") if name else ""
    return _DTYPES.get(word, ""), name


def write_loaded(draft: Draft) -> bool:
    """Formats where no switch is set, but the weights are loaded in a format; whether that is so."""
    loaded, name = loaded_format(draft)
    if not name or loaded == "fp32":
        return False
    word = "bfloat16" if name == "pure_bf16" else str(draft.values.get(name))[:20]
    why = f"{name} loads the weights in {word}; the program decides what else is cast"
    if loaded:
        draft.put(("precision", "compute"), loaded, f"{name}: the format of the weights")
    for key in ("compute", "parameters", "gradients", "reduction"):
        draft.lacks(("precision", key), why)
    return True


def drop_untrained(draft: Draft) -> bool:
    """Leave the formats of stored tensors open where the job trains adapters, or weights that are quantised.

    Returns whether it does.
    """
    name = _partial(draft)
    if name is None:
        return False
    draft.used.add(name)
    asked = "a part of the weights" if draft.values[name] == "freeze" else "adapters or quantised weights"
    why = f"{name} asks for {asked}; the file does not state the format of what is trained"
    places = [("precision", key) for key in STORED]
    draft.drop(places, why)
    draft.lacks(("precision", "frozen_parameters"), _quantised(draft) or why)
    draft.remark(
        f"{name}: only some weights are trained, or they are quantised; a plan states that in "
        "lora and precision.frozen_parameters, of which only the first is read from this file",
        name,
    )
    return True


def _quantised(draft: Draft) -> str:
    """How the frozen weights are stored, where a setting quantises them; empty where none does."""
    last = {name.rpartition(".")[2]: (name, value) for name, value in draft.values.items() if value is not None}
    for key in sorted((_QUANTISED | _BITS) & last.keys()):
        name, value = last[key]
        if _is_off(value) or (key in _BITS and value not in (4, 8)):
            continue
        bits = value if key in _BITS else 8 if "8" in key else 4
        word = "int8" if bits == 8 else "four bits, NF4 or FP4,"
        return f"{name} stores the matrices of frozen layers in {word} and the other weights as they are loaded"
    return ""


def leave_frozen_open(draft: Draft, given: Mapping[str, Any] | None = None) -> None:
    """Leave open how many parameters are trained, where an argument freezes a part of the model, or may freeze it."""
    values = draft.values if given is None else given
    tuned = {name: not _is_off(values[name]) for name in values if _TUNED.fullmatch(name)}
    language = tuned.keys() & _LANGUAGE
    names = sorted(name for name in values if _FROZEN.fullmatch(name) and not _is_off(values[name]))
    if language:  # each part has a switch, so that the parts whose switch is off are the frozen ones
        off = sorted(name for name, on in tuned.items() if not on)
        names = off + [name for name in names if name not in tuned]
        draft.used.update(tuned)
    parts = str(values.get("mm_tunable_parts") or "").split(",")
    if any(parts) and not all(any(word in part for part in parts) for word in ("vision", "adapter", "language")):
        names.append("mm_tunable_parts")
    names.sort(key=lambda name: values[name] != "frozen")
    if names:
        draft.lacks(("num_parameters_trained",), f"{cut_to(names[0], 60)} leaves a part of the model as it is")


def leave_adapters_open(draft: Draft, program: str) -> None:
    """Leave open whether adapters are trained where a program whose usual method is LoRA is given no method.

    Source: modelscope/ms-swift:swift/arguments/base_args/base_args.py, `tuner_type`;
    hiyouga/LLaMA-Factory:src/llamafactory/hparams/finetuning_args.py, `finetuning_type`.
    """
    last = {name.rpartition(".")[2] for name, value in draft.values.items() if value is not None}
    if not last & _METHODS and draft.get("lora") is None:
        draft.lacks(("lora",), f"no method of tuning is given, and {program} trains adapters by default")


def is_factory(draft: Draft) -> bool:
    """Whether the arguments are those of LLaMA-Factory."""
    named = {name for name, value in draft.values.items() if value is not None}
    staged = draft.values.get("stage") in _STAGES if isinstance(draft.values.get("stage"), str) else False
    return "finetuning_type" in named or len(named & _FACTORY) + staged >= 2


def leave_trl_open(draft: Draft, program: str | None) -> None:
    """Leave open the defaults that configurations of TRL change, where the arguments or the program show TRL.

    Source: huggingface/trl:trl/trainer/*_config.py: `learning_rate`, `gradient_checkpointing` and `bf16`.
    """
    named = {name for name, value in draft.values.items() if value is not None} & _TRL
    trained = _TRL_PROGRAM.search(program or "")
    if not named and not trained:
        return
    why = f"{min(named) if named else program} is of TRL, whose configurations have defaults of their own"
    changed: set[Pointer] = {("optimizer", "learning_rate", "peak")}
    if draft.values.get("gradient_checkpointing") is None:
        changed.add(("memory", "activation_policy"))
    compute = draft.derived.get(("precision", "compute"))
    weak = [
        place
        for place, how in draft.derived.items()
        if isinstance(how, Default) and (place in changed or (place[0] == "precision" and isinstance(compute, Default)))
    ]
    draft.drop(weak, why)


def _partial(draft: Draft) -> str | None:
    """The setting by which a job trains adapters or quantised weights; None where none does."""
    last = {name.rpartition(".")[2]: name for name in draft.values if draft.values[name] is not None}
    values = {key: draft.values[name] for key, name in last.items()}
    whole = any(_is_off(values[key]) for key in (_SWITCHES - _VARIANTS) & values.keys()) or any(
        str(values[key]).lower() in _WHOLE for key in _METHODS & values.keys()
    )
    asked = [key for key in sorted(_QUANTISED & values.keys()) if not _is_off(values[key])]
    asked += [key for key in sorted(_BITS & values.keys()) if values[key] in (4, 8)]
    if not whole:
        known = (_SWITCHES | _METHODS | _MARKS) & values.keys()
        asked += sorted(key for key in known if key not in _VARIANTS or not _is_off(values[key]))
        named = [key for key in values if _ADAPTERS.search(key) and not _LATENT.fullmatch(key)]
        asked += sorted(key for key in named if not _is_off(values[key]))
    return last[asked[0]] if asked else None


def _is_off(value: Any) -> bool:
    return value is False or str(value).lower() in {"false", "0", "no", "none", ""}
