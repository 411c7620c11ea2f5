"""Reads configurations of NeMo RL: the policy that is trained, and the rollouts that it learns from."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_lora, put_rate
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, resolved
from trainspec_validate.interop.readers._shell_unread import leave_open
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "NVIDIA-NeMo/RL@7ea279ab:nemo_rl"
_HEAD = 256 * 1024
_POLICY = re.compile(r"(?m)^policy[ \t]*:")
_OWN = re.compile(
    r"(?m)^[ \t]+(?:train_global_batch_size|train_micro_batch_size|dtensor_cfg|megatron_cfg|max_total_sequence_length)"
    r"[ \t]*:"
)
_TORCH, _MEGATRON = "policy.dtensor_cfg.", "policy.megatron_cfg."
_DEGREES = {
    _TORCH: {"tensor": "tensor_parallel_size", "context": "context_parallel_size"},
    _MEGATRON: {
        "tensor": "tensor_model_parallel_size",
        "pipeline": "pipeline_model_parallel_size",
        "context": "context_parallel_size",
        "expert": "expert_model_parallel_size",
    },
}
_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_RATE = ("optimizer", "learning_rate")
_ROLLOUTS = ("grpo", "reinforce", "distillation", "ppo")
"""Sections of algorithms that generate what they train on."""
_PAIRED = ("dpo", "rm")
"""Sections of algorithms whose samples are a chosen and a rejected answer, both of which are trained on."""
_OTHERS = re.compile(r"(?:teacher|value|critic|draft|env|logger|checkpointing|policy\.generation)(?:\.|\Z)")
"""Sections about other models, or about what a plan has no place for."""
_STEADY = re.compile(r"torch\.optim\.lr_scheduler\.(?:LinearLR|ConstantLR)")


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the section of a policy with settings of NeMo RL."""
    head = text.text[:_HEAD]
    return bool(_POLICY.search(head)) and bool(_OWN.search(head))


def read(text: ForeignText) -> Fragment:
    """The plan of the policy that a configuration trains; a file that it starts from may set what it lacks.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)
    found = resolved(flatten(source.data))
    others = [name for name in found if _OTHERS.match(name)]

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        base = draft.look("defaults")
        _write_model(draft)
        prefix = _backend(draft)
        if prefix:
            _write_degrees(draft, prefix)
        paired = _write_batch(draft, base=bool(base))
        _write_formats(draft, prefix)
        (_write_megatron if prefix == _MEGATRON else _write_torch)(draft)
        _write_rollouts(draft, paired=paired)
        _write_job(draft)
        why = f"{cut_to(str(base), 80)}, which it starts from and which is not read, may set it" if base else ""
        _leave_degrees_open(draft, prefix, why)
        world, told = _world(draft)
        if base:
            draft.remark(f"the configuration starts from {cut_to(str(base), 120)}, which is not read", "defaults")
            draft.drop_defaults(why)
        complete(draft, world, told)
        if base:
            leave_open(draft, why)
        draft.used.update(others)
        return draft

    draft = settled(found, make)
    second = next((name.partition(".")[0] for name in others if name.startswith(("teacher", "value", "critic"))), None)
    if second:
        draft.remark(f"{second} is a second model of the job; the plan is that of the policy")
    return draft.fragment("nemo-rl-yaml", text)


def _write_model(draft: Draft) -> None:
    named = draft.word("policy.model_name")
    if named and name_of(named):
        draft.put(("model", "name"), name_of(named), f"model_name {cut_to(named, 120)}")
    draft.copy(("model", "sequence_length"), "policy.max_total_sequence_length")
    if draft.get("model", "sequence_length") is not None:
        draft.derived["model", "sequence_length"] = "the longest that is trained on; samples differ in length"
    draft.lacks(("batch", "global_tokens"), "samples differ in length")
    why = "the configuration of the pretrained model holds it, and is not read"
    for key in ("family", "num_layers", "hidden_size", "num_attention_heads", "vocabulary_size", "ffn_hidden_size"):
        draft.lacks(("model", key), why)


def _backend(draft: Draft) -> str:
    """Before which settings of the training stand: those of Megatron or of FSDP; empty where the file does not say."""
    if draft.flag(f"{_MEGATRON}enabled"):
        return _MEGATRON
    return _TORCH if draft.flag(f"{_TORCH}enabled") else ""


def _write_degrees(draft: Draft, prefix: str) -> None:
    for axis, name in _DEGREES[prefix].items():
        draft.copy(("parallelism", axis), f"{prefix}{name}")
    split = draft.flag(f"{prefix}sequence_parallel")
    if split is not None:
        draft.put(("parallelism", "sequence"), split, f"sequence_parallel {str(split).lower()}")
    other = _TORCH if prefix == _MEGATRON else _MEGATRON
    draft.used.update(name for name in draft.values if name.startswith(other))


def _leave_degrees_open(draft: Draft, prefix: str, base: str) -> None:
    """A degree that the file leaves out may be set in one that it starts from."""
    why = base or "" if prefix else base or "neither dtensor_cfg nor megatron_cfg is said to be enabled"
    for axis in ("tensor", "context", *(("pipeline", "expert") if prefix != _TORCH else ())):
        if why and draft.get("parallelism", axis) is None:
            draft.lacks(("parallelism", axis), why)


def _write_batch(draft: Draft, *, base: bool) -> bool:
    """The batch; whether a sample is a pair of answers. A `base` may say so, or pack samples."""
    told = any(name.partition(".")[0] in (*_ROLLOUTS, *_PAIRED, "sft", "teacher") for name in draft.values)
    paired = any(name.startswith(f"{section}.") for section in _PAIRED for name in draft.values)
    places = {"global_sequences": "train_global_batch_size", "micro_sequences": "train_micro_batch_size"}
    for key, name in places.items():
        number = draft.copy(("batch", key), f"policy.{name}")
        if paired and number:
            how = f"{number} pairs of a chosen and a rejected answer ({_SOURCE}/algorithms)"
            draft.put(("batch", key), 2 * number, how)
    if base and not told:
        why = "the file that this one starts from says whether a sample is a sequence or a pair of them"
        draft.drop([("batch", key) for key in places], why)
    for name in ("dynamic_batching", "sequence_packing"):
        packs = draft.flag(f"policy.{name}.enabled")
        if packs or (packs is None and base):
            why = f"{name}: a micro-batch takes as many samples as fit into its tokens"
            why = why if packs else f"{why}, unless the file that this one starts from switches it off"
            draft.drop([("batch", "micro_sequences")], why)
            draft.lacks(("batch", "accumulation_steps"), why)
        if packs:
            draft.put(("batch", "variable_length"), value=True, how=name)
        draft.used.update(each for each in draft.values if each.startswith(f"policy.{name}."))
    draft.lacks(("batch", "loss_reduction"), "the loss of the algorithm decides how it is averaged")
    return paired


def _write_formats(draft: Draft, prefix: str) -> None:
    word = draft.word("policy.precision")
    found = _FORMATS.get(word or "")
    if found is None or not prefix:
        why = f"precision is {cut_to(word, 40)}" if word and prefix else "policy.precision or the backend is not stated"
        for key in ("parameters", "gradients", "reduction"):
            draft.lacks(("precision", key), why)
    if found is None:
        return
    draft.put(("precision", "compute"), found, f"precision {word}")
    if prefix == _TORCH:
        how = f"precision {word}, to which FSDP casts shards in fp32 ({_SOURCE}/models/policy)"
        for key in ("parameters", "gradients"):
            draft.put(("precision", key), found, how)
        for key in ("master_parameters", "reduction"):
            draft.put(("precision", key), "fp32", f"shards and their sums are in fp32 ({_SOURCE}/models/policy)")
    elif prefix == _MEGATRON:
        wide = draft.flag(f"{_MEGATRON}distributed_data_parallel_config.grad_reduce_in_fp32")
        if draft.flag(f"{_MEGATRON}optimizer.bf16" if found == "bf16" else f"{_MEGATRON}optimizer.fp16"):
            draft.put(("precision", "parameters"), found, f"optimizer.{found}")
            for key in ("gradients", "reduction") if wide is not None else ():
                draft.put(("precision", key), "fp32" if wide else found, f"grad_reduce_in_fp32 {str(wide).lower()}")
        if draft.flag(f"{_MEGATRON}fp8_cfg.enabled"):
            draft.drop([("precision", "compute"), ("precision", "recipe")], "fp8_cfg runs products in fp8")
        for key in ("parameters", "gradients", "reduction", "master_parameters"):
            draft.lacks(("precision", key), "settings of Megatron's optimizer decide it, and are not all given")


def _write_torch(draft: Draft) -> None:
    """FSDP and an optimizer of PyTorch, where FSDP is said to be on."""
    if not draft.flag(f"{_TORCH}enabled"):
        draft.lacks(("parallelism", "sharding"), "the file does not say which of FSDP and Megatron trains")
        return
    draft.put(("parallelism", "sharding"), "parameters", f"FSDP of dtensor_cfg ({_SOURCE}/models)")
    recomputed = draft.flag(f"{_TORCH}activation_checkpointing")
    if recomputed is False:
        draft.put(("memory", "activation_policy"), "none", "activation_checkpointing false")
    draft.lacks(("memory", "activation_policy"), "activation_checkpointing wraps parts of each layer, by the model")
    if draft.flag(f"{_TORCH}cpu_offload"):
        parts = ("parameters", "gradients", "optimizer")
        entries = [{"what": what, "target": "host", "fraction": 1.0} for what in parts]
        draft.put_records(("memory", "offload"), entries, "cpu_offload: all three, as FSDP steps on the host")
    if draft.flag(f"{_TORCH}lora_cfg.enabled"):
        put_lora(draft, *(f"{_TORCH}lora_cfg.{name}" for name in ("dim", "alpha", "target_modules")))
    word = draft.word("policy.optimizer.name")
    if word:
        plain = word.rpartition(".")[2]
        draft.put(("optimizer", "name"), optimizer_name(plain), f"the optimizer {cut_to(word, 60)}")
    put_clipping(draft, (0.0, ""), "policy.max_grad_norm")
    if put_rate(draft, "policy.optimizer.kwargs.lr") is None:
        return
    _write_scheduler(draft)


def _write_scheduler(draft: Draft) -> None:
    """The form of the schedule of one scheduler of PyTorch, or of several in a row."""
    listed, alone = draft.look("policy.scheduler"), draft.word("policy.scheduler.name")
    entries = listed[:16] if isinstance(listed, list) else []
    named = [str(entry.get("name")) for entry in entries if isinstance(entry, dict) and "name" in entry]
    if not any(name.startswith(("policy.scheduler", "defaults")) for name in draft.values):
        draft.put((*_RATE, "kind"), "constant", f"no scheduler ({_SOURCE}/models)")
        return
    if named and all(map(_STEADY.fullmatch, named)) and named[-1].endswith("ConstantLR"):
        draft.put((*_RATE, "kind"), "constant", "a linear warm-up, and a constant rate behind it")
    elif alone:
        kind = "cosine" if alone.endswith(".CosineAnnealingLR") else "other"
        draft.put((*_RATE, "kind"), kind, f"the scheduler {cut_to(alone, 80)}")
    elif named:
        draft.put((*_RATE, "kind"), "other", f"schedulers in a row: {cut_to(', '.join(named), 120)}")
    for key in ("kind", "warmup_steps", "final"):
        draft.lacks((*_RATE, key), "the scheduler counts rollouts, each of which has several steps")


def _write_megatron(draft: Draft) -> None:
    """The distributed optimizer of Megatron and its schedule."""
    shard, own = ("parallelism", "sharding"), f"{_MEGATRON}optimizer."
    ddp = f"{_MEGATRON}distributed_data_parallel_config."
    split = draft.flag(f"{own}use_distributed_optimizer")
    whole = [draft.flag(f"{ddp}{name}") for name in ("use_custom_fsdp", "use_megatron_fsdp")]
    draft.look(f"{ddp}data_parallel_sharding_strategy")
    if any(whole):
        draft.lacks(shard, "data_parallel_sharding_strategy of Megatron's FSDP decides it, and is not read")
    elif split is not None:
        draft.put(shard, "optimizer" if split else "none", f"use_distributed_optimizer {str(split).lower()}")
    for key, name in (("overlap_gradients", "overlap_grad_reduce"), ("overlap_parameters", "overlap_param_gather")):
        overlaps = draft.flag(f"{ddp}{name}")
        if overlaps is not None:
            draft.put(("communication", key), overlaps)
    recomputed = draft.flag(f"{_MEGATRON}activation_checkpointing")
    if recomputed is not None:
        policy = "full" if recomputed else "none"
        draft.put(("memory", "activation_policy"), policy, f"activation_checkpointing {str(recomputed).lower()}")
    word = draft.word(f"{own}optimizer")
    if word:
        name = "adamw" if word == "adam" else optimizer_name(word)
        draft.put(("optimizer", "name"), name, f"the optimizer {cut_to(word, 60)} of Megatron, which decouples decay")
    put_clipping(draft, (0.0, ""), f"{own}clip_grad", "policy.max_grad_norm")
    if put_rate(draft, f"{own}lr") is None:
        return
    style = draft.word(f"{_MEGATRON}scheduler.lr_decay_style")
    if style:
        kinds = {"constant": "constant", "linear": "linear", "cosine": "cosine", "inverse-square-root": style}
        draft.put((*_RATE, "kind"), kinds.get(style, "other"), f"lr_decay_style {cut_to(style, 40)}")
    draft.lacks((*_RATE, "kind"), "no lr_decay_style is given")
    for key in ("warmup_steps", "final") if style != "constant" else ("warmup_steps",):
        draft.lacks((*_RATE, key), "the scheduler counts rollouts, each of which has several steps")


def _world(draft: Draft) -> tuple[int | None, str]:
    """Accelerators that train: all of the cluster but those that generate alone, or serve another model."""
    each, nodes = draft.count("cluster.gpus_per_node"), draft.count("cluster.num_nodes")
    place, held = ("parallelism", "num_accelerators"), "policy.generation.colocated."
    rest = [
        name
        for name, value in draft.values.items()
        if name.startswith("env.") and name.endswith("resources.gpus_per_node") and value not in (None, 0)
    ]
    if rest:
        draft.lacks(place, f"{rest[0]} of the accelerators serve a model of the environment")
        return None, ""
    if not each or not nodes:
        draft.lacks(place, "cluster.gpus_per_node x cluster.num_nodes, of which the file lacks one")
        return None, ""
    generates = not any(name.partition(".")[0] in {*_PAIRED, "sft"} for name in draft.values)
    if not generates or draft.flag(f"{held}enabled") is not False:
        if generates and draft.look("defaults") and f"{held}enabled" not in draft.values:
            draft.lacks(place, f"{each * nodes}, or less where generation has accelerators of its own")
            return None, ""
        return each * nodes, f"{nodes} nodes x {each} GPUs"
    own_each, own_nodes = (draft.count(f"{held}resources.{name}") for name in ("gpus_per_node", "num_nodes"))
    apart = own_each if nodes == 1 else (own_nodes or 0) * each
    if not apart or apart >= each * nodes:
        draft.lacks(place, "generation has accelerators of its own, whose number is not stated")
        return None, ""
    draft.put(("rollout", "num_accelerators"), apart, "generation.colocated.resources")
    return each * nodes - apart, f"{nodes} nodes x {each} GPUs, without {apart} that generate"


def _write_rollouts(draft: Draft, *, paired: bool) -> None:
    section = next((one for one in _ROLLOUTS if any(name.startswith(f"{one}.") for name in draft.values)), None)
    prompts = draft.count(f"{section}.num_prompts_per_step") if section else None
    responses = draft.count(f"{section}.num_generations_per_prompt") if section else None
    if prompts is None or responses is None or paired:
        return
    draft.put(("rollout", "num_prompts"), prompts)
    draft.put(("rollout", "num_responses_per_prompt"), responses)
    whole = draft.counted("batch", "global_sequences")
    if whole:
        how = f"{prompts} prompts x {responses} responses over the sequences of a step"
        draft.divide(("rollout", "num_updates"), prompts * responses, whole, how)


def _write_job(draft: Draft) -> None:
    """Seed and length; the data ends a job after its epochs, and a step of the algorithm is a rollout."""
    for section in (*_ROLLOUTS, "sft", *_PAIRED):
        if any(name.startswith(f"{section}.") for name in draft.values):
            draft.copy(("job", "seed"), f"{section}.seed", least=0)
            steps = draft.look(f"{section}.max_num_steps")
            draft.look(f"{section}.max_num_epochs")
            most = f"{cut_to(str(steps), 20)} {'rollouts' if section in _ROLLOUTS else 'steps'}"
            draft.lacks(("job", "num_steps"), f"at most {most}, or epochs of data, whichever end first")
    draft.lacks(("job", "num_steps"), "no section of an algorithm states it")


FORMATS = (Format("nemo-rl-yaml", "configuration of NeMo RL", "TrainingPlan", looks_like, read),)
