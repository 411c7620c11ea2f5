"""Reads how MaxText was started: YAML, launch scripts and logged settings."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._environment import held_by_xla, xla_flags
from trainspec_validate.interop.readers._maxtext_mesh import axes_of
from trainspec_validate.interop.readers._maxtext_plan import (
    SIZES,
    follows_from_defaults,
    settings_of_a_model,
    write_model,
    write_plan,
)
from trainspec_validate.interop.readers._overriding import MAXTEXT, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete, keep_model
from trainspec_validate.interop.readers._plan_parts import Draft, Lines, name_of, word_value
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._shell_choices import has_marks
from trainspec_validate.interop.readers._shell_found import Found, Option
from trainspec_validate.interop.readers._shell_options import Reader, Started, tell_outside
from trainspec_validate.interop.readers._shell_unread import leave_open, leave_unread_open
from trainspec_validate.interop.readers._shell_variables import Script, Word
from trainspec_validate.interop.readers._slurm_script import script_of
from trainspec_validate.interop.readers._training_programs import trains_nothing, without_training
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_HEAD = 1024 * 1024
_OWN = (
    r"(?:(?:ici|dcn)_[a-z_]+_parallelism|per_device_batch_size|base_emb_dim|base_num_decoder_layers|base_mlp_dim"
    r"|max_target_length|remat_policy|base_output_directory|logits_via_embedding|base_config)"
)
_YAML = re.compile(rf"(?m)^(?P<key>{_OWN})[ \t]*:")
_WORD = re.compile(rf"(?:^|[\s\"'])(?P<key>{_OWN})=")
_LOG = re.compile(r"Config param (?P<key>[A-Za-z0-9_]{1,80}): ?(?P<value>[^\n]{0,4096})")
_PROGRAM = re.compile(r"(?i)^(?:\S*/)?[\w${}-]+\.py$|^maxtext\.[\w.${}-]+$")
_MODULE = re.compile(r"[\w.${}-]+")
_SHAPE = re.compile(
    r"(?:gke-tpu-topology[\"']?[ \t]*[:=][ \t]*[\"']?|--(?:tpu-topology|topology)[ =]"
    r"|--(?:device|tpu)-type[ =]\w{2,12}-)([0-9]{1,4}x[0-9]{1,4}(?:x[0-9]{1,4})?)\b"
)
"""The shape of a slice of TPUs that xpk or Kubernetes is asked for."""
_BASE = "base.yml"
_OF_A_MODEL = settings_of_a_model() - {"model_name", "max_target_length"}
_FEWEST = 2
_OF_A_JOB = frozenset({"steps", "per_device_batch_size", "learning_rate", "base_output_directory"})
"""Settings that a file which only describes a model does not have."""


@dataclass(frozen=True, slots=True)
class Background:
    """Settings of other files of the same job."""

    defaults: Mapping[str, Any]
    """Settings that those of the job go before: of base.yml and of configurations that it starts from."""
    model: Mapping[str, Any]
    """Settings of the file of the model, which go before those of a configuration."""
    given: frozenset[str]
    """Names of all files that are read."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one file, and its place among the files of a job."""

    values: Mapping[str, Any]
    starts_from: tuple[str, ...]
    """Names of the files that it inherits from, or that its command names."""
    only_model: bool
    is_base: bool


_ALONE = Background({}, {}, frozenset())


def _kind(text: str) -> str | None:
    head = text[:_HEAD]
    if head.lstrip()[:1] in {"{", "<"} or "maxdiffusion" in head:
        return None
    if _LOG.search(head) and "per_device_batch_size" in head:
        return "log"
    for name, pattern in (("yaml", _YAML), ("words", _WORD)):
        if len({found["key"] for found in pattern.finditer(head)}) >= _FEWEST:
            return name
    return None


def looks_like(text: ForeignText) -> bool:
    """Whether a text sets at least two settings that only MaxText has."""
    return _kind(text.text) is not None


def read(text: ForeignText, background: Background = _ALONE) -> Fragment:
    """The plan that settings of MaxText describe; of files that they inherit from, what `background` holds.

    Raises:
        ForeignFormatError: there are no such settings.
    """
    asked = _topology(text.text)
    kind = _kind(text.text) or ("words" if "=" in text.text and ":" not in text.text else "yaml")
    script = script_of(text.text) if kind == "words" else None
    further = Found()
    own, own_lines = _words(script, further) if script else (_logged if kind == "log" else _yaml)(text)
    named = [name for name in (_configurations(script) if script else ()) if _file(name) not in background.given]
    values = own if kind == "log" else _joined(own, background, goes_before_model=kind == "words")

    def lines(names: Iterable[str]) -> Mapping[str, int]:
        return own_lines([name for name in names if name in own])

    draft = settled(values, lambda given: _made(given, lines, named, asked, background.given))
    if script:
        _take_flags(draft, script)
        leave_unread_open(draft, Started({}, script, further))
        tell_outside(draft, script, further)
    return draft.fragment("maxtext-settings", text)


def settings_of(text: ForeignText) -> Settings:
    """Settings in a file of MaxText.

    Raises:
        ForeignFormatError: there are no such settings.
    """
    if _kind(text.text) != "yaml":
        if _kind(text.text) == "log":
            return Settings(_logged(text)[0], (), only_model=False, is_base=False)
        script = script_of(text.text)
        starts_from = (*map(_file, _configurations(script)), _BASE)
        return Settings(_words(script, Found())[0], starts_from, only_model=False, is_base=False)
    values = _yaml(text)[0]
    base = values.get("base_config")
    inherits = (_file(base),) if isinstance(base, str) else ()
    is_base = _file(text.name) == _BASE or (not inherits and values.get("model_name") == "default")
    return Settings(values, inherits, only_model=not _has_job(values), is_base=is_base)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def model_in(values: Mapping[str, Any]) -> str | None:
    """The model that settings name."""
    name = values.get("model_name")
    return name if isinstance(name, str) and name not in {"", "default"} and name_of(name) else None


def _has_job(values: Mapping[str, Any]) -> bool:
    return any(name in _OF_A_JOB or name.endswith("_parallelism") for name in values)


def _joined(own: Mapping[str, Any], background: Background, *, goes_before_model: bool) -> Mapping[str, Any]:
    """The settings that count; without those that the file of the model decides, where that is not read."""
    below, above = ({}, own) if goes_before_model else (own, {})
    values = {**background.defaults, **below}
    if _has_job({**own, **values}) and not background.model and model_in({**values, **above}):
        values = {name: value for name, value in values.items() if name not in _OF_A_MODEL}
    return {**values, **background.model, **above}


def _configurations(script: Script) -> list[str]:
    """YAML files that the commands name other than base.yml, whose defaults are known."""
    commands = [command for command in script.commands if any(_WORD.match(f" {word.text}") for word in command)]
    words = [word.text for command in commands for word in command if "=" not in word.text or has_marks(word.text)]
    shown = [part for word in words for part in script.choices.shown(word).split(" or ")]
    named = [name[:120] for name in dict.fromkeys(shown) if name.endswith((".yml", ".yaml"))]
    return [name for name in named if _file(name) != _BASE]


def _take_flags(draft: Draft, script: Script) -> None:
    """What flags of XLA on GPUs say, where the script sets them in one way."""
    value = script.variables.get("XLA_FLAGS", "")
    if has_marks(value):
        return

    def put(pointer: tuple[str, str], found: object) -> None:
        draft.put(pointer, found, "XLA_FLAGS of the script")

    flags = xla_flags(value)
    held = held_by_xla(flags, put, sharded=draft.get("parallelism", "sharding") == "parameters")
    if flags and held == flags.keys():
        draft.carried.add("XLA_FLAGS")


def _topology(text: str) -> str:
    """Why the devices are not known of a job that asks for a slice of TPUs by its shape; empty where it does not.

    >>> _topology("--tpu-type=v5p-4x4x8")
    'the job asks for TPU slices of 4x4x8 chips (128); how many devices of JAX a chip has, its generation decides'
    """
    shapes = list(dict.fromkeys(found[1] for found in _SHAPE.finditer(text[:_HEAD])))
    if not shapes:
        return ""
    sized = [f"{shape} chips ({math.prod(map(int, shape.split('x')))})" for shape in shapes[:2]]
    return (
        f"the job asks for TPU slices of {' or '.join(sized)}; how many devices of JAX a chip has, "
        "its generation decides"
    )


def _made(
    values: dict[str, Any], lines: Lines, named: list[str], asked: str = "", given: Collection[str] = ()
) -> Draft:
    draft = Draft(values, lines)
    base = draft.word("base_config")
    if base and _file(base) in given:
        base = None
    if _BASE in given and model_in(values) and draft.count("base_num_decoder_layers", "num_decoder_layers") is None:
        for key in SIZES:
            draft.lacks(("model", key), f"the file of the model {model_in(values)} decides it, which is not read")
    if base:
        draft.remark(f"the file inherits from {cut_to(base, 80)}, which is not read", "base_config")
        named = [*named, *([base[:120]] if _file(base) != _BASE else [])]
    if not _has_job(values):
        write_model(draft)
        keep_model(draft)
        return draft
    axes = axes_of(draft)
    if asked and axes.world is None:
        draft.lacks(("parallelism", "num_accelerators"), asked)
        draft.lacks(("parallelism", "data"), asked)
    write_plan(draft, axes)
    if not named:
        complete(draft, axes.world, axes.world_from)
        leave_overridden_open(draft, MAXTEXT)
        return draft
    why = f"{' or '.join(named)} may set it, which is not read"
    if not base:
        draft.remark(f"the settings start from {' or '.join(named)}, which is not read: import it as well")
    whole = axes.stated >= axes.degrees.keys()
    draft.drop(follows_from_defaults(draft, axes), why)
    complete(draft, axes.world if whole else None, axes.world_from)
    leave_open(draft, why)
    leave_overridden_open(draft, MAXTEXT)
    return draft


def _yaml(text: ForeignText) -> tuple[Mapping[str, Any], Lines]:
    source = load_mapping(text, "yaml")
    return flatten(source.data), lines_in(source)


def _logged(text: ForeignText) -> tuple[Mapping[str, Any], Lines]:
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    line, at = 1, 0
    for found in _LOG.finditer(text.text):
        line += text.text.count("\n", at, found.start())
        at = found.start()
        if found["key"] not in values:
            values[found["key"]] = _listed(found["value"].strip())
            places[found["key"]] = line
    return values, lambda names: {name: places[name] for name in names if name in places}


def _programs(script: Script, command: list[Word]) -> list[str]:
    """The program that a command starts, a file or a module after `-m`, by each name that it may have."""
    found: list[str] = []
    for before, word in pairwise(["", *(script.choices.shown(word.text) for word in command)]):
        pattern = _MODULE if before == "-m" else _PROGRAM
        found += [part for part in word.split(" or ") if pattern.fullmatch(part)]
    return [part.removesuffix(".py").replace(".", "/").rpartition("/")[2] for part in found]


def _words(script: Script, found: Found) -> tuple[Mapping[str, Any], Lines]:
    """The settings of the commands; `found` takes them, with the words that may hold further ones."""
    reader = Reader(script, _pair)
    idle: list[str] = []
    for command in script.commands:
        if any(_WORD.match(" " + word.text) or has_marks(word.text) for word in command):
            programs = _programs(script, command)
            if trains_nothing(programs):
                idle += programs
                continue
            here = reader.read(command)
            if any(re.fullmatch(_OWN, name) for name in here.options):
                found.outside.update(here.outside)
                found.further += here.further
            for name, possible in here.options.items():
                if not name.startswith("$"):  # what starts the program, and the program
                    found.options[name] = [*found.options.get(name, []), *possible]
    if idle and not found.options:
        raise without_training(idle[0])
    for name, value in script.variables.items():
        # A setting that stands first on its line reads like an assignment of the shell.
        if name not in found.options and re.fullmatch(_OWN, name):
            found.options[name] = [Option(word_value(value), script.places[name])]
    options = found.settings(script.outside)
    if not options:
        raise ForeignFormatError("no setting of MaxText is found", help="give the launch script or the YAML file")
    values = {
        name: _listed(option.value) if isinstance(option.value, str) else option.value
        for name, option in options.items()
    }
    return values, lambda names: {name: options[name].line for name in names if name in options}


def _pair(word: str) -> tuple[str, str] | None:
    name, equals, value = word.partition("=")
    return (name, value) if equals and re.fullmatch(r"[a-z][a-z0-9_]*", name) else None


def _listed(value: str) -> Any:
    if value.startswith("[") and value.endswith("]") and "[" not in value[1:]:
        return [word_value(item.strip().strip("'\"")) for item in value[1:-1].split(",") if item.strip()]
    return word_value(value)


FORMATS = (
    Format("maxtext-settings", "YAML, launch script or logged settings of MaxText", "TrainingPlan", looks_like, read),
)
