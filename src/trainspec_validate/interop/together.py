"""Reads files of one job together: the Trainer's arguments with accelerate and DeepSpeed, MaxText, GPT-NeoX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainspec_validate.interop import maxtext_job, neox_job
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import axolotl, huggingface
from trainspec_validate.interop.readers._accelerate_plan import NAMES_DEEPSPEED
from trainspec_validate.interop.readers._huggingface_launch import ACCELERATE, DEEPSPEED
from trainspec_validate.interop.readers._plan_parts import without_empty
from trainspec_validate.interop.readers._plan_settings import flatten, load_mapping
from trainspec_validate.model.finding import Pointer

_AXOLOTL = "axolotl-yaml"
_TRAINERS = {"huggingface-trainer-arguments": huggingface.read_trainer, _AXOLOTL: axolotl.read}
_LAUNCHERS = {"huggingface-accelerate": ACCELERATE, "deepspeed-json": DEEPSPEED}
_DECIDED = frozenset({"precision", "optimizer", "batch", "communication"})
"""Groups of a plan that the Trainer decides from its own arguments and those files."""
_SHARDING = frozenset({("parallelism", "sharding"), ("parallelism", "sharding_degree")})
_RANKS = frozenset(("parallelism", key) for key in ("num_accelerators", "data", "tensor", "context", "pipeline"))
"""What the Trainer's fragment takes over from a configuration of accelerate, unless the command goes before it."""
_OFFLOAD = frozenset({("memory", "offload")})
_NAMED = {
    ACCELERATE: re.compile(r"config_file[\"'=: \t]{1,8}([^\s\"']{1,200}\.ya?ml)"),
    DEEPSPEED: re.compile(r"deepspeed\w{0,20}[\"'=: \t]{1,8}([^\s\"']{1,200}\.json)"),
}
"""How a text names such a file."""
_UNREAD = ", which is not read"
_READS_IN = re.compile(rf"the script reads in (.{{1,2000}}){_UNREAD}")


def together(read: Sequence[tuple[Fragment, ForeignText]]) -> list[Fragment]:
    """Fragments of files, in which the Trainer's one holds what follows from all files of its job.

    Which of two settings counts is in transformers, not in the order of files: a format of the Trainer goes before
    `mixed_precision` of accelerate, and DeepSpeed keeps a copy in fp32 of weights that were loaded in bf16.
    """
    given = frozenset(text.name.rpartition("/")[2] for _, text in read)
    every = [text for _, text in read]
    own = neox_job.with_its_files(maxtext_job.with_its_files([fragment for fragment, _ in read], every), every)
    fragments = [_without_given(fragment, given) for fragment in own]
    trainers = [at for at, fragment in enumerate(fragments) if fragment.format in _TRAINERS]
    launchers = {_LAUNCHERS[f.format]: at for at, f in enumerate(fragments) if f.format in _LAUNCHERS}
    num_launchers = sum(fragment.format in _LAUNCHERS for fragment in fragments)
    if len(launchers) != num_launchers:
        return fragments
    texts = [text for _, text in read]
    if len(launchers) == len(_LAUNCHERS):
        accelerate, deepspeed = launchers[ACCELERATE], launchers[DEEPSPEED]
        if _belongs(texts[deepspeed], DEEPSPEED, [texts[accelerate].text]):
            fragments[accelerate] = _with_its_deepspeed(fragments[accelerate])
    if len(trainers) != 1 or not launchers:
        return fragments
    trainer = trainers[0]
    namers = [texts[trainer].text, *([texts[launchers[ACCELERATE]].text] if ACCELERATE in launchers else [])]
    belonging = {mark: at for mark, at in launchers.items() if _belongs(texts[at], mark, namers)}
    if fragments[trainer].format == _AXOLOTL:  # a configuration of accelerate decides nothing that axolotl states
        belonging.pop(ACCELERATE, None)
    if not belonging:
        return fragments
    settings = {
        f"{mark}{name}": value
        for mark, at in belonging.items()
        for name, value in flatten(load_mapping(texts[at]).data).items()
    }
    fragments[trainer] = _TRAINERS[fragments[trainer].format](texts[trainer], settings)
    offloads = "offload" in fragments[trainer].facts.get("memory", {})
    for mark, at in belonging.items():
        decided = _RANKS if mark == ACCELERATE else frozenset[Pointer]()
        fragments[at] = _without_decided(fragments[at], decided | (_OFFLOAD if offloads else frozenset()))
    return fragments


def _with_its_deepspeed(fragment: Fragment) -> Fragment:
    """A configuration of accelerate next to the file of DeepSpeed that it names: that one decides on formats."""
    formats = any(entry.pointer[0] == "precision" for entry in fragment.unknown) and "precision" not in fragment.facts
    return replace(
        fragment,
        unknown=tuple(e for e in fragment.unknown if not (formats and e.pointer[0] == "precision")),
        remarks=tuple(remark for remark in fragment.remarks if not remark.message.startswith(NAMES_DEEPSPEED)),
    )


def _without_given(fragment: Fragment, given: frozenset[str]) -> Fragment:
    """A fragment whose remarks do not call a file unread that is given beside it, as its own file name tells."""

    def is_given(message: str) -> bool:
        found = _READS_IN.fullmatch(message)
        return found is not None and all(name.rpartition("/")[2] in given for name in found[1].split(", "))

    remarks = tuple(
        replace(remark, message=f"{remark.message.removesuffix(_UNREAD)}, which is read as a file of its own")
        if is_given(remark.message)
        else remark
        for remark in fragment.remarks
    )
    return replace(fragment, remarks=remarks)


def _belongs(text: ForeignText, mark: str, namers: Sequence[str]) -> bool:
    """Whether a file is the one that the others name, or none of them names any."""
    named = [found.rpartition("/")[2] for namer in namers for found in _NAMED[mark].findall(namer)]
    return not named or text.name.rpartition("/")[2] in named


def _without_decided(fragment: Fragment, further: frozenset[Pointer]) -> Fragment:
    """A file of accelerate or DeepSpeed without what the Trainer decides, and without `further` places."""

    def is_decided(place: Pointer) -> bool:
        return _is_decided(place) or place[:2] in further

    def kept(places: Mapping[Pointer, Any]) -> dict[Pointer, Any]:
        return {place: value for place, value in places.items() if not is_decided(place)}

    facts = {
        group: {key: value for key, value in inner.items() if not is_decided((group, key))}
        for group, inner in fragment.facts.items()
        if group not in _DECIDED
    }
    return replace(
        fragment,
        facts=without_empty(facts),
        unknown=tuple(entry for entry in fragment.unknown if not is_decided(entry.pointer)),
        derived=kept(fragment.derived or {}),
        defaults=frozenset(place for place in fragment.defaults if not is_decided(place)),
        inputs=kept(fragment.inputs),
    )


def _is_decided(place: Pointer) -> bool:
    return place[0] in _DECIDED or place[:2] in _SHARDING
