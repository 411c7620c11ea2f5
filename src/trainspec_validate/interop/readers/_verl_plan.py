"""Turns settings of verl into the plan of the model that is trained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import put_kind, put_lora, put_rate, share_of
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_SOURCE = "volcengine/verl@b178a3cd:verl"
ACTOR = "actor_rollout_ref.actor."
_MODEL = "actor_rollout_ref.model."
_LAYERS = re.compile(r"actor_rollout_ref\.(?:actor|model)\..*\b(?:recompute_|activations_checkpoint_)\w+")
"""Settings that choose the layers that Megatron recomputes, in releases of verl of 2025."""
_ROLLOUT = "actor_rollout_ref.rollout."
_DEGREES = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "context": "context_parallel_size",
    "expert": "expert_model_parallel_size",
    "expert_tensor": "expert_tensor_parallel_size",
    "num_virtual_stages": "virtual_pipeline_model_parallel_size",
}
_SPLITS: Final[tuple[Pointer, ...]] = (
    ("parallelism", "tensor"),
    ("parallelism", "pipeline"),
    ("parallelism", "context"),
)
"""Degrees that ranks are split by before data ranks are; FSDP in verl has the last alone."""
_RATE = ("optimizer", "learning_rate")
_KINDS = {"constant": "constant", "cosine": "cosine", "wsd": "warmup-stable-decay"}
_LONGER = ("data.max_start_length", "data.max_obs_length")
"""Settings of forks that make a sequence of several turns, each of which is bounded."""
_OFFLOADS = ("param_offload", "optimizer_offload", "grad_offload", "offload_policy", "cpu_offload", "offload_params")
_FORMATS = ("mixed_precision", "model_dtype", "dtype")


def write_ppo(draft: Draft, unread: str = "") -> None:
    """The actor of a job of reinforcement learning, and its rollouts; `unread` says what else may set its degrees."""
    _write_model(draft, f"{_MODEL}path")
    prompt, answer = draft.count("data.max_prompt_length"), draft.count("data.max_response_length")
    longer = next((name for name in _LONGER if draft.look(name) is not None), None)
    length = ("model", "sequence_length")
    if longer:
        draft.lacks(length, f"{longer} bounds each turn, and a sequence has several")
    elif prompt and answer:
        how = "max_prompt_length + max_response_length, the longest that is trained on; samples differ in length"
        draft.put(length, prompt + answer, how)
    draft.lacks(length, "data.max_prompt_length + data.max_response_length, which the source does not both state")
    _write_adapters(draft, _MODEL)
    strategy = draft.word(f"{ACTOR}strategy")
    megatron = strategy == "megatron" or any(name.startswith(f"{ACTOR}megatron.") for name in draft.values)
    megatron = megatron or "megatron" in (draft.word("config-name") or "")
    if megatron:
        _write_megatron(draft)
    else:
        _write_sharded(draft, f"{ACTOR}fsdp_config.", f"{ACTOR}ulysses_sequence_parallel_size")
    if unread:
        _leave_degrees_open(draft, _SPLITS if megatron else _SPLITS[-1:], unread)
    _write_recomputation(draft, _MODEL)
    _write_batch(draft)
    _write_optimizer(draft, f"{ACTOR}optim.", f"{ACTOR}grad_clip", "constant")
    _write_warmup(draft)
    draft.look("trainer.total_epochs", "trainer.total_training_steps")
    draft.lacks(("job", "num_steps"), "total_training_steps and epochs count rollouts, and the data may end the job")


def _leave_degrees_open(draft: Draft, splits: Iterable[Pointer], why: str) -> None:
    for place in splits:
        if isinstance(draft.derived.get(place), Default):
            draft.drop([place], why)
        elif draft.get(*map(str, place)) is None:
            draft.lacks(place, why)


def write_tuning(draft: Draft) -> None:
    """The model that `fsdp_sft_trainer` tunes."""
    _write_model(draft, "model.partial_pretrain", "model.path")
    if draft.copy(("model", "sequence_length"), "data.max_length"):
        draft.derived["model", "sequence_length"] = "the longest that is trained on; samples differ in length"
    draft.lacks(("model", "sequence_length"), "no data.max_length is given, and releases have other defaults")
    _write_adapters(draft, "model.")
    _write_sharded(draft, "model.fsdp_config.", "ulysses_sequence_parallel_size")
    _write_recomputation(draft, "model.")
    draft.copy(("batch", "global_sequences"), "data.train_batch_size")
    _put_micro(draft, "data.micro_batch_size_per_gpu", "data.micro_batch_size")
    _write_optimizer(draft, "optim.", "optim.clip_grad", "cosine")
    draft.lacks((*_RATE, "warmup_steps"), "a share of an unknown number")
    draft.look("trainer.total_epochs", "trainer.total_training_steps")
    draft.lacks(("job", "num_steps"), "total_training_steps, or the epochs of the data, whichever end first")


def _write_model(draft: Draft, *names: str) -> None:
    named = draft.word(*names)
    if named and name_of(named):
        draft.put(("model", "name"), name_of(named), f"the path {cut_to(named, 120)}")
    draft.lacks(("batch", "global_tokens"), "samples differ in length")
    draft.lacks(("batch", "loss_reduction"), "the loss of the program decides how it is averaged")
    why = "the configuration of the pretrained model holds it, and is not read"
    for key in ("family", "num_layers", "hidden_size", "num_attention_heads", "vocabulary_size", "ffn_hidden_size"):
        draft.lacks(("model", key), why)


def _write_adapters(draft: Draft, prefix: str) -> None:
    rank, trained = draft.look(f"{prefix}lora_rank"), draft.look(f"{prefix}lora_adapter_path")
    if trained is not None or draft.reasons(f"{prefix}lora_adapter_path"):
        draft.look(f"{prefix}lora_alpha", f"{prefix}target_modules")
        draft.lacks(("lora",), f"the adapter of {prefix}lora_adapter_path is trained on, and is not read")
    elif draft.reasons(f"{prefix}lora_rank"):
        draft.lacks(("lora",), draft.reasons(f"{prefix}lora_rank")[0])
    elif rank not in (None, 0):
        put_lora(draft, f"{prefix}lora_rank", f"{prefix}lora_alpha", f"{prefix}target_modules")


def _write_recomputation(draft: Draft, prefix: str) -> None:
    pointer, flag = ("memory", "activation_policy"), draft.flag(f"{prefix}enable_gradient_checkpointing")
    if draft.flag(f"{prefix}enable_activation_offload"):
        draft.lacks(("memory", "offload"), "enable_activation_offload: the program decides how many layers it moves")
    own = next((name for name in draft.values if _LAYERS.search(name) and draft.look(name) is not None), None)
    if own:
        draft.lacks(pointer, f"{own} decides which layers Megatron recomputes")
    elif flag is not None:
        draft.put(pointer, "full" if flag else "none", f"enable_gradient_checkpointing {str(flag).lower()}")
    reasons = draft.reasons(f"{prefix}enable_gradient_checkpointing")
    draft.lacks(pointer, reasons[0] if reasons else "releases of verl differ in whether they recompute by default")


def _write_sharded(draft: Draft, prefix: str, split: str) -> None:
    """FSDP, with parameters in fp32 that it casts, and ranks that split sequences by heads."""
    draft.copy(("parallelism", "context"), split)
    draft.default(("parallelism", "context"), 1, f"the default of {_SOURCE}/trainer/config")
    if draft.counted("parallelism", "context") not in {None, 1}:
        draft.put(("parallelism", "context_method"), "head-parallel", split.rpartition(".")[2])
    kept, size = draft.flag(f"{prefix}reshard_after_forward"), draft.look(f"{prefix}fsdp_size")
    usual = Default(f"FSDP that shards all ({_SOURCE}/workers/fsdp_workers.py)")
    if kept is not None:
        told = f"reshard_after_forward {str(kept).lower()}"
        draft.put(("parallelism", "sharding"), "parameters" if kept else "gradients", told)
    draft.default(("parallelism", "sharding"), "parameters", usual)
    if size not in (None, -1):
        draft.copy(("parallelism", "sharding_degree"), f"{prefix}fsdp_size")
    stated = [name for name in draft.values if name.startswith(tuple(f"{prefix}{word}" for word in _FORMATS))]
    if stated:
        for key in ("compute", "parameters", "gradients", "reduction", "master_parameters", "optimizer_state"):
            draft.lacks(("precision", key), f"{stated[0]} decides it, and is not read")
    else:
        cast = Default(f"parameters in fp32, which FSDP casts to bf16 ({_SOURCE}/workers/fsdp_workers.py)")
        for key in ("compute", "parameters", "gradients"):
            draft.put(("precision", key), "bf16", cast)
        for key in ("master_parameters", "reduction", "optimizer_state"):
            draft.put(("precision", key), "fp32", cast)
    _leave_offload_open(draft, prefix)


def _leave_offload_open(draft: Draft, prefix: str) -> None:
    """States that the program moves away between the phases of a rollout, or keeps on the host throughout."""
    for name in _OFFLOADS:
        moved = draft.flag(f"{prefix}{name}")
        if moved or draft.reasons(f"{prefix}{name}"):
            why = f"{name}: states are on the host between the phases of a rollout, or throughout, by the program"
            draft.lacks(("memory", "offload"), why)


def _write_megatron(draft: Draft) -> None:
    prefix = f"{ACTOR}megatron."
    for axis, name in _DEGREES.items():
        draft.copy(("parallelism", axis), f"{prefix}{name}")
    if draft.get("parallelism", "tensor") is None:
        draft.lacks(("parallelism", "tensor"), "releases of verl have 1 or 4 by default")
    split = draft.flag(f"{prefix}sequence_parallel")
    if split is not None:
        draft.put(("parallelism", "sequence"), split, f"sequence_parallel {str(split).lower()}")
    whole = draft.flag(f"{prefix}use_distributed_optimizer")
    if whole is not None:
        draft.put(("parallelism", "sharding"), "optimizer" if whole else "none", "use_distributed_optimizer")
    draft.default(("parallelism", "sharding"), "optimizer", f"use_distributed_optimizer, the default of {_SOURCE}")
    for key in ("compute", "parameters", "gradients", "reduction"):
        draft.lacks(("precision", key), "Megatron's configuration in verl decides it, and is not all in the settings")
    _leave_offload_open(draft, prefix)


def _put_micro(draft: Draft, each: str, whole: str, num_responses: int | None = 1) -> None:
    """Sequences of a micro-batch, which older settings give for all data ranks together."""
    pointer = ("batch", "micro_sequences")
    if draft.look(each) is not None or draft.reasons(each):
        draft.look(whole)
        draft.copy(pointer, each)
        return
    number = draft.count(whole)
    for reason in draft.reasons(whole):
        draft.lacks(pointer, f"{whole} over the data ranks: {reason}")
    if number is None:
        return
    nodes, gpus = draft.count("trainer.nnodes"), draft.count("trainer.n_gpus_per_node")
    product = math.prod(draft.counted(*map(str, place)) or 1 for place in _SPLITS)
    ranks = (nodes or 0) * (gpus or 0) // product
    if num_responses != 1:
        why = "older releases multiply it by the responses of a prompt, and newer ones do not"
        draft.lacks(pointer, f"{number} over the data ranks; {why}")
    elif ranks and not any(place in draft.unknown for place in _SPLITS):
        draft.divide(pointer, number, ranks, f"{whole} over {ranks} data ranks")
    draft.lacks(pointer, f"{number} over the data ranks, whose number is not stated")


def _write_batch(draft: Draft) -> None:
    """A step trains on the responses to the prompts of a mini-batch."""
    mini, responses = draft.count(f"{ACTOR}ppo_mini_batch_size"), draft.count(f"{_ROLLOUT}n")
    agents = draft.look(f"{_ROLLOUT}n_agent")
    pointer = ("batch", "global_sequences")
    for name in (f"{ACTOR}ppo_mini_batch_size", f"{_ROLLOUT}n"):
        for reason in draft.reasons(name):
            draft.lacks(pointer, f"ppo_mini_batch_size x rollout.n: {reason}")
    one = Default(f"one response, the default of {_SOURCE}/trainer/config")
    if mini and not draft.reasons(f"{_ROLLOUT}n"):
        how = f"{mini} prompts of a mini-batch x {responses or 1} responses"
        draft.put(pointer, mini * (responses or 1), how if responses else Default(f"{how}: {one}"))
    _put_micro(draft, f"{ACTOR}ppo_micro_batch_size_per_gpu", f"{ACTOR}ppo_micro_batch_size", responses or 1)
    dynamic = draft.flag(f"{ACTOR}use_dynamic_bsz")
    if dynamic or draft.reasons(f"{ACTOR}use_dynamic_bsz"):
        why = "use_dynamic_bsz: a micro-batch takes as many samples as fit into its tokens"
        draft.drop([("batch", "micro_sequences")], why)
        draft.lacks(("batch", "accumulation_steps"), why)
    if dynamic or draft.flag(f"{_MODEL}use_remove_padding"):
        draft.put(("batch", "variable_length"), value=True, how="samples are packed without padding")
    prompts, passes = draft.count("data.train_batch_size"), draft.count(f"{ACTOR}ppo_epochs") or 1
    if prompts is None or draft.reasons(f"{_ROLLOUT}n"):
        return
    draft.put(("rollout", "num_prompts"), prompts, "train_batch_size")
    if agents is not None:
        for key in ("num_responses_per_prompt", "num_updates"):
            draft.lacks(("rollout", key), "n_agent repeats each prompt, as a fork of verl does")
        return
    draft.put(("rollout", "num_responses_per_prompt"), responses or 1, "rollout.n" if responses else one)
    if passes > 1:
        draft.put(("rollout", "num_passes"), passes, "ppo_epochs")
    if mini:
        how = f"{prompts} prompts x {passes} passes over {mini} prompts of a mini-batch"
        draft.divide(("rollout", "num_updates"), prompts * passes, mini, how)


def _write_optimizer(draft: Draft, prefix: str, clipping: str, usual: str) -> None:
    draft.default(("optimizer", "name"), "adamw", f"AdamW of PyTorch ({_SOURCE}/workers/fsdp_workers.py)")
    if (named := draft.word(f"{prefix}optimizer")) is not None and named.lower() not in {"adamw", "adam"}:
        draft.put(("optimizer", "name"), "other", f"the optimizer {cut_to(named, 60)}")
    put_clipping(draft, (1.0, f"{_SOURCE}/trainer/config"), clipping, f"{prefix}clip_grad")
    peak = put_rate(draft, f"{prefix}lr")
    if peak is None:
        return
    words = [f"{prefix}{name}" for name in ("lr_scheduler_type", "lr_scheduler", "warmup_style", "lr_decay_style")]
    kind = put_kind(draft, _KINDS, (usual, f"{_SOURCE}/trainer/config"), *words)
    share = draft.number(f"{prefix}min_lr_ratio")
    if kind == "cosine" and share is not None:
        draft.put((*_RATE, "final"), share_of(share, peak), f"min_lr_ratio {share:g} of the peak")
    elif kind not in {"constant", None}:
        draft.lacks((*_RATE, "final"), "no min_lr_ratio is given, and releases differ")


def _write_warmup(draft: Draft) -> None:
    """Warm-up, which the scheduler counts in rollouts."""
    pointer, updates = (*_RATE, "warmup_steps"), draft.counted("rollout", "num_updates")
    names = [f"{ACTOR}optim.{name}" for name in ("lr_warmup_steps", "lr_warmup_steps_ratio")]
    steps, ratio = draft.look(names[0]), draft.number(names[1])
    for reason in draft.reasons(*names):
        draft.lacks(pointer, reason)
    if isinstance(steps, int) and steps > 0 and updates:
        how = f"{steps} rollouts x {updates} optimizer steps"
        draft.follow(pointer, steps * updates, how, ("rollout", "num_updates"))
    elif steps not in (None, 0, -1) or ratio:
        draft.lacks(pointer, f"{ratio or steps}: the scheduler counts rollouts, and their number is not stated")
    elif draft.get(*_RATE, "peak"):
        told = "no warm-up is asked for"
        draft.default(pointer, 0, f"{told}, the default of {_SOURCE}/trainer/config")
