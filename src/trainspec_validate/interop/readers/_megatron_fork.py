"""Recognises forks of Megatron-LM that keep the names of its programs, by where they are.

A fork may have other defaults, such as `--clip-grad 0.0` in krafton-ai/Megatron-Dion@2d0d2518.
"""

from __future__ import annotations

import re

from trainspec_validate.interop.fragment import ForeignText

_PLACE = re.compile(r"(?:(?<=/)|\A)(megatron[-_]?[a-z0-9][\w.-]{0,60})(?=/|\Z)", re.IGNORECASE)
_OWN_PLACE = re.compile(
    r"megatron[-_]?(?:lm|core|deepspeed)(?:[-_.]?(?:main|master|dev|core|[rv]?[0-9.]+))*", re.IGNORECASE
)
"""Checkouts of Megatron-LM, and of the forks with DeepSpeed, whose defaults are those of Megatron-LM."""
_DIRECTORY = re.compile(r"(?m)^[ \t]*(?:cd|pushd)[ \t]+[\"']?([^\s\"';&|]{1,300})")
_CLONED = re.compile(
    r"\bgit[ \t]+clone\b[^\n]{0,200}?github\.com[:/]([\w.-]{1,60})/(megatron[\w.-]{0,60})", re.IGNORECASE
)
_NAMED_PROGRAM = re.compile(r"(?<![\w./$}{-])([\w./$}{-]{1,300}/)[\w.-]{1,100}\.py\b")
_MAX_SHOWN = 60


def sign_of_a_fork(script: ForeignText) -> str:
    """The sign by which a script, under its path, starts a fork of Megatron-LM; empty where there is none."""
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
