"""Leaves open what a launch script takes from files that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.documents.types.base import Record
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.documents.types.parallelism import Parallelism
from trainspec_validate.documents.types.precision import Precision
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
_NAMES = frozenset({"name", "description"})


def leave_unread_open(draft: Draft, started: Started) -> None:
    """What options of another file may say: every default, and every key that the script does not fill in.

    A rule that took such a key to be left out would judge a job that nobody runs.
    """
    shown = (started.script.choices.shown(word) for word in started.found.outside)
    names = [word[:60] for word in shown if _LISTS.match(word)]
    if not names:
        return
    sourced = "; the script reads in files that are not read" if started.script.sourced else ""
    why = f"{names[0]} may hold it, which the script does not set{sourced}"
    draft.drop_defaults(why)
    if draft.get("parallelism", "num_virtual_stages") is None and draft.get("parallelism", "schedule"):
        draft.drop([("parallelism", "schedule")], why)
    for pointer in _keys():
        if draft.get(*map(str, pointer)) is None:
            draft.lacks(pointer, why)


def _keys() -> Iterator[Pointer]:
    """Keys of these groups, most of which a document may leave out, and rules then take for a default."""
    for group, kind in _GROUPS.items():
        yield from ((group, name) for name in kind.__struct_fields__ if name not in _NAMES)
