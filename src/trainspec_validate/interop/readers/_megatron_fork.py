"""Recognises forks of Megatron-LM that keep the names of its programs, by their options and by where they are.

A fork may have other defaults, such as `--clip-grad 0.0` in krafton-ai/Megatron-Dion@2d0d2518, and options that decide
what Megatron-LM leaves to a default, such as `--attention-head-type` in bigcode-project/Megatron-LM@7c325cd3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from trainspec_validate.interop.fragment import ForeignText
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER_OPTIONS

_OPTION = re.compile(r"[a-z][a-z0-9_]{2,100}")
_PLACE = re.compile(r"(?:(?<=/)|\A)(megatron[-_]?[a-z0-9][\w.-]{0,60})(?=/|\Z)", re.IGNORECASE)
_OWN_PLACE = re.compile(
    r"megatron[-_]?(?:lm|core|deepspeed)(?:[-_.]?(?:main|master|dev|core|[rv]?[\d.]+))*", re.IGNORECASE
)
"""Checkouts of Megatron-LM, and of the forks with DeepSpeed, whose defaults are those of Megatron-LM."""
_DIRECTORY = re.compile(r"(?m)^[ \t]*(?:cd|pushd)[ \t]+[\"']?([^\s\"';&|]{1,300})")
_CLONED = re.compile(
    r"\bgit[ \t]+clone\b[^\n]{0,200}?github\.com[:/]([\w.-]{1,60})/(megatron[\w.-]{0,60})", re.IGNORECASE
)
_NAMED_PROGRAM = re.compile(r"(?<![\w./$}{-])([\w./$}{-]{1,300}/)[\w.-]{1,100}\.py\b")
_OF_LAUNCHERS = LAUNCHER_OPTIONS | {
    *("account", "partition", "job_name", "time", "nodes", "ntasks", "ntasks_per_node", "cpus_per_task"),
    *("gpus_per_node", "gpus_per_task", "container_image", "container_mounts", "container_workdir"),
}
_MAX_SHOWN = 60


@cache
def _options() -> tuple[frozenset[str], tuple[str, ...]]:
    """Options that Megatron-LM has or had, and those of the forks with DeepSpeed; as a set and in order.

    Made of the texts of all commits up to NVIDIA/Megatron-LM@d98e8a64 that change its files of arguments or the
    fields of its configurations, and of deepspeedai/Megatron-DeepSpeed@f4157bea and
    bigscience-workshop/Megatron-DeepSpeed@8387ae17, whose defaults are the same. Two are of sail-sg/zero-bubble, whose
    schedule is read.
    """
    path = Path(__file__).resolve().parents[2] / "data" / "megatron_options.txt"
    words = path.read_text(encoding="utf-8").split()
    return frozenset(words), tuple(words)


def sign_of_a_fork(values: Mapping[str, object], script: ForeignText, launched: Collection[str]) -> str:
    """The sign by which a script starts a fork of Megatron-LM; empty where there is none.

    Args:
        values: the options of the script.
        script: the script, under its path.
        launched: options in front of the program, which its launcher takes.
    """
    for name, value in values.items():
        if value in (None, False) or name in launched or name in _OF_LAUNCHERS or not _OPTION.fullmatch(name):
            continue
        if not _is_known(name):
            return f"--{name[:_MAX_SHOWN].replace('_', '-')} is no option of Megatron-LM"
    text = script.text
    places = [
        script.name.rpartition("/")[0],
        *_DIRECTORY.findall(text),
        *(place.rstrip("/") for place in _NAMED_PROGRAM.findall(text)),
    ]
    for place in places:
        for found in _PLACE.findall(place):
            if not _OWN_PLACE.fullmatch(found):
                return f"the program is in {found[:_MAX_SHOWN]}"
    for owner, name in _CLONED.findall(text):
        if owner.casefold() not in {"nvidia", "microsoft", "deepspeedai"}:
            return f"the script fetches {owner[:_MAX_SHOWN]}/{name[:_MAX_SHOWN]}"
    return ""


def _is_known(name: str) -> bool:
    """Whether Megatron-LM has an option, or one that begins so, which its parser takes for the same."""
    known, ordered = _options()
    if name in known:
        return True
    at = bisect_left(ordered, name)
    return at < len(ordered) and ordered[at].startswith(name)
