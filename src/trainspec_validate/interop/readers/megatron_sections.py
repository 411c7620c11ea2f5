"""Reads configurations of Primus and FlagScale, which hold arguments of Megatron-LM in sections of YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._composed import leave_composed_open
from trainspec_validate.interop.readers._megatron_defaults import (
    drop_all_defaults,
    leave_chunks_open,
    leave_foreign_model_open,
)
from trainspec_validate.interop.readers._megatron_model import SIZED_TOKENIZERS
from trainspec_validate.interop.readers._megatron_plan import write_plan
from trainspec_validate.interop.readers._nemo_count import count_stated
from trainspec_validate.interop.readers._optimizer_plan import write_megatron
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, Lines, is_count
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, resolved
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_HEAD = 256 * 1024
_PRIMUS = (
    re.compile(r"(?m)^modules[ \t]*:"),
    re.compile(r"(?m)^[ \t]+framework[ \t]*:[ \t]*[\"']?megatron\b"),
    re.compile(r"(?m)^[ \t]+overrides[ \t]*:"),
)
_FLAGSCALE = (
    re.compile(r"(?m)^system[ \t]*:"),
    re.compile(r"(?m)^model[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:tensor|pipeline)_model_parallel_size[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:num_layers|micro_batch_size)[ \t]*:"),
)
_OVERRIDES = re.compile(r"modules\.[^.]+\.overrides\.(?P<name>[^.]+)")
_FRAMEWORK = re.compile(r"modules\.[^.]+\.framework")
_MODULE = re.compile(r"modules\.(?P<module>[^.]+)\.overrides\.")
_SECTIONS = re.compile(r"(?:system|model|data)\.(?:.+\.)?(?P<name>[^.]+)")
"""FlagScale passes each setting of these sections by its last name, whatever group it is in.

Source: FlagOpen/FlagScale: flagscale/runner/utils.py, flatten_dict_to_args.
"""
_BY_PRIMUS = "the file overrides the module and the model that Primus names, and does not say; they decide"
_BY_FLAGSCALE = "the program that FlagScale starts decides, and the experiment that names it is another file"
_EXPERTS = "expert_tensor_parallel_size_per_process_mesh"
_DATA, _AXES = 3, 5
"""The place of the data ranks among the degrees of a mesh: tensor, context, expert, data and pipeline."""
_DEGREES = ("tensor", "pipeline", "context", "data", "expert", "sequence", "schedule", "num_virtual_stages")


def _has(marks: Iterable[re.Pattern[str]], text: str) -> bool:
    head = text[:_HEAD]
    return head.lstrip()[:1] not in {"{", "<"} and all(mark.search(head) for mark in marks)


def looks_like_primus(text: ForeignText) -> bool:
    """Whether a text is YAML with overrides of a module of Primus that runs Megatron-LM."""
    return _has(_PRIMUS, text.text)


def looks_like_flagscale(text: ForeignText) -> bool:
    """Whether a text is YAML with the sections of a training of FlagScale."""
    return _has(_FLAGSCALE, text.text)


def read_primus(text: ForeignText) -> Fragment:
    """The plan that the overrides of one module of Primus describe; what it names for the rest is not read.

    Raises:
        ForeignFormatError: no module, or several, have overrides for Megatron-LM.
    """
    flat = flatten(load_mapping(text).data)
    modules = {found["module"] for name in flat if (found := _MODULE.match(name))}
    frameworks = {value for name, value in flat.items() if _FRAMEWORK.fullmatch(name)}
    if len(modules) != 1 or frameworks != {"megatron"}:
        raise ForeignFormatError("has no one module with arguments of Megatron-LM", help="give a file for one module")
    return _read(text, _OVERRIDES, _BY_PRIMUS, "primus-megatron-yaml")


def read_flagscale(text: ForeignText) -> Fragment:
    """The plan that the arguments of a training of FlagScale describe.

    Raises:
        ForeignFormatError: it is no YAML mapping.
    """
    return _read(text, _SECTIONS, _BY_FLAGSCALE, "flagscale-megatron-yaml")


def _read(text: ForeignText, own: re.Pattern[str], why: str, form: str) -> Fragment:
    source = load_mapping(text)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in resolved(flatten(source.data)).items():
        found = own.fullmatch(name)
        argument = found["name"] if found else name
        if value is not None or argument not in values:
            values[argument], origins[argument] = value, name
    find = lines_in(source)

    def lines(names: Iterable[str]) -> Mapping[str, int]:
        known = {name: origins[name] for name in names if name in origins}
        placed = find(known.values())
        return {name: placed[origin] for name, origin in known.items() if origin in placed}

    return settled(values, lambda given: _made(given, lines, origins, why)).fragment(form, text)


def _made(values: dict[str, Any], lines: Lines, origins: Mapping[str, str], why: str) -> Draft:
    draft = Draft(values, lines, origins)
    write_plan(draft)
    _leave_vocabulary_open(draft)
    drop_all_defaults(draft, why)
    leave_chunks_open(draft, why)
    write_megatron(draft, defaults=False)
    if draft.flag("enable_hetero"):
        _take_meshes(draft)
    if any(name.startswith("recompute_") and name.endswith("_per_stage_micro_batch") for name in values):
        draft.drop([("memory", "activation_policy")], "each stage and micro-batch has its own recomputation")
    count_stated(draft)
    leave_composed_open(draft)
    complete(draft)
    leave_foreign_model_open(draft)
    return draft


def _leave_vocabulary_open(draft: Draft) -> None:
    """Leave the vocabulary open where the tokenizer, such as AquilaTokenizerFS, counts and pads its own words.

    Source: FlagOpen/FlagScale: flagscale/train/tokenizer, whose classes take no `vocab_size`.
    """
    kind = draft.word("tokenizer_type")
    if kind and kind not in SIZED_TOKENIZERS and not draft.count("padded_vocab_size", "pad_vocab_size_to"):
        draft.drop(
            [("model", "vocabulary_size")], f"{cut_to(kind, 60)} counts the words of its own files, which are padded"
        )


def _take_meshes(draft: Draft) -> None:
    """What the meshes of `enable_hetero` leave of the settings for the whole job.

    Source: FlagOpen/FlagScale: flagscale/train/arguments.py, pre_validate_args.
    """
    meshes = "enable_hetero gives each part of the pipeline degrees of its own, which are not read"
    draft.drop([("parallelism", axis) for axis in _DEGREES], meshes)
    experts = draft.look(_EXPERTS)
    if experts is None and draft.count("expert_tensor_parallel_size") is None:
        draft.drop([("parallelism", "expert_tensor")], meshes)
    elif experts is not None:
        agreed = experts[0] if isinstance(experts, list) and len(set(map(repr, experts))) == 1 else None
        draft.drop([("parallelism", "expert_tensor")], f"{_EXPERTS} gives the parts different ones")
        if is_count(agreed):
            draft.put(("parallelism", "expert_tensor"), agreed, f"{_EXPERTS}, alike for all parts")
    sizes = draft.look("hetero_process_meshes")
    if not isinstance(sizes, list) or len(set(map(repr, sizes[_DATA::_AXES]))) != 1:
        why = "a part with other data ranks than the first has other micro-batches"
        draft.drop([("batch", "micro_sequences")], f"hetero_process_meshes: {why}")


FORMATS = (
    Format("flagscale-megatron-yaml", "training of FlagScale", "TrainingPlan", looks_like_flagscale, read_flagscale),
    Format(
        "primus-megatron-yaml", "module of Primus that runs Megatron-LM", "TrainingPlan", looks_like_primus, read_primus
    ),
)
