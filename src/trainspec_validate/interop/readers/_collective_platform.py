"""Reads the driver, run-time and network plug-in from a log of NCCL or RCCL."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._sheet import Sheet, plain_text

Platform = dict[tuple[str, str], int]
"""Subject and value, with the first line that tells it."""
_MAX_VALUES = 32
_LISTED = 8
_CUDA = "cudaDriverVersion"
_PATTERNS = {
    _CUDA: re.compile(r"cudaDriverVersion (?P<value>\d{4,6})\b"),
    "ROCr version": re.compile(r"ROCr version (?P<value>\d{1,4}\.\d{1,4})\b"),
    "path of the network plug-in": re.compile(r"Plugin Path ?: (?P<value>\S{1,300})"),
    "network plug-in": re.compile(r"NET/Plugin: (?P<value>(?:Loaded net plugin|Could not find:?) .{1,200})"),
}
STARTS = (_CUDA, "ROCr version", "Plugin Path", "NET/Plugin: ")
"""How the lines that `take_platform` reads begin."""


def take_platform(platform: Platform, said: str, number: int) -> None:
    """Keep what one line tells, once for every value."""
    for subject, pattern in _PATTERNS.items():
        found = pattern.match(said)
        if found and len(platform) < _MAX_VALUES:
            platform.setdefault((subject, plain_text(found["value"]).rstrip(".")), number)


def remark_platform(sheet: Sheet, platform: Platform) -> None:
    """Tell what an observation has no key for, and where ranks differ in it."""
    for subject in _PATTERNS:
        values = {value: line for (own, value), line in platform.items() if own == subject}
        if len(values) > 1 and subject != "network plug-in":
            told = ", ".join(sorted(values)[:_LISTED])
            sheet.remark(f"ranks differ in {subject}: {told}; an observation has no key for it")
            continue
        for value, line in list(values.items())[:_LISTED]:
            sheet.remark(f"{_told(subject, value)}; an observation has no key for it", line)


def _told(subject: str, value: str) -> str:
    """One value in words. The number is 1000 x major + 10 x minor. Source: CUDA driver API, cuDriverGetVersion.

    >>> _told("cudaDriverVersion", "12040")
    'cudaDriverVersion 12040: the driver serves CUDA up to 12.4'
    """
    if subject == _CUDA:
        major, rest = divmod(int(value), 1000)
        return f"{subject} {value}: the driver serves CUDA up to {major}.{rest // 10}"
    return f"{subject}: {value}" if subject.endswith("plug-in") else f"{subject} {value}"
