"""Reads configurations of LitGPT: batch, formats, adapters, optimizer and schedule of a training."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_final, put_lora, put_rate
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "Lightning-AI/litgpt:litgpt"
_HEAD = 256 * 1024
_MARKS = (
    r"(?m)^(?:checkpoint_dir|model_name)[ \t]*:",
    r"(?m)^train[ \t]*:",
    r"(?m)^[ \t]+(?:micro_batch_size|global_batch_size)[ \t]*:",
    r"(?m)^(?:devices|logger_name)[ \t]*:",
    r"(?m)^[ \t]+(?:lr_warmup_steps|lr_warmup_fraction|max_seq_length|save_interval)[ \t]*:",
)
_PRECISIONS = {
    "bf16-true": ("bf16", "bf16"),
    "16-true": ("fp16", "fp16"),
    "32-true": ("fp32", "fp32"),
    "bf16-mixed": ("bf16", "fp32"),
    "16-mixed": ("fp16", "fp32"),
}
"""Formats of products and of parameters by the precision of Lightning Fabric."""
_RATE = ("optimizer", "learning_rate")
_MATRICES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "projection": "o_proj", "head": "lm_head"}
_TARGETS = "lora_targets"


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the settings of a training of LitGPT at its top and below `train`."""
    return all(re.search(mark, text.text[:_HEAD]) for mark in _MARKS)


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes; a checkpoint to begin with shows that it is a fine-tuning.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(_with_targets(values), lines_in(source))
        tunes = draft.look("checkpoint_dir") is not None
        _write_model(draft, tunes=tunes)
        _write_ranks(draft)
        _write_formats(draft)
        _write_optimizer(draft, tunes=tunes)
        _write_length(draft, tunes=tunes)
        draft.copy(("job", "seed"), "seed", least=0)
        draft.lacks(("batch", "loss_reduction"), "the program decides how losses are averaged")
        complete(draft)
        return draft

    return settled(flatten(source.data), make).fragment("litgpt-yaml", text)


def _with_targets(values: dict[str, Any]) -> dict[str, Any]:
    """Settings with the matrices of adapters in one list, in the words of PEFT; without it where it depends."""
    flags = {part: values.get(f"lora_{part}") for part in (*_MATRICES, "mlp")}
    if not all(isinstance(flag, bool) for flag in flags.values()) or flags["mlp"]:
        return values
    return {**values, _TARGETS: [name for part, name in _MATRICES.items() if flags[part]]}


def _write_model(draft: Draft, *, tunes: bool) -> None:
    named = draft.word("model_name", "checkpoint_dir") or ""
    if name := name_of(named.rstrip("/").rpartition("/")[2]):
        draft.put(("model", "name"), name, "" if name == named else f"made of {named[:120]!r}")
    longest = draft.look("train.max_seq_length")
    if not tunes:
        draft.copy(("model", "sequence_length"), "train.max_seq_length")
    elif longest is not None:
        why = f"train.max_seq_length is the bound {longest}; the longest sample decides"
        draft.lacks(("model", "sequence_length"), why)
    if (rank := draft.look("lora_r")) is not None and rank != 0:
        put_lora(draft, "lora_r", "lora_alpha", _TARGETS)
        for part in (*_MATRICES, "mlp"):
            draft.look(f"lora_{part}")
        if draft.look("quantize") is not None:
            draft.lacks(("precision", "frozen_parameters"), "quantize names a format of the library bitsandbytes")


def _write_ranks(draft: Draft) -> None:
    devices, nodes = draft.count("devices"), draft.count("num_nodes") or 1
    draft.copy(("batch", "micro_sequences"), "train.micro_batch_size")
    if devices:
        draft.put(("parallelism", "num_accelerators"), devices * nodes, f"{devices} devices x {nodes} nodes")
    else:
        draft.lacks(("parallelism", "num_accelerators"), "devices is no number: as many as there are")
    if nodes > 1:
        draft.look("train.global_batch_size")
        why = "versions of LitGPT differ in whether global_batch_size is of all nodes or of each"
        for key in ("global_sequences", "accumulation_steps"):
            draft.lacks(("batch", key), why)
    else:
        draft.copy(("batch", "global_sequences"), "train.global_batch_size")
    if devices == nodes == 1:
        draft.put(("parallelism", "sharding"), "none", "one rank")
    else:
        draft.lacks(("parallelism", "sharding"), "the program and its version decide how several ranks shard")
    draft.lacks(("memory", "activation_policy"), "the program and its version decide what is recomputed")


def _write_formats(draft: Draft) -> None:
    word = draft.word("precision")
    found = _PRECISIONS.get(word or "")
    if found is None:
        why = f"precision {cut_to(word, 40)} is not known" if word else "no precision is given: the device decides"
        for key in ("compute", "parameters", "gradients"):
            draft.lacks(("precision", key), why)
        return
    for key, value in zip(("compute", "parameters"), found, strict=True):
        draft.put(("precision", key), value, f"precision {word}")


def _write_optimizer(draft: Draft, *, tunes: bool) -> None:
    named = draft.word("optimizer", "optimizer.class_path")
    if named:
        draft.put(("optimizer", "name"), optimizer_name(named.rpartition(".")[2]), f"the optimizer {cut_to(named, 60)}")
    if not tunes and draft.look("train.max_norm") is not None:
        put_clipping(draft, (0.0, ""), "train.max_norm")
    if put_rate(draft, "optimizer.init_args.lr", "learning_rate") is None:
        return
    program = "finetune" if tunes else "pretrain.py"
    draft.put((*_RATE, "kind"), "cosine", f"the schedule of {_SOURCE}/{program}")
    draft.copy((*_RATE, "warmup_steps"), "train.lr_warmup_steps", least=0)
    if tunes:
        draft.look("train.min_lr")
        draft.lacks(
            (*_RATE, "final"), f"{_SOURCE}/{program} takes no min_lr; its version decides where the cosine ends"
        )
        return
    put_final(draft, "train.min_lr")


def _write_length(draft: Draft, *, tunes: bool) -> None:
    """Tokens of a pre-training; epochs and steps of a fine-tuning bound each other."""
    if tunes:
        draft.look("train.epochs", "train.max_steps")
        draft.lacks(("job", "num_steps"), "epochs of data whose size is not stated, or max_steps where that is less")
    elif (tokens := draft.number("train.max_tokens")) is not None and tokens > 0:
        draft.put(("job", "num_tokens"), int(tokens))
        draft.lacks(("job", "num_steps"), "train.max_tokens over the tokens of a step")


FORMATS = (Format("litgpt-yaml", "configuration of a training of LitGPT", "TrainingPlan", looks_like, read),)
