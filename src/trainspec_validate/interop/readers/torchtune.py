"""Reads configurations of torchtune recipes: model builder, adapters, batch, formats and schedule."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_lora, put_rate
from trainspec_validate.interop.readers._overriding import TORCHTUNE, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, leave_offload_open, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._recomputation import put_selective
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "pytorch/torchtune@bd2a0fc7:recipes/full_finetune_distributed.py"
_HEAD = 256 * 1024
_UNTRAINED = frozenset({"tasks", "prompt", "max_new_tokens", "quantizer"})
_TRAINED = frozenset({"optimizer", "loss", "epochs", "lr_scheduler"})
"""Settings of recipes that evaluate, generate or quantise, and of those that train."""
_BUILDER = re.compile(r"(?m)^[ \t]+_component_[ \t]*:[ \t]*torchtune\.models\.")
_RECIPE = re.compile(r"(?m)^model[ \t]*:")
_FORMATS = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_RATE = ("optimizer", "learning_rate")
_MLP = ("gate_proj", "up_proj", "down_proj")
_OF_ROLLOUTS = ("grpo_samples", "ppo_batch_size", "ppo_epochs", "forward_batch_size")
"""Settings of recipes that generate what they train on."""
_DEGREES = (("tensor", "tensor_parallel_dim"), ("context", "context_parallel_dim"))

_OF_SCHEDULES = re.compile(r"(?:num_)?warmup\w*|lr_\w+|(?:min|max)_lr\w*|\w*decay_(?:steps|ratio)|\w*_scheduler\w*")
"""Settings at the top that describe a schedule; torchtune keeps its own in `lr_scheduler`."""
_DECIDED = ("parameters", "gradients", "reduction", "optimizer_state")
"""Formats that the recipe decides."""


def looks_like(text: ForeignText) -> bool:
    """Whether there is one model, made by a builder of torchtune."""
    head = text.text[:_HEAD]
    return bool(_BUILDER.search(head)) and bool(_RECIPE.search(head))


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes; the recipe that runs it is named on the command line.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)
    if _UNTRAINED & source.data.keys() and not _TRAINED & source.data.keys():
        raise ForeignFormatError("the recipe trains nothing: no optimizer", help="give the configuration of a training")

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(_with_targets(values), lines_in(source))
        _write_model(draft)
        _write_degrees(draft)
        _write_batch(draft)
        _write_formats(draft)
        _write_optimizer(draft)
        _write_memory(draft)
        draft.copy(("job", "seed"), "seed", least=0)
        draft.lacks(("job", "num_steps"), "epochs of data whose size is not stated")
        _leave_foreign_open(draft)
        complete(draft)
        leave_overridden_open(draft, TORCHTUNE)
        return draft

    return settled(flatten(source.data), make).fragment("torchtune-yaml", text)


def _leave_foreign_open(draft: Draft) -> None:
    """What the recipe decides, where the model or its checkpoints are a program's own, so that its recipe may be too.

    Without `lr_scheduler` a recipe of torchtune keeps the rate; one with settings of a schedule at the top does not.
    """
    kind = (*_RATE, "kind")
    parts = [draft.word(f"{name}._component_") or "" for name in ("model", "checkpointer")]
    own = next((part for part in parts if part and not part.startswith("torchtune.")), "")
    asked = [name for name in draft.values if _OF_SCHEDULES.fullmatch(name) and draft.values[name] is not None]
    why = f"{cut_to(own, 60)} is none of torchtune's, so that a recipe of its own may run it" if own else ""
    if own:
        draft.drop_defaults(why)
        draft.drop([("precision", key) for key in _DECIDED if draft.get("precision", key) is not None], why)
    if (own or asked) and draft.values.get("lr_scheduler._component_") is None and draft.get(*kind) is not None:
        draft.drop([kind], f"{asked[0]} is of a schedule in the recipe" if asked else why)


def _with_targets(values: dict[str, Any]) -> dict[str, Any]:
    """Settings with the matrices of adapters in one list, in the words of PEFT."""
    listed = values.get("model.lora_attn_modules")
    if not isinstance(listed, list):
        return values
    names = ["out_proj" if name == "output_proj" else name for name in listed]
    names += _MLP if values.get("model.apply_lora_to_mlp") is True else ()
    names += ["lm_head"] if values.get("model.apply_lora_to_output") is True else []
    return {**values, "model.lora_attn_modules": names}


def _write_model(draft: Draft) -> None:
    builder = (draft.word("model._component_") or "").rpartition(".")[2]
    name = name_of(re.sub(r"^q?lora_", "", builder))
    if name:
        draft.put(("model", "name"), name, f"the builder {cut_to(builder, 60)}")
    draft.copy(("model", "sequence_length"), "tokenizer.max_seq_len", "dataset.max_seq_len")
    draft.lacks(("model", "sequence_length"), "the tokenizer cuts nothing; the data and the model decide")
    if draft.get("model", "sequence_length") is not None and not draft.flag("dataset.packed"):
        draft.derived["model", "sequence_length"] = "the longest that is trained on; samples differ in length"
        draft.lacks(("batch", "global_tokens"), "samples differ in length")
    draft.look("model.apply_lora_to_mlp", "model.apply_lora_to_output", "model.quantize_base")
    if draft.look("model.lora_rank") is not None:
        put_lora(draft, "model.lora_rank", "model.lora_alpha", "model.lora_attn_modules")
        if builder.startswith("qlora_") or draft.flag("model.quantize_base"):
            draft.lacks(
                ("precision", "frozen_parameters"), "the base stores its linear layers in NF4 and the rest in dtype"
            )
    elif re.match(r"q?lora_", builder):
        draft.lacks(("lora",), f"the builder {cut_to(builder, 60)} has adapters of its own defaults")


def _write_degrees(draft: Draft) -> None:
    for axis, name in _DEGREES:
        draft.copy(("parallelism", axis), name)
    shards, copies = draft.count("data_parallel_shard_dim"), draft.count("data_parallel_replicate_dim")
    if shards:
        draft.put(("parallelism", "data"), shards * (copies or 1), f"{shards} shards x {copies or 1} replicas")
        if copies and copies > 1:
            context = draft.counted("parallelism", "context") or 1
            draft.put(("parallelism", "sharding_degree"), shards * context, "shards x context, over which FSDP shards")
    kept = draft.flag("fsdp_reshard_after_forward")
    if kept is not None:
        sharding = "parameters" if kept else "gradients"
        draft.put(("parallelism", "sharding"), sharding, f"fsdp_reshard_after_forward ({_SOURCE})")
    draft.lacks(
        ("parallelism", "sharding"), "the recipe decides: one device keeps whole copies, a distributed one shards"
    )


def _write_batch(draft: Draft) -> None:
    told = next((name for name in _OF_ROLLOUTS if name in draft.values), None)
    if told is not None:
        draft.look("batch_size", "gradient_accumulation_steps")
        why = f"{told}: batch_size counts prompts or responses of a rollout, which the recipe splits"
        for key in ("micro_sequences", "accumulation_steps", "global_sequences"):
            draft.lacks(("batch", key), why)
        draft.lacks(("batch", "loss_reduction"), "the recipe decides how losses are averaged")
        return
    draft.copy(("batch", "micro_sequences"), "batch_size")
    draft.copy(("batch", "accumulation_steps"), "gradient_accumulation_steps")
    draft.lacks(("batch", "loss_reduction"), "the recipe decides how losses are averaged")


def _write_formats(draft: Draft) -> None:
    word = draft.word("dtype")
    found = _FORMATS.get(word or "")
    if found is None:
        why = f"dtype is {word[:40]!r}" if word else next(iter(draft.reasons("dtype")), "no dtype is given")
        for key in ("compute", "parameters", "gradients"):
            draft.lacks(("precision", key), why)
        return
    draft.put(("precision", "compute"), found, "" if found == word else f"dtype {word}")
    for key in ("parameters", "gradients", "reduction"):
        draft.put(("precision", key), found, f"torchtune makes the model in dtype and casts nothing ({_SOURCE})")
    _write_state_format(draft, found)
    if draft.flag("enable_fp8_training"):
        draft.lacks(("precision", "recipe"), "fp8 of torchao; fp8_recipe_name and its version decide")


def _write_state_format(draft: Draft, parameters: str) -> None:
    """Moments in the format of the parameters, but for optimizers of libraries with a format of their own."""
    component, state = draft.word("optimizer._component_") or "", ("precision", "optimizer_state")
    if component.endswith("8bit"):
        draft.put(state, "int8", "the optimizer keeps moments in eight bits")
    elif component.startswith("bitsandbytes."):
        draft.put(state, "fp32", "bitsandbytes keeps 32-bit moments in fp32")
    elif component.startswith("torch.optim."):
        draft.put(state, parameters, "moments have the format of the parameters")
    elif component:
        draft.lacks(state, f"the format of the moments of {cut_to(component, 60)} is not known")


def _write_optimizer(draft: Draft) -> None:
    component = draft.word("optimizer._component_")
    if component:
        plain = component.rpartition(".")[2].removeprefix("Paged").removesuffix("8bit")
        draft.put(("optimizer", "name"), optimizer_name(plain), f"the optimizer {cut_to(component, 60)}")
    if put_rate(draft, "optimizer.lr") is not None:
        _write_schedule(draft)
    put_clipping(draft, (0.0, ""), "clip_grad_norm")


def _write_schedule(draft: Draft) -> None:
    scheduler = (draft.word("lr_scheduler._component_") or "").rpartition(".")[2]
    if scheduler == "get_cosine_schedule_with_warmup":
        draft.put((*_RATE, "kind"), "cosine", f"the schedule {scheduler}")
        if draft.look("lr_scheduler.num_cycles") is None:
            draft.put((*_RATE, "final"), 0.0, Default("half a cosine, the default of the schedule"))
        draft.copy((*_RATE, "warmup_steps"), "lr_scheduler.num_warmup_steps", least=0)
    elif scheduler:
        draft.put((*_RATE, "kind"), "other", f"the schedule {cut_to(scheduler, 60)}")
    else:
        draft.put((*_RATE, "kind"), "constant", f"no lr_scheduler ({_SOURCE})")


def _write_memory(draft: Draft) -> None:
    recomputed = draft.flag("enable_activation_checkpointing")
    if draft.word("ac_mode") == "selective":
        put_selective(draft, "selective", draft.look("ac_option"), "ac_option", "ac_mode")
    elif recomputed is not None:
        draft.put(("memory", "activation_policy"), "full" if recomputed else "none", "enable_activation_checkpointing")
    if draft.flag("fsdp_cpu_offload", "fsdp.cpu_offload"):
        parts = ("parameters", "gradients", "optimizer")
        entries = [{"what": what, "target": "host", "fraction": 1.0} for what in parts]
        draft.put_records(("memory", "offload"), entries, "fsdp_cpu_offload: all three, as FSDP steps on the host")
    leave_offload_open(draft, "enable_activation_offloading")


FORMATS = (Format("torchtune-yaml", "configuration of a torchtune recipe", "TrainingPlan", looks_like, read),)
