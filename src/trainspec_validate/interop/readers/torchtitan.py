"""Reads job configurations of torchtitan in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._optimizer_plan import write_torchtitan
from trainspec_validate.interop.readers._overriding import TORCHTITAN, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, Lines, like, name_of, shown
from trainspec_validate.interop.readers._plan_settings import flatten
from trainspec_validate.interop.readers._recomputation import put_selective
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to
from trainspec_validate.system.boundary import words_of

MAX_CHARACTERS = 256 * 1024
MAX_DOTS = 200
"""Dots of one line: keys of very many parts cost the TOML parser time and memory by their square."""
_HEAD = 256 * 1024
_TRAINING = re.compile(r"(?m)^[ \t]*\[training\][ \t]*(?:#.*)?$")
_BESIDE = re.compile(r"(?m)^[ \t]*\[(?:job|model|parallelism|experimental|metrics|activation_checkpoint)\]")
_OWN = re.compile(
    r"(?m)^[ \t]*(?:\[activation_checkpoint\]|(?:dump_folder|flavor|local_batch_size|mixed_precision_param|spec_name"
    r"|custom_config_module|selective_ac_option|(?:data|tensor|pipeline|context|expert)_parallel_(?:\w{1,20}_)?degree)"
    r"[ \t]*=)"
)
"""A table or settings that torchtitan has and a program with tables of the same names has not."""
_SECTION = re.compile(r"[ \t]*\[([A-Za-z0-9_.]+)\]")
_KEY = re.compile(r"[ \t]*([A-Za-z0-9_]+)[ \t]*=")
_PRESET = re.compile(r"(?im)^#.{0,60}\bpreset for ([0-9]{1,7})\b.{0,40}\b(?:GPU|accelerator)s?\b")
_DEFAULTS = "pytorch/torchtitan@000204a4:torchtitan/config/job_config.py"
_SHAPES_FROM = "pytorch/torchtitan@00f555e1:torchtitan/models/llama3/__init__.py"
_SHAPES = {
    "8B": (32, 4096, 32, 14336),
    "70B": (80, 8192, 64, 28672),
    "405B": (126, 16384, 128, 53248),
}
"""Layers, hidden size, heads and feed-forward width of the flavours of `llama3`."""
_CORE = frozenset({"llama", "llama2", "llama3", "llama3_1", "llama4", "deepseek_v3", "qwen3", "gpt_oss"})
"""Language models of torchtitan's core in the course of versions, which its own trainer runs."""
_SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved-1f1b",
    "interleavedzerobubble": "zero-bubble",
    "zbvzerobubble": "zero-bubble",
    "dualpipev": "dual-pipe",
}
_TWO_CHUNKS = frozenset({"interleaved1f1b", "interleavedzerobubble", "zbvzerobubble", "dualpipev", "loopedbfs"})
_EIGHT_BIT = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
"""Recipes of torchao, pytorch/ao:torchao/float8/config.py."""
_MAX_STAGES = 1024
_DEGREES = {"tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "context": "context_parallel"}
_HOMES = ("parallelism", "experimental", "training")
"""Tables that have held the degrees in the course of versions."""


def looks_like(text: ForeignText) -> bool:
    """Whether a text is TOML with the tables of a torchtitan job."""
    head = text.text[:_HEAD]
    return all(mark.search(head) for mark in (_TRAINING, _BESIDE, _OWN))


def read(text: ForeignText) -> Fragment:
    """The plan that a torchtitan job describes; the shape of the model for flavours of Llama 3.

    Raises:
        ForeignFormatError: it is no TOML, or has no `[training]`.
    """
    data = _parse(text.text)
    if not isinstance(data.get("training"), dict):
        raise ForeignFormatError("there is no table [training]", help="give the job configuration of torchtitan")
    preset = _PRESET.search(text.text[:_HEAD])

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, _lines(text.text))
        description = draft.word("job.description")
        if description and name_of(description):
            draft.put(("metadata", "name"), name_of(description), "made of job.description")
        _write_plan(draft)
        if preset:
            told = f"a comment calls the file a preset for {preset[1]} accelerators; what starts the job decides"
            draft.lacks(("parallelism", "num_accelerators"), told)
        complete(draft)
        leave_overridden_open(draft, TORCHTITAN)
        return draft

    return settled(flatten(data), make).fragment("torchtitan-toml", text)


def _parse(text: str) -> Mapping[str, object]:
    if len(text) > MAX_CHARACTERS:
        raise ForeignFormatError(
            f"the file is longer than {MAX_CHARACTERS} characters", help="name a job configuration"
        )
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            raise ForeignFormatError(f"a line with more than {MAX_DOTS} dots", number, "break it into several lines")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ForeignFormatError("the file is nested too deeply", help="name a job configuration") from None
    except ValueError as error:
        found = re.search(r"at line ([0-9]+)", str(error))
        raise ForeignFormatError(f"the file is no TOML: {words_of(error)}", int(found[1]) if found else None) from None


def _lines(text: str) -> Lines:
    """Finds the lines of dotted names, by tables and keys at the beginning of lines."""

    def find(names: Iterable[str]) -> Mapping[str, int]:
        wanted, section = set(names), ""
        found: dict[str, int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if table := _SECTION.match(line):
                section = f"{table[1]}."
            elif (key := _KEY.match(line)) and f"{section}{key[1]}" in wanted:
                found.setdefault(f"{section}{key[1]}", number)
        return found

    return find


def _write_plan(draft: Draft) -> None:
    """Everything that a job says."""
    _write_model(draft)
    _write_degrees(draft)
    _write_pipeline(draft)
    _write_batch(draft)
    _write_precision(draft)
    _write_recipe(draft)
    _write_rest(draft)
    write_torchtitan(draft)
    _leave_foreign_open(draft)


def _leave_foreign_open(draft: Draft) -> None:
    """What code of its own decides: of an experiment, of a model that the core does not have, of a configuration."""
    name = draft.word("model.name")
    module = draft.look("experimental.custom_args_module", "job.custom_config_module")
    places = [("parallelism", "sharding")]
    if "experiments" in str(module or ""):
        why = f"{cut_to(str(module), 80)} names an experiment, whose own trainer decides"
    elif name and name not in _CORE:
        why = f"the model {cut_to(name, 60)} is none of torchtitan's core, and its own code decides"
    elif module:
        why = f"{cut_to(str(module), 80)} extends the configuration, and may change its defaults"
        draft.drop_defaults(why)
        places = []
    elif name is None and draft.values.get("model.flavor") is None:
        why = "the file names no model of torchtitan, so that another program may read it, with its own defaults"
        draft.drop_defaults(why)
    else:
        return
    if isinstance(draft.derived.get(("model", "sequence_length")), Default):
        places.append(("model", "sequence_length"))
    draft.drop([place for place in places if draft.get(*place) not in (None, "none")], why)
    made = [at for at in draft.derived if at[0] in {"precision", "communication"} and at[1] != "recipe"]
    draft.drop([at for at in made if draft.get(*map(str, at)) is not None], why)


def _write_model(draft: Draft) -> None:
    name, flavour = draft.word("model.name"), draft.word("model.flavor")
    label = name_of("-".join(part for part in (name, flavour) if part))
    if label:
        draft.put(("model", "name"), label, "name and flavour")
    draft.copy(("model", "sequence_length"), "training.seq_len")
    draft.default(("model", "sequence_length"), 2048, f"the default of {_DEFAULTS}")
    shape = _SHAPES.get((flavour or "").split("_")[0]) if name == "llama3" else None
    if shape is None:
        for key in ("family", "num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "vocabulary_size"):
            draft.lacks(("model", key), f"the program defines the flavour {flavour} of {name}; the job only names it")
        return
    values: dict[str, object] = {"family": "dense-transformer", "num_layers": shape[0], "hidden_size": shape[1]}
    values |= {"num_attention_heads": shape[2], "num_key_value_heads": 8, "ffn_hidden_size": shape[3]}
    values |= {"gated_ffn": True, "vocabulary_size": 128256, "tied_embeddings": False}
    for key, value in values.items():
        draft.put(("model", key), value, f"the flavour {flavour} in {_SHAPES_FROM}")


def _names(key: str) -> list[str]:
    return [f"{home}.{key}" for home in _HOMES]


def _write_degrees(draft: Draft) -> None:
    for axis, stem in _DEGREES.items():
        draft.copy(("parallelism", axis), *_names(f"{stem}_degree"))
        draft.default(("parallelism", axis), 1, f"the default of {_DEFAULTS}")
    if draft.look(*_names("expert_parallel_degree")) is not None:
        draft.copy(("parallelism", "expert"), *_names("expert_parallel_degree"))
    tensor = draft.counted("parallelism", "tensor") or 1
    draft.put(("parallelism", "sequence"), tensor > 1, "torchtitan's tensor parallelism splits the sequence as well")
    replicas = draft.count(*_names("data_parallel_replicate_degree")) or 1
    stated = draft.look(*_names("data_parallel_shard_degree"), *_names("data_parallel_degree"))
    shards = stated if isinstance(stated, int) and stated >= 1 else None
    if shards is None:
        draft.lacks(("parallelism", "data"), "data_parallel_shard_degree takes the ranks that are left over")
    else:
        how = f"{replicas} replicas x {shards} shards"
        draft.put(("parallelism", "data"), replicas * shards, how)
    _write_sharding(draft, replicas, shards)


def _write_sharding(draft: Draft, replicas: int, shards: int | None) -> None:
    context = draft.counted("parallelism", "context") or 1
    stated = draft.known(("always", "default", "never"), *_names("fsdp_reshard_after_forward"))
    policy = stated or "default"
    pipelined = (draft.counted("parallelism", "pipeline") or 1) > 1
    if shards == 1 and context == 1:
        draft.put(("parallelism", "sharding"), "none", "one shard")
        return
    gathered = policy == "never" or (policy == "default" and pipelined)
    how = "FSDP keeps parameters gathered between forward and backward" if gathered else "FSDP reshards after forward"
    how = f"{how}: {policy}" if stated else Default(f"{how}: {policy}")
    draft.put(("parallelism", "sharding"), "gradients" if gathered else "parameters", how)
    if shards is not None and replicas > 1:
        draft.put(("parallelism", "sharding_degree"), shards * context, "shards x context, over which FSDP shards")


def _write_pipeline(draft: Draft) -> None:
    stages = draft.counted("parallelism", "pipeline") or 1
    schedule = draft.word(*_names("pipeline_parallel_schedule")) or "1F1B"
    points = draft.look(*_names("pipeline_parallel_split_points"))
    per_stage = draft.look(*_names("pipeline_parallel_layers_per_stage"))
    if stages == 1:
        return
    kind = schedule.lower()
    draft.put(("parallelism", "schedule"), _SCHEDULES.get(kind, "other"), f"schedule {schedule}")
    chunks = 2 if kind in _TWO_CHUNKS else 1
    layers = draft.counted("model", "num_layers")
    cuts = _cuts(points)
    if cuts:
        chunks = max(1, (len(cuts) + 1) // stages)
    if chunks > 1:
        draft.put(("parallelism", "num_virtual_stages"), chunks, f"stages of one rank with {schedule}")
    other = not cuts and kind not in {*_SCHEDULES, *_TWO_CHUNKS}
    if other or layers is None or per_stage is not None or stages * chunks > _MAX_STAGES:
        draft.lacks(("parallelism", "stage_layers"), "the program decides which layers a stage holds")
        return
    if cuts:
        bounds = [0, *cuts, layers]
        split, how = [high - low for low, high in pairwise(bounds)], "by the split points"
    else:
        split = _even(layers, stages * chunks)
        how = "embedding and output count as one layer each, as torchtitan/distributed/pipeline_parallel.py splits"
    if len(set(split)) > 1 and min(split) >= 0:
        draft.put(("parallelism", "stage_layers"), split, how)


def _cuts(points: object) -> list[int]:
    names = points.split(",") if isinstance(points, str) else points if isinstance(points, list) else []
    found = [re.fullmatch(r"\s*layers\.([0-9]{1,6})\s*", name) for name in names[:_MAX_STAGES] if isinstance(name, str)]
    return [int(match[1]) for match in found if match]


def _even(layers: int, stages: int) -> list[int]:
    each, extra = divmod(layers + 2, stages)
    split = [each + (stage < extra) for stage in range(stages)]
    split[0] -= 1
    split[-1] -= 1
    return split


def _write_batch(draft: Draft) -> None:
    local = draft.count("training.local_batch_size", "training.batch_size")
    stated = draft.look("training.local_batch_size", "training.batch_size")
    if stated is not None and local is None:
        draft.copy(("batch", "micro_sequences"), "training.local_batch_size", "training.batch_size")
    elif local is None:
        local = 8
        draft.put(("batch", "micro_sequences"), local, Default(f"the default of {_DEFAULTS}"))
    else:
        draft.put(("batch", "micro_sequences"), local)
    whole, data = draft.count("training.global_batch_size"), draft.counted("parallelism", "data")
    if whole:
        draft.put(("batch", "global_sequences"), whole)
    elif local and data:
        how: str = Default(f"local batch x data degree, the default of {_DEFAULTS}")
        inputs = (("parallelism", "data"), ("batch", "micro_sequences"))
        draft.follow(("batch", "global_sequences"), local * data, how, *inputs)
    piped = (draft.counted("parallelism", "pipeline") or 1) > 1
    pieces = draft.count(*_names("pipeline_parallel_microbatch_size"))
    if piped and local:
        size = pieces or 1
        usual = Default(f"the default of {_DEFAULTS} with a pipeline")
        how = "pipeline_parallel_microbatch_size" if pieces else usual
        draft.put(("batch", "micro_sequences"), size, how)
    if not whole and local:
        micro = draft.counted("batch", "micro_sequences") or 1
        draft.divide(("batch", "accumulation_steps"), local, micro, "local batch over micro-batch")
    draft.lacks(("batch", "loss_reduction"), "the version of torchtitan decides how losses are averaged")


_FORMATS = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}


def _write_precision(draft: Draft) -> None:
    words = {key: draft.word(f"training.{key}") for key in ("mixed_precision_param", "mixed_precision_reduce", "dtype")}
    compute = _FORMATS.get(words["mixed_precision_param"] or "bfloat16")
    stored = _FORMATS.get(words["dtype"] or "float32")
    reduction = _FORMATS.get(words["mixed_precision_reduce"] or "float32")
    if compute is None or stored is None or reduction is None:
        draft.remark(f"a number format is not known: {cut_to(', '.join(word for word in words.values() if word), 120)}")
        return
    how = "" if words["mixed_precision_param"] else Default(f"the default of {_DEFAULTS}")
    held = "" if words["dtype"] else Default(f"the default of {_DEFAULTS}")
    draft.put(("precision", "compute"), compute, how)
    sharded = draft.get("parallelism", "sharding") != "none"
    if sharded and compute != stored:
        draft.put(("precision", "parameters"), compute, like(how, "FSDP gathers parameters in the compute format"))
        draft.put(("precision", "master_parameters"), stored, like(held, "FSDP keeps shards in the stored format"))
        draft.put(("precision", "gradients"), compute, like(how, "the backward pass writes the gathered format"))
    else:
        why = (
            "parameters are stored so; torch.autocast casts operands" if compute != stored else "one format throughout"
        )
        draft.put(("precision", "parameters"), stored, like(held, why))
        draft.put(("precision", "gradients"), stored, like(held, why))
    total = reduction if sharded else stored
    draft.put(("precision", "accumulation"), stored, like(held, "shards of gradients have the stored format"))
    draft.put(
        ("precision", "reduction"),
        total,
        "" if words["mixed_precision_reduce"] and sharded else Default(f"the default of {_DEFAULTS}"),
    )
    draft.put(("precision", "optimizer_state"), stored, like(held, "moments have the format of the shards"))
    if compute != "fp32":
        operations = ["softmax", "normalization", "loss"]
        draft.put(
            ("precision", "high_precision_operations"),
            operations,
            "kernels do the first two in fp32; the loss casts its input",
        )
    if draft.flag("training.deterministic", "debug.deterministic"):
        draft.put(("precision", "deterministic"), value=True)


def _write_recipe(draft: Draft) -> None:
    converters = draft.look("model.converters")
    named = converters.split(",") if isinstance(converters, str) else converters if isinstance(converters, list) else []
    homes = ("float8", "quantize.linear.float8")
    kinds = {item.strip().rpartition(".")[2] for item in named if isinstance(item, str)}
    pointer = ("precision", "recipe")
    if "float8" in kinds or draft.flag("float8.enable_float8_linear"):
        recipe = draft.known(_EIGHT_BIT, *(f"{home}.recipe_name" for home in homes))
        rows = (recipe or "").startswith("rowwise")
        how = "torchao: E4M3 throughout" if rows else "torchao: E4M3 forward, E5M2 for gradients"
        draft.put((*pointer, "format"), "fp8-e4m3" if rows else "fp8-hybrid", how)
        draft.put((*pointer, "scaling"), "current", f"torchao scales dynamically: {recipe or 'tensorwise'}")
    elif kinds & {"mx", "mxfp8"}:
        draft.put((*pointer, "format"), "mxfp8", "the converter mx")
        draft.put((*pointer, "scaling"), "block")
        draft.put((*pointer, "block_size"), 32, "part of the format")
        homes = ("mx", "quantize.linear.mx")
    else:
        return
    kept = draft.look(*(f"{home}.filter_fqns" for home in homes))
    items = kept.split(",") if isinstance(kept, str) else kept if isinstance(kept, list) else []
    layers = [name for name in (name_of(item) for item in items if isinstance(item, str)) if name]
    draft.put(
        (*pointer, "high_precision_layers"), ["tok_embeddings", *layers], "filter_fqns, and what is no linear layer"
    )
    draft.put((*pointer, "scaling_state_checkpointed"), value=False, how="scales follow from the tensors at each step")


def _write_rest(draft: Draft) -> None:
    draft.copy(("job", "num_steps"), "training.steps")
    draft.copy(("job", "seed"), "training.seed", "debug.seed", least=0)
    mode = draft.word("activation_checkpoint.mode")
    offload = draft.flag("training.enable_cpu_offload")
    if mode in {"none", "selective", "full"}:
        option = draft.look("activation_checkpoint.selective_ac_option") if mode == "selective" else None
        put_selective(draft, mode, option, "activation_checkpoint.selective_ac_option")
    elif mode:
        draft.lacks(("memory", "activation_policy"), f"the mode is {shown(mode)}")
    else:
        reason = next(iter(draft.reasons("activation_checkpoint.mode")), "")
        usual = "activation_checkpoint.mode is not given: selective or none, as the version of torchtitan decides"
        draft.lacks(("memory", "activation_policy"), reason or usual)
    if offload:
        entries = [
            {"what": what, "target": "host", "fraction": 1.0} for what in ("parameters", "gradients", "optimizer")
        ]
        draft.put_records(("memory", "offload"), entries, f"enable_cpu_offload: all three, after {_DEFAULTS}")
    seconds = draft.number("comm.train_timeout_seconds")
    if seconds:
        draft.put(("communication", "timeout_seconds"), seconds)
    if draft.get("parallelism", "sharding") != "none":
        how = "FSDP prefetches parameters and reduces gradients during computation"
        draft.put(("communication", "overlap_gradients"), value=True, how=how)
        draft.put(("communication", "overlap_parameters"), value=True, how=how)
    interval = draft.count("checkpoint.interval")
    enabled = draft.flag("checkpoint.enable_checkpoint", "checkpoint.enable")
    if interval and enabled is not False:
        draft.remark(f"a checkpoint every {interval} steps; it belongs into a checkpoint policy", "checkpoint.interval")


FORMATS = (Format("torchtitan-toml", "job configuration of torchtitan", "TrainingPlan", looks_like, read),)
