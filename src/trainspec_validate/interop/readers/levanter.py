"""Reads configurations of Levanter: model, mesh, batch, formats and schedule of a training in JAX."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_lora, put_rate, share_of
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._position_encoding import POSITIONS
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import bare, cut_to

_SOURCE = "stanford-crfm/levanter@9263f81e:src/levanter"
_HEAD = 256 * 1024
_TRAINER = re.compile(r"(?m)^trainer[ \t]*:")
_OWN = re.compile(
    r"(?m)^[ \t]+(per_device_parallelism|tensor_parallel_axes|fsdp_axis|model_axis_size|replica_dcn_axis_size"
    r"|num_train_steps|train_batch_size|mp)[ \t]*:"
)
"""Settings of the trainer, of which other programs with a section of that name have one at most."""
_FEWEST = 2
_FOREIGN = 3
"""From how many unknown settings of a model without `hidden_dim` on it is none of Levanter's."""
_INCLUDED = re.compile(r"(?m)(:[ \t]*)!include[ \t]+(?=\S)")
"""A file that takes the place of a section, which stays as a word here."""
_SHAPE = {
    "num_layers": "num_layers",
    "hidden_size": "hidden_dim",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_size": "head_dim",
    "ffn_hidden_size": "intermediate_dim",
}
_GATED = frozenset({"llama", "mistral", "qwen", "qwen3", "olmo2", "gemma"})
"""Types of models with a gate in the feed-forward block and rotary positions."""
_TIED = frozenset({"gemma"})
_MP = {"params": "params", "p": "params", "compute": "compute", "c": "compute", "output": "output", "o": "output"}
_FORMATS = {
    **dict.fromkeys(("f32", "float32", "full"), "fp32"),
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("f16", "float16"), "fp16"),
}
_RATE = ("optimizer", "learning_rate")
_KINDS = {"cosine": "cosine", "linear": "linear", "constant": "constant", "inv_sqrt": "inverse-square-root"}
_CYCLES = ("cycles", "haps", "cooldown", "cycle_length", "rewarmup")
"""Settings with which the learning rate rises more than once, or falls in two parts."""
_FALLS = frozenset({"cosine", "linear", "inv", "power"})
_WHOLE = "use_hf_model_config"


def looks_like(text: ForeignText) -> bool:
    """Whether a text has a section of a trainer with settings of Levanter."""
    head = text.text[:_HEAD]
    return bool(_TRAINER.search(head)) and len(set(_OWN.findall(head)) - {"mp"}) >= _FEWEST


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes; the number of devices is that of whatever starts it.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(ForeignText(text.name, _INCLUDED.sub(r"\1", text.text)))

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        run = name_of(draft.word("trainer.id", "trainer.wandb.name", "trainer.tracker.name") or "")
        if run:
            draft.put(("metadata", "name"), run)
        _write_model(draft)
        _write_mesh(draft)
        _write_batch(draft)
        _write_formats(draft)
        _write_optimizer(draft)
        _write_job(draft)
        _leave_foreign_open(draft)
        complete(draft)
        return draft

    return settled(flatten(source.data), make).fragment("levanter-yaml", text)


def _leave_foreign_open(draft: Draft) -> None:
    """Leave open the defaults of Levanter where the model has settings that its classes of models do not have."""
    unknown = [name for name in draft.values if name.startswith("model.") and name not in draft.used]
    if len(unknown) >= _FOREIGN and draft.values.get("model.hidden_dim") is None:
        draft.drop_defaults(
            f"{cut_to(unknown[0], 60)} is no setting of a model of Levanter: a program after it may differ"
        )


def _write_model(draft: Draft) -> None:
    """The shape where the file has it; a checkpoint of transformers replaces it where it is asked to."""
    start = draft.look("initialize_from_hf")
    if isinstance(start, str) and name_of(start):
        draft.put(("model", "name"), name_of(start), f"initialize_from_hf {cut_to(start, 120)}")
    if draft.look("lora.r") is not None:
        put_lora(draft, "lora.r", "lora.alpha", "lora.target_modules")
    kind = draft.word("model.type") or ""
    replaced = draft.flag(_WHOLE) is not False and _WHOLE in draft.values
    if replaced or draft.look("lora.r") is not None or not any(name.startswith("model.") for name in draft.values):
        why = "the configuration of the checkpoint, or a default, decides it, and is not read"
        for key in ("family", *_SHAPE, "sequence_length", "positions", "tied_embeddings", "gated_ffn"):
            if key != "head_size":
                draft.lacks(("model", key), why)
        draft.lacks(("memory", "activation_policy"), why)
        return
    for key, name in _SHAPE.items():
        draft.copy(("model", key), f"model.{name}")
    draft.copy(("model", "sequence_length"), "train_seq_len", "model.seq_len", "model.max_seq_len")
    words = draft.count("data.vocab_size") if draft.word("data.tokenizer") == "passthrough" else None
    if words and (draft.count("trainer.model_axis_size") or 1) == 1:
        draft.put(("model", "vocabulary_size"), words, "data.vocab_size of the tokenizer passthrough")
    draft.lacks(("model", "vocabulary_size"), "the tokenizer decides it, and the trainer rounds it up for the mesh")
    _write_type(draft, kind)
    _write_recomputation(draft, kind)


def _write_type(draft: Draft, kind: str) -> None:
    """What the class of a model decides; a file without a type takes that of the release."""
    if kind == "gpt2":
        draft.put(POSITIONS, "learned", "type gpt2")
        draft.put(("model", "gated_ffn"), value=False, how="type gpt2")
        draft.put(("model", "tied_embeddings"), value=True, how="type gpt2")
        heads, hidden = draft.counted("model", "num_attention_heads"), draft.counted("model", "hidden_size")
        scale = draft.count("model.mlp_scale")
        draft.put(("model", "num_key_value_heads"), heads, "type gpt2")
        if hidden:
            how = f"{scale or 4} times the hidden size"
            how = how if scale else Default(f"{how}, the default of {_SOURCE}/models/gpt2.py")
            draft.put(("model", "ffn_hidden_size"), hidden * (scale or 4), how)
    elif kind in _GATED:
        draft.put(POSITIONS, "rotary", f"type {kind}")
        draft.put(("model", "gated_ffn"), value=True, how=f"type {kind}")
        tied = draft.flag("model.tie_word_embeddings")
        how = Default(f"the default of {_SOURCE}/models") if tied is None else ""
        draft.put(("model", "tied_embeddings"), kind in _TIED if tied is None else tied, how)
        if kind == "mistral" or draft.look("model.sliding_window") is not None:
            draft.look("model.sliding_window")
            draft.lacks(("model", "attention"), "releases of Levanter differ in whether sliding_window has an effect")
    else:
        why = (
            f"models of type {cut_to(kind, 40)} are not read" if kind else "no type is given: the release has a default"
        )
        _leave_rest_open(draft, (*_SHAPE, "family", "gated_ffn", "tied_embeddings", "positions"), why)
        return
    draft.put(("model", "family"), "dense-transformer", f"type {kind}")
    _leave_rest_open(draft, _SHAPE, "the file does not state it, and the class has a default in each release")


def _leave_rest_open(draft: Draft, keys: Iterable[str], why: str) -> None:
    for key in (*keys, "sequence_length"):
        if key != "head_size" and draft.get("model", key) is None:
            draft.lacks(("model", key), why)


def _write_recomputation(draft: Draft, kind: str) -> None:
    pointer, value = ("memory", "activation_policy"), draft.look("model.gradient_checkpointing")
    if isinstance(value, bool):
        draft.put(pointer, "full" if value else "none", f"gradient_checkpointing {bare(value)}")
    elif value is not None or any(name.startswith("model.gradient_checkpointing") for name in draft.values):
        draft.lacks(pointer, f"gradient_checkpointing {cut_to(bare(value), 40)}: the policy keeps or moves some of it")
    elif kind == "gpt2" or kind in _GATED:
        draft.put(pointer, "full", Default(f"gradient_checkpointing, the default of {_SOURCE}/models"))


def _write_mesh(draft: Draft) -> None:
    """Degrees of the mesh of devices; the data axis is as long as the devices make it."""
    tensor, sharding = ("parallelism", "tensor"), ("parallelism", "sharding")
    size, axes = draft.count("trainer.model_axis_size"), draft.look("trainer.tensor_parallel_axes")
    if any(name.startswith("trainer.mesh") for name in draft.values):
        draft.lacks(tensor, "trainer.mesh names the axes of the devices, and is not read")
    elif draft.reasons("trainer.model_axis_size"):
        draft.lacks(tensor, draft.reasons("trainer.model_axis_size")[0])
    elif size in {None, 1}:
        draft.put(tensor, 1, "" if size else Default(f"model_axis_size 1, the default of {_SOURCE}/trainer.py"))
    elif isinstance(axes, list) and axes:
        draft.put(tensor, size, f"model_axis_size, over which {cut_to(str(axes), 60)} are split")
    else:
        draft.lacks(tensor, f"model_axis_size is {size}, and no tensor_parallel_axes are split over it")
    axis = draft.look("trainer.fsdp_axis")
    if isinstance(axis, str | list) and axis:
        draft.put(sharding, "parameters", f"fsdp_axis {cut_to(str(axis), 40)}")
    elif "trainer.fsdp_axis" in draft.values:
        draft.lacks(sharding, "fsdp_axis is null: parameter_axis_resources or the mesh may shard parameters")
    else:
        draft.put(sharding, "parameters", Default(f"fsdp_axis embed, the default of {_SOURCE}/trainer.py"))
    copies = [draft.look(f"trainer.replica_{part}_axis_size") for part in ("ici", "dcn")]
    if any(copy not in (None, 1) for copy in copies):
        draft.lacks(("parallelism", "sharding_degree"), "the devices over the replica axes, whose number is not stated")


def _write_batch(draft: Draft) -> None:
    whole, each = draft.look("trainer.train_batch_size"), draft.look("trainer.per_device_parallelism")
    if isinstance(whole, list | dict):
        for key in ("global_sequences", "ramp"):
            draft.lacks(("batch", key), "train_batch_size is a schedule, which is not read")
    else:
        draft.copy(("batch", "global_sequences"), "trainer.train_batch_size")
    if each in (None, -1) and not draft.reasons("trainer.per_device_parallelism"):
        how = "per_device_parallelism -1: the batch of a device at once"
        how = how if each else Default(f"{how}, the default of {_SOURCE}/trainer.py")
        draft.put(("batch", "accumulation_steps"), 1, how)
        draft.lacks(("batch", "micro_sequences"), "train_batch_size over the data ranks, whose number is not stated")
    else:
        draft.copy(("batch", "micro_sequences"), "trainer.per_device_parallelism")
    why = "the devices that start the job decide it"
    for pointer in (("parallelism", "num_accelerators"), ("parallelism", "data"), ("batch", "accumulation_steps")):
        draft.lacks(pointer, why)


def _policy(word: str) -> dict[str, str | None]:
    """Formats of a policy of jmp, None for a word that is not known.

    >>> _policy("p=f32,c=bfloat16"), _policy("f32")
    ({'params': 'fp32', 'compute': 'bf16'}, {'params': 'fp32', 'compute': 'fp32'})
    """
    if "=" not in word:
        found = _FORMATS.get(word.strip().casefold())
        return {"params": found, "compute": found}
    named = {_MP.get(part.partition("=")[0].strip()): part.partition("=")[2].strip() for part in word.split(",")[:8]}
    params = _FORMATS.get(named.get("params", "f32").casefold())
    return {"params": params, "compute": _FORMATS.get(named["compute"].casefold()) if "compute" in named else params}


def _write_formats(draft: Draft) -> None:
    """Parameters are cast before the forward pass; the optimizer steps on those that are stored."""
    word = draft.word("trainer.mp")
    found = _policy(word or "")
    stored, compute = found["params"], found["compute"]
    if stored is None or compute is None:
        why = f"mp {cut_to(word, 40)} is not known" if word else "no mp is given: the trainer and its release decide"
        for key in ("compute", "parameters", "gradients"):
            draft.lacks(("precision", key), why)
        return
    draft.put(("precision", "compute"), compute, f"mp {word}")
    draft.put(("precision", "parameters"), compute, f"mp {word}, cast before the forward pass")
    if stored != compute:
        draft.put(("precision", "master_parameters"), stored, f"mp {word}")
    draft.put(("precision", "gradients"), stored, "gradients have the format of the stored parameters")
    draft.put(("precision", "optimizer_state"), stored, "moments have the format of the stored parameters")
    if stored != compute:
        draft.lacks(("precision", "reduction"), "the compiler decides whether it sums before or after the cast")
    else:
        draft.put(("precision", "reduction"), stored, "one format throughout")
    if draft.look("trainer.quantization") is not None or any(
        name.startswith("trainer.quantization.") for name in draft.values
    ):
        draft.drop([("precision", "compute"), ("precision", "recipe")], "trainer.quantization may run products in fp8")


def _write_optimizer(draft: Draft) -> None:
    word = draft.word("optimizer.type")
    if word in {None, "adam"}:
        how = "adam of optax with decoupled decay"
        draft.put(("optimizer", "name"), "adamw", how if word else Default(f"{how}, the default of Levanter"))
        put_clipping(draft, (1.0, f"{_SOURCE}/optim/config.py"), "optimizer.max_grad_norm", "trainer.max_grad_norm")
    elif word:
        draft.put(("optimizer", "name"), optimizer_name(word), f"the optimizer {cut_to(word, 60)}")
        if draft.look("optimizer.max_grad_norm") is not None:
            put_clipping(draft, (0.0, ""), "optimizer.max_grad_norm")
    peak = put_rate(draft, "optimizer.learning_rate", "trainer.learning_rate")
    if peak is not None:
        _write_schedule(draft, peak)


def _write_schedule(draft: Draft, peak: float) -> None:
    """One warm-up and one decay; a schedule of several cycles has neither a form nor lengths of its own."""
    epochs = draft.look("epoch") not in (None, 0)
    steps = None if epochs else draft.count("trainer.num_train_steps")
    names = [f"optimizer.{name}" for name in _CYCLES]
    told = [name for name in names if draft.look(name) not in (None, 0, 0.0, 1.0)]
    told = [name for name in told if not (name.endswith("cycle_length") and draft.values[name] == steps)]
    form = draft.word("optimizer.lr_schedule", "optimizer.lr_schedule.type", "trainer.lr_schedule")
    kind = _KINDS.get(form or "cosine", "other")
    decay = draft.number("optimizer.decay")
    if told:
        draft.put((*_RATE, "kind"), "other", f"{told[0]}: the rate rises or falls more than once")
        for key in ("warmup_steps", "final"):
            draft.lacks((*_RATE, key), f"{told[0]} gives each cycle its own")
        for name in ("warmup", "min_lr_ratio"):
            draft.look(f"optimizer.{name}")
        return
    if decay is not None and form != "constant" and (form or "cosine") in _FALLS:
        draft.put((*_RATE, "kind"), "warmup-stable-decay", f"decay {decay:g}")
        _put_steps(draft, "decay_steps", decay, steps)
    else:
        how = f"the schedule {form}" if form else Default(f"cosine, the default of {_SOURCE}/optim/config.py")
        draft.put((*_RATE, "kind"), kind, how)
    warmup = draft.number("optimizer.warmup", "trainer.warmup_ratio", "optimizer.warmup_ratio")
    if warmup is not None:
        _put_steps(draft, "warmup_steps", warmup, steps)
    share = draft.number("optimizer.min_lr_ratio", "trainer.min_lr_ratio")
    if share is not None and (form or "cosine") in _FALLS - {"power"}:
        draft.put((*_RATE, "final"), share_of(share, peak), f"min_lr_ratio {share:g} of the peak")
    for key in ("warmup_steps", "final"):
        if kind != "constant" or key == "warmup_steps":
            draft.lacks((*_RATE, key), "the file does not state it, and releases of Levanter have other defaults")
    if steps:
        draft.put((*_RATE, "total_steps"), steps, "num_train_steps")


def _put_steps(draft: Draft, key: str, value: float, steps: int | None) -> None:
    """A length of the schedule: up to 1 a share of the steps, above it steps."""
    if value > 1:
        draft.put((*_RATE, key), int(value), "steps, because it is above 1")
    elif steps:
        draft.put((*_RATE, key), int(value * steps), f"{value:g} of {steps} steps")
    else:
        draft.lacks((*_RATE, key), f"{value:g} of the steps, whose number is not stated")


def _write_job(draft: Draft) -> None:
    draft.copy(("job", "seed"), "trainer.seed", least=0)
    if draft.look("epoch") in (None, 0):
        draft.copy(("job", "num_steps"), "trainer.num_train_steps")
    draft.lacks(("job", "num_steps"), "the file does not state it, or epochs of data end the job")
    draft.lacks(("batch", "loss_reduction"), "the trainer decides how losses are averaged")


FORMATS = (Format("levanter-yaml", "configuration of Levanter", "TrainingPlan", looks_like, read),)
