"""Leaves open what a job takes from configuration files that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainspec_validate.documents.types.base import Record
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.documents.types.parallelism import Parallelism
from trainspec_validate.documents.types.precision import Precision
from trainspec_validate.interop.readers._launched_ranks import launched
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._shell_options import Started
from trainspec_validate.model.finding import Pointer

_LISTS = re.compile(r"\$\{?(?:[A-Za-z_]\w{0,60}\[[@*]\]|\w{0,60}(?:ARG|OPT|FLAG|PARAM|CONF)\w{0,60})", re.IGNORECASE)
"""A list of options that the script itself does not hold; `$@` is empty unless a caller says more."""
_GROUPS: dict[str, type[Record]] = {
    "model": Model,
    "parallelism": Parallelism,
    "batch": Batch,
    "precision": Precision,
    "optimizer": Optimizer,
}
"""Groups of a plan that options of Megatron-LM fill in."""
_CONFIGURATION = re.compile(
    r"(?:yaml_cfg|args_file|hparams_file|(?:base_|model_|train(?:ing)?_|exp(?:eriment)?_)?(?:config|cfg)"
    r"(?:_(?:file|path|yaml|name))?)\Z"
)
"""Options that name a file with settings of the whole job."""
_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".conf", ".cfg", ".ini", ".args", ".py")
_NAMES = frozenset({"name", "description"})


def leave_unread_open(draft: Draft, started: Started) -> None:
    """Values that options of another file may set: every default, and every key that the script does not fill in.

    A rule that took such a key to be left out would judge a job that no one runs.
    """
    if started.found.is_list:
        leave_open(draft, "the script that reads in these arguments may set it, and is not given")
        return
    shown = (started.script.choices.shown(word) for word in started.found.outside)
    further = {started.script.choices.shown(word) for word in started.found.further}
    names = [word[:60] for word in shown if _LISTS.match(word) or word.startswith("--") or word in further]
    if not names:
        return
    sourced = "; the script reads in files that are not read" if started.script.sourced else ""
    why = f"{names[0]} may hold it, which the script does not set{sourced}"
    leave_open(draft, why)


def leave_open(draft: Draft, why: str) -> None:
    """Every default but those of the launcher, and every key that the source does not fill in."""
    draft.drop_defaults(why, launched(draft))
    if draft.get("parallelism", "num_virtual_stages") is None and draft.get("parallelism", "schedule"):
        draft.drop([("parallelism", "schedule")], why)
    for pointer in _keys():
        if draft.get(*map(str, pointer)) is None:
            draft.lacks(pointer, why)


def configuration_in(values: Mapping[str, Any], apart: Iterable[str] = ()) -> tuple[str, str] | None:
    """An option that names a file with settings of the whole job, and the file.

    >>> configuration_in({"lr": 1, "config": "recipes/7b.yaml"}), configuration_in({"config_name": "gpt2"})
    (('config', 'recipes/7b.yaml'), None)
    """
    for name, value in values.items():
        named = _CONFIGURATION.fullmatch(name) and name not in apart and isinstance(value, str)
        if named and value.strip("\"'").endswith(_SUFFIXES):
            return name, value[:120]
    return None


def leave_configuration_open(draft: Draft, apart: Iterable[str] = ()) -> None:
    """Keys that a file may set that an option names and that is not read."""
    found = configuration_in(draft.values, apart)
    if found:
        name, file = found
        draft.used.add(name)
        draft.remark(f"{name} names the file {file}, which is not read: import it as well", name)
        leave_open(draft, f"{file} may set it, which is not read")


def _keys() -> Iterator[Pointer]:
    """Keys of these groups, most of which a document may leave out, and rules then take for a default."""
    for group, kind in _GROUPS.items():
        yield from ((group, name) for name in kind.__struct_fields__ if name not in _NAMES)
