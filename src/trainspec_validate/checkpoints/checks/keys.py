"""Searches the names of state in a checkpoint for the items of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from trainspec_validate.checkpoints.checks import CheckpointPolicy, NotApplicable, Series, Violation, check
from trainspec_validate.checkpoints.storages import names

_SHOWN = 3


@check("TS-CKP-102")
def state_keys(series: Series, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Every pattern of the policy fits a name in each whole checkpoint."""
    if not policy.state.keys:
        raise NotApplicable("no state.keys in the policy: where items of state are found is not said")
    judged = [one for one in series.checkpoints if one.is_complete]
    if not judged:
        raise NotApplicable("no whole checkpoint")
    for one in judged:
        held = {*one.keys, *names(one), *one.files}
        for declared in policy.state.keys:
            absent = [pattern for pattern in declared.patterns if not any(fnmatchcase(name, pattern) for name in held)]
            if absent:
                shown = ", ".join(map(repr, absent[:_SHOWN])) + (", …" if len(absent) > _SHOWN else "")
                words = f"no name of a tensor, of other state or of a file fits {shown}, where {declared.item} is found"
                yield Violation(one.name, words, "resume from an earlier checkpoint, or correct state.keys")
