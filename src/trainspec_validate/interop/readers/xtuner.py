"""Reads Python configurations of xtuner by their literal assignments: model, batch, adapters and schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._literal_assignments import assignments
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_lora, put_rate
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten
from trainspec_validate.interop.readers._shell_unread import leave_open
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "InternLM/xtuner@b934f462:xtuner"
_HEAD = 256 * 1024
_MARKS = (
    r"(?m)^(?:from|import)[ \t]+xtuner\b",
    r"(?m)^optim_wrapper[ \t]*=[ \t]*dict\(",
    r"(?m)^train_dataloader[ \t]*=[ \t]*dict\(",
)
_PLAIN = frozenset({"sequence_parallel_size", "max_length"})
"""Names at the top that are settings themselves, and not only values of others."""
_RATE = ("optimizer", "learning_rate")
_LANGUAGE = "SupervisedFinetune"
_OF_LAUNCH = "the command may name a configuration of DeepSpeed, which decides it then"


def looks_like(text: ForeignText) -> bool:
    """Whether a text is a Python configuration of a training of xtuner."""
    return all(re.search(mark, text.text[:_HEAD]) for mark in _MARKS)


def read(text: ForeignText) -> Fragment:
    """The plan that the literal values of a configuration describe; no code of it is run.

    Raises:
        ForeignFormatError: it is no Python file.
    """
    found, lines, composed = assignments(text.text)
    values = {
        name: value
        for name, value in flatten(found).items()
        if "." in name or name in _PLAIN or name == "param_scheduler"
    }

    def places(names: Iterable[str]) -> Mapping[str, int]:
        return {name: lines[top] for name in names if (top := name.partition(".")[0]) in lines}

    def make(given: dict[str, Any]) -> Draft:
        draft = Draft(given, places)
        _write_model(draft)
        _write_batch(draft)
        _write_optimizer(draft)
        _write_rest(draft)
        if composed:
            why = "another file, of which the configuration is composed and which is not read, may set it"
            draft.drop_defaults(why)
        complete(draft)
        if composed:
            leave_open(draft, why)
        return draft

    return settled(values, make).fragment("xtuner-python", text)


def _write_model(draft: Draft) -> None:
    named = draft.word("model.llm.pretrained_model_name_or_path")
    if named and name_of(named):
        draft.put(("model", "name"), name_of(named), f"pretrained_model_name_or_path {cut_to(named, 120)}")
    why = "the configuration of the pretrained model holds it, and is not read"
    for key in ("family", "num_layers", "hidden_size", "num_attention_heads", "vocabulary_size", "ffn_hidden_size"):
        draft.lacks(("model", key), why)
    length, packed = ("model", "sequence_length"), draft.flag("train_dataloader.dataset.pack_to_max_length")
    if draft.copy(length, "train_dataloader.dataset.max_length", "max_length") and not packed:
        draft.derived[length] = "the longest that is trained on; samples differ in length"
    if not packed:
        draft.lacks(("batch", "global_tokens"), "samples differ in length")
    if any(name.startswith("model.lora.") for name in draft.values):
        put_lora(draft, "model.lora.r", "model.lora.lora_alpha", "model.lora.target_modules")
    for bits in (4, 8):
        if draft.flag(f"model.llm.quantization_config.load_in_{bits}bit"):
            draft.lacks(("precision", "frozen_parameters"), f"load_in_{bits}bit stores the linear layers alone")
    recomputed = draft.flag("model.use_activation_checkpointing")
    usual = Default(f"use_activation_checkpointing, the default of {_SOURCE}/model/sft.py")
    policy = "none" if recomputed is False else "full"
    how = usual if recomputed is None else f"use_activation_checkpointing {str(recomputed).lower()}"
    draft.put(("memory", "activation_policy"), policy, how)


def _write_batch(draft: Draft) -> None:
    """A sample is a sequence where the model is tuned on one answer; other programs make several of it."""
    draft.copy(("parallelism", "context"), "sequence_parallel_size")
    draft.default(("parallelism", "context"), 1, f"the default of {_SOURCE}")
    if draft.counted("parallelism", "context") not in {None, 1}:
        draft.put(("parallelism", "context_method"), "head-parallel", "sequence_parallel_size")
    draft.copy(("batch", "micro_sequences"), "train_dataloader.batch_size")
    draft.copy(("batch", "accumulation_steps"), "optim_wrapper.accumulative_counts")
    kind = (draft.word("model.type") or "").rpartition(".")[2]
    if kind != _LANGUAGE:
        told = f"{kind[:60] or 'the model'} makes sequences of a sample in its own way"
        draft.drop([("batch", "micro_sequences"), ("model", "sequence_length")], told)
        draft.drop([("memory", "activation_policy")], f"{kind[:60] or 'the model'} decides what it recomputes")
    for key in ("sharding", "num_accelerators"):
        draft.lacks(("parallelism", key), "the command that starts the job decides it")
    for key in ("compute", "parameters", "gradients", "reduction"):
        word = draft.word("optim_wrapper.dtype")
        draft.lacks(
            ("precision", key), f"dtype {cut_to(word, 20)} by optim_wrapper; {_OF_LAUNCH}" if word else _OF_LAUNCH
        )
    draft.lacks(("batch", "loss_reduction"), "the model decides how losses are averaged")


def _write_optimizer(draft: Draft) -> None:
    word = draft.word("optim_wrapper.optimizer.type")
    if word:
        plain = word.rpartition(".")[2]
        draft.put(("optimizer", "name"), optimizer_name(plain), f"the optimizer {cut_to(word, 60)}")
    put_clipping(draft, (0.0, ""), "optim_wrapper.clip_grad.max_norm")
    if put_rate(draft, "optim_wrapper.optimizer.lr") is None:
        return
    _write_schedule(draft)
    draft.lacks((*_RATE, "kind"), "the schedule is made by code, and not of literals")
    draft.lacks((*_RATE, "warmup_steps"), "a share of epochs whose size is not stated")


def _write_schedule(draft: Draft) -> None:
    """The form of one scheduler of MMEngine, or of one behind a linear warm-up."""
    alone, listed = draft.word("param_scheduler.type"), draft.look("param_scheduler")
    parts = [part for part in (listed[:8] if isinstance(listed, list) else []) if isinstance(part, dict)]
    if alone:
        parts = [{"type": alone, "eta_min": draft.look("param_scheduler.eta_min")}]
    named = [str(part.get("type")).rpartition(".")[2] for part in parts]
    if not named:
        return
    shown = f"schedulers {cut_to(', '.join(named), 120)}"
    kinds = {"CosineAnnealingLR": "cosine", "ConstantLR": "constant"}
    kind = kinds.get(named[-1], "other") if named[:-1] in ([], ["LinearLR"]) else "other"
    draft.put((*_RATE, "kind"), kind, shown)
    final = parts[-1].get("eta_min")
    if kind == "cosine" and isinstance(final, int | float) and not isinstance(final, bool):
        draft.put((*_RATE, "final"), float(final), "eta_min")
    if len(named) == 1 and kind != "other":
        draft.put((*_RATE, "warmup_steps"), 0, f"{shown} alone, which has no warm-up")


def _write_rest(draft: Draft) -> None:
    draft.copy(("job", "seed"), "randomness.seed", least=0)
    draft.copy(("memory", "num_loader_workers"), "train_dataloader.num_workers", least=0)
    draft.look("train_cfg.max_epochs", "train_cfg.max_iters")
    draft.lacks(("job", "num_steps"), "epochs of data whose size is not stated, or iterations of micro-batches")


FORMATS = (Format("xtuner-python", "Python configuration of xtuner", "TrainingPlan", looks_like, read),)
