"""Reads one job of GPT-NeoX from all of its files, which GPT-NeoX joins to one mapping before it reads any setting.

A key that two of the files have is refused (`from_ymls` in EleutherAI/gpt-neox@ea7aefd8:megatron/neox_arguments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainspec_validate.interop.fragment import ForeignText, Fragment, Remark
from trainspec_validate.interop.readers import neox

_FORMAT = "gpt-neox-yaml"


def with_its_files(fragments: Sequence[Fragment], texts: Sequence[ForeignText]) -> list[Fragment]:
    """The fragments, in which that of the model holds what all files of its job say, and theirs nothing.

    Files with different values of one setting are those of several jobs, and stay as they are.
    """
    found = list(fragments)
    places = [at for at, fragment in enumerate(fragments) if fragment.format == _FORMAT]
    if len(places) < 2:
        return found
    settings = {at: neox.settings_of(texts[at]) for at in places}
    job = next((at for at in places if "num_layers" in settings[at]), places[0])
    others: dict[str, tuple[str, Any]] = {}
    twice: dict[str, None] = {}
    for at in (job, *(place for place in places if place != job)):
        for name, (written, value) in settings[at].items():
            if name in others and others[name][1] != value:
                return found
            if name in others:
                twice[name] = None
            others.setdefault(name, (written, value))
    whole = neox.read(texts[job], others)
    if twice:
        told = f"several of the files have {', '.join(list(twice)[:8])}, which GPT-NeoX refuses"
        whole = replace(whole, remarks=(Remark(told), *whole.remarks))
    for at in places:
        found[at] = whole if at == job else replace(fragments[at], **_NOTHING)
    return found


_NOTHING: dict[str, Any] = {
    "facts": {},
    "unknown": (),
    "remarks": (),
    "derived": None,
    "defaults": frozenset(),
    "inputs": {},
}
