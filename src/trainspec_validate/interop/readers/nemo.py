"""Reads configurations of NeMo's Megatron models and of Megatron Bridge."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._composed import leave_composed_open
from trainspec_validate.interop.readers._megatron_defaults import drop_all_defaults, drop_defaults, leave_chunks_open
from trainspec_validate.interop.readers._megatron_plan import write_plan
from trainspec_validate.interop.readers._nemo_count import count_more, count_stated, mark_usual
from trainspec_validate.interop.readers._optimizer_plan import write_megatron, write_nemo
from trainspec_validate.interop.readers._overriding import NEMO, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, Habit, Lines, is_count, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, resolved
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_HEAD = 256 * 1024
_BRIDGE_TRAIN = frozenset({"train_iters", "train_samples", "micro_batch_size", "global_batch_size"})
_SECTION = re.compile(r"([A-Za-z_]\w{0,60})[ \t]*:")
_INNER = re.compile(r"([ \t]+)['\"]?([A-Za-z_]\w{0,100})['\"]?[ \t]*:")
_MEGATRON = frozenset(
    {
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size"),
        *("hidden_size", "encoder_seq_length", "megatron_amp_O2"),
    }
)
"""Settings right below `model` that models of NeMo on Megatron have; other models have other defaults."""
_NEMO_ALONE = re.compile(
    r"megatron_amp_O2|encoder_seq_length|mcore_gpt|restore_from_path|(?:native|hysteresis|apex)_\w+|gradient_as_bucket_view"
    r"|activations_checkpoint_\w+|make_vocab_size_divisible_by|(?:virtual_)?pipeline_model_parallel_size|transformer_engine"
    r"|tensor_model_parallel_size|sequence_parallel|context_parallel_size|expert_model_parallel_size"
)
"""Settings right below `model` that a program with its own names for sizes and batches has not."""
_NEMO_WORDS = re.compile(r"\b(?:distributed_(?:fused_)?adam|mcore_distributed_optim|peft_scheme)\b")
_BRIDGE_MODEL = frozenset(
    {
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
        *("expert_model_parallel_size", "sequence_parallel", "recompute_granularity"),
    }
)
"""Settings right below `model` of Megatron Bridge; other programs also have sections `model` and `train`."""
_BRIDGE_SHAPE = frozenset({"num_layers", "hidden_size", "seq_length"})
"""Further ones, which count where `train` has a length by a name of Megatron."""
_BRIDGE_LENGTH = frozenset({"train_iters", "train_samples"})
_CONTAINER = "ConfigContainer."
"""Section in which a file may keep all settings of Megatron Bridge."""
_BY_RECIPE = "the file overrides a recipe and does not say; the recipe decides"
_BRIDGE = re.compile(r"(?m)^[ \t]*_target_:[ \t]*['\"]?megatron\.bridge\.")
_NEURON = re.compile(r"(?m)^(?:distributed_strategy|strategy|plugins)[ \t]*:")
"""Sections that NeMo 2 and its descendant for Neuron devices have in place of the settings that are read here."""
_OTHER_NAMES = re.compile(
    r"(?i)(?:^|[_-])(?:t5|ul2|bart|bert|retro|mamba|hyena|griffin|nmt|neva|clip|vit|mllama)(?:[_-]|$)|recurrentgemma"
)
_OTHER_SETTINGS = re.compile(
    r"^(?:model\.)?(?:encoder|decoder|mm_cfg|vision|hyena|retro|image_encoder|perception)\.|split_rank$|mamba|hyena|_recurrent$|^is_retro$"
)
_OPERATORS = re.compile(r"(?i)hyena|mamba|griffin|recurrent")
_GATED = frozenset({"swiglu", "fast-swiglu", "geglu", "fast-geglu", "reglu", "fast-reglu"})
_SHARDED = frozenset({"distributed_fused_adam", "mcore_distributed_optim", "distributed_adam"})
_OPTIMIZERS = _SHARDED | frozenset(
    {
        *("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "adan", "fused_adam", "lamb", "lion"),
        *("megatron_fused_adam", "muon", "novograd", "radam", "rmsprop", "rprop", "sgd"),
    }
)
"""Source: NVIDIA/NeMo@b1f5aa3a:nemo/core/optim/optimizers.py."""
_SOME_RECIPES = ("bf16_mixed", "fp16_mixed", "bf16_with_mxfp8_mixed", "bf16_with_fp8_delayed_scaling_mixed")
_JUDGED, _LEAST_KNOWN = 8, 5
"""From how many settings right below `model` on their known share counts, and one in how many is known at least."""
_SUMS = "model.optim.grad_sync_dtype"
_PRECISIONS = {
    **dict.fromkeys(("bf16", "bf16-mixed", "bf16-true"), "bf16"),
    **dict.fromkeys(("16", "16-mixed", "16-true", "fp16"), "fp16"),
    **dict.fromkeys(("32", "32-true", "fp32"), "fp32"),
}
"""Formats of products by the words of Lightning for `trainer.precision`, and by their own names."""
_WIDE = frozenset({"32", "fp32", "float", "float32", "torch.float32"})
_NARROW = frozenset({"16", "bf16", "fp16", "half", "float16", "bfloat16", "torch.float16", "torch.bfloat16"})
_ALGORITHM = re.compile(
    r"trainer\.(?:dpo|draftp_sd|knowledge_distillation|kto|ppo|reinforce|rm|rs|self_rewarding|sft|spin)\.max_steps"
)
_SUMS_SOURCE = "NVIDIA/NeMo@b1f5aa3a:nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py"

_NEEDED = ("trainer.precision", "exp_manager", "model.optim")
"""Settings that each training program of NeMo's Megatron models reads.

Source: NVIDIA/NeMo@00780235:nemo/collections/nlp/parts/megatron_trainer_builder.py and megatron_gpt_pretraining.py.
"""
_NEMO = {
    "model.data.seq_length": "seq_length",
    "model.override_vocab_size": "padded_vocab_size",
    "model.bias": "add_bias_linear",
    "model.qkv_bias": "add_qkv_bias",
    "model.activations_checkpoint_granularity": "recompute_granularity",
    "model.activations_checkpoint_method": "recompute_method",
    "model.activations_checkpoint_num_layers": "recompute_num_layers",
    "model.ub_tp_comm_overlap": "tp_comm_overlap",
    "model.native_amp_init_scale": "initial_loss_scale",
    "model.native_amp_growth_interval": "loss_scale_window",
    "model.optim.overlap_grad_sync": "overlap_grad_reduce",
    "model.optim.overlap_param_sync": "overlap_param_gather",
    "model.optim.ddp_bucket_size": "ddp_bucket_size",
    "model.data.num_workers": "num_workers",
    "trainer.max_steps": "train_iters",
    "exp_manager.checkpoint_callback_params.every_n_train_steps": "save_interval",
}
"""Settings of NeMo that Megatron-LM calls by another name.

`model.data.seq_length` is the length of the samples of pretraining, whatever `model.encoder_seq_length` says; stages of
a pipeline exchange activations of the latter. Source:
NVIDIA/NeMo@8cfedd72:nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py.
"""
_RETRO = "NVIDIA/NeMo@8cfedd72:nemo/collections/nlp/models/language_modeling/megatron_retro_model.py"

_SECTIONS = (
    "model",
    "dataset",
    "train",
    "optimizer",
    "ddp",
    "comm_overlap",
    "mixed_precision",
    "checkpoint",
    "dist",
    "rng",
)
"""Sections of Megatron Bridge whose settings have the names of Megatron-LM's arguments; later ones win."""
_RENAMED = {"dataset.sequence_length": "seq_length", "optimizer.optimizer": "optimizer"}
_STORED = ("compute", "parameters", "gradients", "accumulation", "reduction", "optimizer_state")
_SUMMED: tuple[Pointer, ...] = tuple(("precision", key) for key in ("gradients", "accumulation", "reduction"))
_DATASET = frozenset({"sequence_length", "num_workers"})


_FLOW = re.compile(r"[{}\[\]]|['\"]?(?P<key>[A-Za-z_]\w{0,100})['\"]?[ \t]*:(?=[ \t\r\n])")
_MAX_FLOW = 64 * 1024


def _top(head: str, name: str) -> bool:
    return bool(re.search(rf"(?m)^{name}[ \t]*:", head))


def _keys_below(head: str, name: str) -> frozenset[str]:
    r"""Keys right below a section at the top of a YAML text, in block style or in braces.

    >>> sorted(_keys_below("model:\n  a: 1\n  b:\n    c: 2\ntrain:\n  d: 3\n", "model"))
    ['a', 'b']
    >>> sorted(_keys_below("model: {a: 1, b: {c: 2},\n  d: 3}\ntrain: {e: 4}\n", "model"))
    ['a', 'b', 'd']
    """
    flow = re.search(rf"(?m)^{name}[ \t]*:[ \t]*(?=\{{)", head)
    if flow is not None:
        return _keys_in_braces(head[flow.end() : flow.end() + _MAX_FLOW])
    keys: set[str] = set()
    inside, indent = False, ""
    for line in head.split("\n"):
        if top := _SECTION.match(line):
            inside, indent = top[1] == name, ""
        elif inside and (found := _INNER.match(line)):
            indent = indent or found[1]
            if found[1] == indent:
                keys.add(found[2])
    return frozenset(keys)


def _keys_in_braces(text: str) -> frozenset[str]:
    """The keys of the outermost mapping of a text that begins with its brace."""
    keys: set[str] = set()
    level = 0
    for found in _FLOW.finditer(text):
        if found["key"] is None:
            level += 1 if found[0] in "{[" else -1
            if level == 0:
                break
        elif level == 1:
            keys.add(found["key"])
    return frozenset(keys)


def looks_like_nemo(text: ForeignText) -> bool:
    """Whether a text is YAML with the sections of a NeMo model with Megatron's sizes."""
    head = text.text[:_HEAD]
    if _NEURON.search(head):
        return False
    keys = _keys_below(head, "model")
    own = _top(head, "exp_manager") or _NEMO_WORDS.search(head) or any(map(_NEMO_ALONE.fullmatch, keys))
    return _top(head, "trainer") and bool(_MEGATRON & keys and own) and not _BRIDGE.search(head)


def looks_like_bridge(text: ForeignText) -> bool:
    """Whether a text is YAML of a Megatron Bridge configuration or of overrides for one."""
    head = text.text[:_HEAD]
    if _BRIDGE.search(head):
        return True
    keys, train = _keys_below(head, "model"), _keys_below(head, "train")
    own = _top(head, "ddp") or _top(head, "mixed_precision") or bool(_BRIDGE_MODEL & keys)
    own = own or bool(_BRIDGE_SHAPE & keys and _BRIDGE_LENGTH & train)
    return own and not _top(head, "trainer") and bool(_BRIDGE_TRAIN & train)


def read_nemo(text: ForeignText) -> Fragment:
    """The plan that a NeMo configuration of a Megatron model describes; references to plain values are followed.

    Raises:
        ForeignFormatError: it is no YAML mapping.
    """
    source = load_mapping(text)
    values, origins = _by_argument(resolved(flatten(source.data)))
    lines = _lines(lines_in(source), origins)
    draft = settled(values, lambda given: _made_of_nemo(given, lines, origins))
    return draft.fragment("nemo-megatron-yaml", text)


def _made_of_nemo(values: dict[str, Any], lines: Lines, origins: Mapping[str, str]) -> Draft:
    draft = Draft(values, lines, origins)
    draft.look("trainer.accumulate_grad_batches")  # is 1: global_batch_size decides
    name = draft.word("exp_manager.name", "name")
    if name and name_of(name):
        draft.put(("metadata", "name"), name_of(name))
    _take_precision(draft, values)
    if draft.word("activation") in _GATED:
        values["swiglu"] = True
    optimizer = draft.known(_OPTIMIZERS, "model.optim.name")
    sums = ""
    if other := _other_model(values):
        draft.remark(f"{other} shows that the model is not a plain decoder; its parameters must be given", other)
        values["is_hybrid_model"] = True
        draft.used.add("is_hybrid_model")
    if optimizer in _SHARDED:
        values["use_distributed_optimizer"] = True
        sums = _take_sums(draft, values)
    write_plan(draft)
    if other:
        _leave_open(draft, other)
    _correct(draft, sums)
    write_nemo(draft)
    if (setting := _lacking(origins.values())) is not None:
        why = f"NeMo's own programs read {setting}, which the file lacks: another program reads it, or completes it"
        drop_all_defaults(draft, why)
    elif _is_foreign(draft):
        draft.drop_defaults("this reader knows hardly a setting of `model`, so defaults of Megatron may not hold")
    source = _starts_from(values)
    if source and not any(values.get(name) for name in ("num_layers", "encoder_num_layers", "hidden_size")):
        draft.drop_defaults(f"{source} names what the job starts from, which may set it")
    count_more(draft)
    _leave_length_open(draft)
    covered = leave_composed_open(draft)
    devices, nodes = draft.count("trainer.devices"), draft.count("trainer.num_nodes")
    world = devices * nodes if devices and nodes and not covered else None
    complete(draft, world, f"trainer.devices {devices} x trainer.num_nodes {nodes}")
    mark_usual(draft)
    leave_overridden_open(draft, NEMO)
    return draft


def _leave_length_open(draft: Draft) -> None:
    """The length of a job of NeMo-Aligner: the section of its algorithm bounds it, by epochs of data as well.

    No loop reads `trainer.max_steps`. Source: NVIDIA/NeMo-Aligner: nemo_aligner/algorithms/supervised.py.
    """
    for name in filter(_ALGORITHM.fullmatch, draft.values):
        why = f"{name} and the epochs of its section end the job, whichever is first; trainer.max_steps does not"
        draft.drop([("job", "num_steps"), ("optimizer", "learning_rate", "total_steps")], why)
        return


def _leave_library_open(draft: Draft) -> None:
    """The collective library where the accelerators are none of NVIDIA, whose library is the default."""
    accelerator = draft.word("trainer.accelerator")
    if accelerator not in {None, "gpu", "cuda", "auto"}:
        draft.drop([("communication", "library", "name")], f"trainer.accelerator is {cut_to(accelerator, 40)}")


def _lacking(names: Collection[str]) -> str | None:
    """What no program of NeMo trains a Megatron model without, of settings by their own names; None for all of it."""
    for needed in _NEEDED:
        if not any(name == needed or name.startswith(f"{needed}.") for name in names):
            return needed
    return None if any(name.endswith(".hidden_size") for name in names) else "model.hidden_size"


def _is_foreign(draft: Draft) -> bool:
    """Whether less than a fifth of the settings right below `model` were read, as for a model of another kind."""
    own = [name for name in draft.values if re.fullmatch(r"model\.[^.]+", draft.origins.get(name, ""))]
    return len(own) >= _JUDGED and sum(name in draft.used for name in own) * _LEAST_KNOWN < len(own)


def _starts_from(values: Mapping[str, Any]) -> str | None:
    """The setting that names a checkpoint whose configuration fills in what the file leaves out."""
    for name, value in values.items():
        if "pretrained_checkpoint" in name or (name.rpartition(".")[2] == "restore_from_path" and value is not None):
            return name
    return None


def _leave_open(draft: Draft, setting: str) -> None:
    """Defaults of a plain decoder say nothing about another model, whose parts have settings of their own."""
    for section, key in (("model", "gated_ffn"), ("model", "tied_embeddings"), ("memory", "activation_policy")):
        if isinstance(draft.derived.get((section, key)), Default):
            draft.facts[section].pop(key, None)
            draft.derived.pop((section, key))
            draft.lacks((section, key), f"{setting} shows that the model is not a plain decoder")
    if _OPERATORS.search(f"{setting} {draft.values.get(setting)}"):
        draft.drop([("model", "attention")], f"{setting} shows layers with another operator than attention")


def _leave_sizes_open(draft: Draft) -> None:
    """Leave open lengths that differ, and of RETRO what the project of its preprocessed data replaces (_RETRO)."""
    _leave_two_lengths_open(draft)
    if "model.retro.retro_project_dir" not in draft.values:
        return
    draft.look("model.retro.retro_project_dir")
    batch = [("batch", key) for key in ("global_sequences", "accumulation_steps", "ramp")]
    places = [("model", "sequence_length"), *batch, ("job", "seed")]
    why = f"the project of retro_project_dir replaces it, and is not read ({_RETRO})"
    draft.drop([at for at in places if draft.get(*at) is not None], why)
    draft.unknown.update((at, why) for at in places[:2])


def _leave_two_lengths_open(draft: Draft) -> None:
    """The length of samples where stages of a pipeline exchange activations of another one: such a job cannot run."""
    samples, exchanged = draft.values.get("seq_length"), draft.values.get("encoder_seq_length")
    stages = draft.counted("parallelism", "pipeline") or 1
    if is_count(samples) and is_count(exchanged) and samples != exchanged and stages > 1:
        why = f"data.seq_length is {samples}, and stages of the pipeline exchange encoder_seq_length {exchanged}"
        draft.drop([("model", "sequence_length")], why)


def _other_model(values: Mapping[str, Any]) -> str | None:
    """The setting that only a model which is no plain decoder has, or whose value names such a model."""
    for name, value in values.items():
        named = name.rpartition(".")[2] in {"name", "type"} and isinstance(value, str) and _OTHER_NAMES.search(value)
        if named or _OTHER_SETTINGS.search(name):
            return name
    return None


def _by_argument(flat: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings by the names of Megatron-LM's arguments, and the names that the file has for them."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        if name == "model.data.seq_length" and str(value).endswith("model.encoder_seq_length}"):
            continue  # a file that is laid below a section, such as `training`, refers to its own setting
        argument = _NEMO.get(name) or (key if section == "model" and "." not in key else name)
        if argument not in values or values[argument] is None:
            values[argument], origins[argument] = value, name
    return values, origins


def _lines(find: Lines, origins: Mapping[str, str]) -> Lines:
    def lines(names: Iterable[str]) -> Mapping[str, int]:
        known = [name for name in names if name in origins]
        found = find([origins[name] for name in known])
        return {name: found[origins[name]] for name in known if origins[name] in found}

    return lines


def _take_precision(draft: Draft, values: dict[str, Any]) -> None:
    """`trainer.precision` is a number, or a word such as `bf16-mixed`."""
    precision = draft.known(_PRECISIONS, "trainer.precision")
    if precision is not None and _PRECISIONS[precision] != "fp32":
        values[_PRECISIONS[precision]] = True
    if draft.flag("fp8") and draft.flag("fp8_hybrid", "fp8_e4m3") is not None:
        # NeMo asks for e4m3 first (NVIDIA/NeMo: megatron_gpt_model.py and transformer.py).
        values["fp8"] = "e4m3" if draft.flag("fp8_e4m3") else "hybrid"
        draft.flag("fp8_hybrid")
        if draft.flag("fp8_params"):
            values["fp8_param_gather"] = True
    elif not draft.flag("fp8") and not draft.word("fp8"):
        values.pop("fp8", None)


def _take_sums(draft: Draft, values: dict[str, Any]) -> str:
    """Settings of Megatron-LM for the format in which a distributed optimizer sums gradients, and why.

    It is fp32 unless `grad_sync_dtype` says otherwise, and the compute format then. Source: _SUMS_SOURCE.
    """
    word = draft.known(sorted(_WIDE | _NARROW), _SUMS)
    name = "grad_reduce_in_bf16" if word in _NARROW else "accumulate_allreduce_grads_in_fp32"
    values[name] = word not in _NARROW or bool(values.get("bf16"))
    draft.used.add(name)
    return f"{_SUMS} is {word}" if word else Default(f"fp32, the default of {_SUMS_SOURCE}")


def _correct(draft: Draft, sums: str) -> None:
    """What NeMo does in another way than Megatron-LM; `sums` says why gradients have their format, where it is told."""
    if sums and draft.get("precision", "compute") != "fp32":
        for key in ("gradients", "accumulation", "reduction"):
            draft.derived["precision", key] = sums
            for reason in draft.reasons(_SUMS):
                draft.facts["precision"].pop(key, None)
                draft.lacks(("precision", key), reason)
    wide = draft.flag("megatron_amp_O2")
    if draft.get("precision", "compute") != "fp32" and not wide:
        why = "without megatron_amp_O2 parameters stay in fp32 and operands are cast"
        why = Default(why) if wide is None else Habit(why)
        draft.facts["precision"].pop("master_parameters", None)
        draft.derived.pop(("precision", "master_parameters"), None)
        for key in ("parameters", "gradients", "accumulation", "reduction"):
            draft.put(("precision", key), "fp32", why)
    if "trainer.precision" in draft.doubted:
        draft.drop([("precision", key) for key in _STORED], draft.doubted["trainer.precision"][0])
    _leave_library_open(draft)
    drop_defaults(draft)
    _leave_sizes_open(draft)


def read_bridge(text: ForeignText) -> Fragment:
    """The plan that a configuration of Megatron Bridge describes, or overrides for a recipe.

    Raises:
        ForeignFormatError: it is no YAML mapping.
    """
    source = load_mapping(text)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    flat = flatten(source.data)
    ranks = {section: position for position, section in enumerate(_SECTIONS)}
    written = {name.removeprefix(_CONTAINER): name for name in flat}
    flat = {short: flat[name] for short, name in written.items()}
    for name in sorted(flat, key=lambda name: ranks.get(name.partition(".")[0], -1)):
        section, _, key = name.partition(".")
        inside = section in ranks and "." not in key and (section != "dataset" or key in _DATASET)
        argument = _RENAMED.get(name) or (key if inside and key else name)
        value = flat[name]
        if name.endswith("._target_") and inside is False and section in ranks and key.count(".") == 1:
            argument, value = key.partition(".")[0], _number_format(value)
        if value is not None or argument not in values:
            values[argument], origins[argument] = value, written[name]
    lines = _lines(lines_in(source), origins)
    draft = settled(values, lambda given: _made_of_bridge(given, lines, origins, whole="_target_" in flat))
    return draft.fragment("megatron-bridge-yaml", text)


def _made_of_bridge(values: dict[str, Any], lines: Lines, origins: Mapping[str, str], *, whole: bool) -> Draft:
    """`whole` is for a configuration; what is none overrides a recipe."""
    draft = Draft(values, lines, origins)
    draft.used.update(name for name in values if name.endswith(("_target_", "_call_")))
    _take_recipe(draft, values)
    write_plan(draft)
    if whole:
        drop_defaults(draft)
    else:
        drop_all_defaults(draft, _BY_RECIPE, [("parallelism", "schedule")])
        leave_chunks_open(draft, _BY_RECIPE)
        if draft.flag("grad_reduce_in_fp32") is False:
            why = "grad_reduce_in_fp32 is false: the compute format, which the recipe decides"
            draft.unknown.update((at, why) for at in _SUMMED if draft.unknown.get(at) == _BY_RECIPE)
    write_megatron(draft, defaults=False)
    count_stated(draft)
    leave_composed_open(draft)
    complete(draft)
    if any(name.partition(".")[0] == "peft" and value is not None for name, value in values.items()):
        draft.lacks(("lora",), "peft trains adapters, which this reader does not read")
    return draft


def _number_format(target: object) -> object:
    words = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32", "torch.uint8": "fp8"}
    return words.get(target, target) if isinstance(target, str) else target


def _take_recipe(draft: Draft, values: dict[str, Any]) -> None:
    """`mixed_precision` may be the name of a recipe, such as `bf16_with_fp8_current_scaling_mixed`."""
    name = draft.word("mixed_precision")
    if name is None:
        return
    values["bf16"], values["fp16"] = "bf16" in name, "fp16" in name
    for word, recipe in (
        ("mxfp8", "mxfp8"),
        ("subchannel", "blockwise"),
        ("current", "tensorwise"),
        ("delayed", "delayed"),
    ):
        if "fp8" in name and word in name:
            values["fp8"], values["fp8_recipe"] = "hybrid", recipe
            break
    if not (values["bf16"] or values["fp16"]) or "fp4" in name or ("fp8" in name and "fp8" not in values):
        why = f"mixed_precision names a recipe that is not known: {name[:60]!r}"
        draft.doubt("mixed_precision", why, _SOME_RECIPES)
    draft.remark(f"mixed_precision names the recipe {name[:60]!r}; read by the words in its name", "mixed_precision")


FORMATS = (
    Format("megatron-bridge-yaml", "configuration of Megatron Bridge", "TrainingPlan", looks_like_bridge, read_bridge),
    Format("nemo-megatron-yaml", "configuration of a NeMo Megatron model", "TrainingPlan", looks_like_nemo, read_nemo),
)
