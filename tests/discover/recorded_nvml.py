"""Bindings of NVML that were recorded: what their functions returned, or raised, by function and arguments.

A recording is JSON: name of a function, then its arguments in one text with `*` for any, then the value. A text that
starts with `NVMLError_` was raised; a mapping stands for a structure of the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RECORDINGS = Path(__file__).parent / "recordings" / "nvml"
_CONSTANTS = {"NVML_NVLINK_MAX_LINKS": 36, "NVML_P2P_CAPS_INDEX_NVLINK": 2, "NVML_AFFINITY_SCOPE_NODE": 0}
_ALWAYS = {"nvmlInit": {"": None}, "nvmlShutdown": {"": None}}
Calls = Mapping[str, Mapping[str, Any]]


class NVMLError(Exception):
    """The class of every error of the binding; each error of the library is one of its subclasses."""


def recorded(name: str, **changes: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The calls of a recording, with some of them replaced."""
    calls: dict[str, Mapping[str, Any]] = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return {**_ALWAYS, **calls, **changes}


def binding(calls: Calls) -> SimpleNamespace:
    """A module that answers like the recorded one; handles are positions."""
    handles = {"nvmlDeviceGetHandleByIndex": {"*": None}}
    functions = {name: _function(name, answers) for name, answers in {**handles, **calls}.items()}
    return SimpleNamespace(**_CONSTANTS, **functions)


def _function(name: str, answers: Mapping[str, Any]) -> Any:
    def call(*arguments: Any) -> Any:
        value = _answer(answers, tuple(map(str, arguments)))
        if isinstance(value, str) and value.startswith("NVMLError_"):
            raise type(value, (NVMLError,), {})(value.removeprefix("NVMLError_"))
        if name == "nvmlDeviceGetHandleByIndex":
            return arguments[0]
        return SimpleNamespace(**value) if isinstance(value, dict) else value

    return call


def _answer(answers: Mapping[str, Any], arguments: tuple[str, ...]) -> Any:
    for known, value in answers.items():
        parts = known.split()
        if len(parts) == len(arguments) and all(part in {"*", own} for part, own in zip(parts, arguments, strict=True)):
            return value
    raise AssertionError(f"{arguments} was not recorded")
