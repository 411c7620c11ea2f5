"""Takes values out of an MLPerf system description as text, and records its software."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainspec_validate.interop.readers._sheet import Sheet, as_label, plain_text
from trainspec_validate.model.values import cut_to

_NOTHING = frozenset({"", "n/a", "na", "none", "-", "tbd"})


def words(said: Mapping[str, Any], key: str) -> str:
    """The text of a key on one line; empty where there is none or it says nothing.

    >>> words({"a": " N/A ", "b": 8}, "a"), words({"a": " N/A ", "b": 8}, "b")
    ('', '8')
    """
    value = said.get(key)
    if not isinstance(value, str | int | float):
        return ""
    plain = plain_text(value)
    return "" if plain.casefold() in _NOTHING else plain


_VERSION = r"v?(?P<version>[0-9][\w.+-]{0,60})"
_IN_TEXT: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("nccl", ("collective_library",), re.compile(rf"\bnccl[ :=]+{_VERSION}", re.IGNORECASE)),
    ("rccl", ("collective_library",), re.compile(rf"\brccl[ :=]+{_VERSION}", re.IGNORECASE)),
    ("cuda", ("runtime",), re.compile(rf"\bcuda[ :=]+{_VERSION}", re.IGNORECASE)),
    ("rocm", ("runtime",), re.compile(rf"\brocm[ :=]+{_VERSION}", re.IGNORECASE)),
)
_KEYS = (
    ("nccl_version", "collective_library", "nccl"),
    ("rccl", "collective_library", "rccl"),
    ("rccl_version", "collective_library", "rccl"),
    ("cuda_version", "runtime", "cuda"),
    ("rocm", "runtime", "rocm"),
    ("rocm_version", "runtime", "rocm"),
    ("libtpu", "runtime", "libtpu"),
    ("nvidia_kernel_driver", "driver", "nvidia-driver"),
    ("cuda_driver_version", "driver", "nvidia-driver"),
)
_MAX_ENTRIES = 90
_ENTRIES_OF_A_REMARK = 3
_ONE_VERSION = re.compile(r"v?[0-9][\w.+-]{0,60}")
_BLANKS = re.compile(r"(?<=\w) {0,4}([.+-]) {0,4}(?=\w)")
"""Blanks around the signs inside a version, such as `2.12 .12`."""
_SYSTEM = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z ]{1,40}?)(?:,? release| version)? v?(?P<version>[0-9][\w.]{0,20})"
    r"(?: LTS)?(?: \([A-Za-z ]{1,30}\))?",
    re.IGNORECASE,
)
_RELEASE = re.compile(r"(?P<name>[A-Za-z][A-Za-z ]{1,40}?),? Release (?P<version>[0-9][0-9]\.[0-9][0-9])")
_NAMED = re.compile(r"(?P<name>[A-Za-z][\w-]{1,40}) v?(?P<version>[0-9][\w.+-]{0,60})")


def put_software(sheet: Sheet, said: Mapping[str, Any]) -> None:
    """Record library, runtime, driver, framework and operating system where each has one version."""
    stack = said.get("other_software_stack")
    entries = [entry for entry in (stack if isinstance(stack, list) else [stack]) if isinstance(entry, dict)]
    if entries:
        _put_entries(sheet, entries)
    elif isinstance(stack, str):
        for name, key, pattern in _IN_TEXT:
            match = pattern.search(stack[:2000])
            if match and key[0] not in sheet.facts.get("software", {}):
                _put(
                    sheet,
                    key[0],
                    name,
                    match["version"],
                    f"other_software_stack says {cut_to(plain_text(stack), 160)}",
                )
        if words(said, "other_software_stack"):
            sheet.remark(
                f"other_software_stack is read for libraries and runtimes alone: {words(said, 'other_software_stack')}"
            )
    system = _SYSTEM.fullmatch(words(said, "operating_system"))
    if system:
        _put(sheet, "operating_system", system["name"], system["version"], "")
    elif words(said, "operating_system"):
        sheet.remark(f"operating_system is not understood: {words(said, 'operating_system')}")
    _put_framework(sheet, words(said, "framework"))


def _put_entries(sheet: Sheet, entries: Sequence[Mapping[str, Any]]) -> None:
    """Record what all entries agree on; what they give several versions of is left open with all of them."""
    stacks = [{str(key).casefold(): plain_text(value).strip() for key, value in entry.items()} for entry in entries]
    found: dict[str, dict[tuple[str, str], str]] = {}
    for key, target, name in _KEYS:
        for given in stacks:
            written = given.get(key, "")
            version = _BLANKS.sub(r"\1", written)
            if _ONE_VERSION.fullmatch(version):
                how = "" if version == written else f"{key} says {written[:60]!r}"
                found.setdefault(target, {}).setdefault((name, version.removeprefix("v")), how)
    for target, versions in found.items():
        if len(versions) == 1:
            ((name, version), how) = next(iter(versions.items()))
            _put(sheet, target, name, version, how)
        else:
            told = " and ".join(f"{name} {version}" for name, version in list(versions)[:_ENTRIES_OF_A_REMARK])
            sheet.unknown(("software", target), f"other_software_stack says {told}")
    _tell_others(sheet, {key: version for given in reversed(stacks) for key, version in given.items()})


def _tell_others(sheet: Sheet, given: Mapping[str, str]) -> None:
    known = {key for key, _, _ in _KEYS}
    left = [
        f"{cut_to(key, 60)} {cut_to(version, 60)}" for key, version in given.items() if version and key not in known
    ]
    for start in range(0, min(len(left), _MAX_ENTRIES), _ENTRIES_OF_A_REMARK):
        sheet.remark(f"no key takes of other_software_stack: {', '.join(left[start : start + _ENTRIES_OF_A_REMARK])}")
    if len(left) > _MAX_ENTRIES:
        sheet.remark(f"{len(left) - _MAX_ENTRIES:,} more entries of other_software_stack are not read")


def _put_framework(sheet: Sheet, written: str) -> None:
    match = _RELEASE.fullmatch(written)
    if match:
        name = as_label(match["name"].replace("NVIDIA", "").strip() or match["name"])
        sheet.put(("software", "frameworks", 0, "name"), name, f"framework says {written}")
        sheet.put(
            ("software", "frameworks", 0, "version"), f"nvidia-{match['version']}", "a release of NVIDIA's containers"
        )
        return
    match = _NAMED.fullmatch(written)
    if match:
        sheet.put(("software", "frameworks", 0, "name"), as_label(match["name"]))
        sheet.put(("software", "frameworks", 0, "version"), match["version"])
    elif written:
        sheet.unknown(("software", "frameworks"), f"framework says {cut_to(written, 200)}")


def _put(sheet: Sheet, target: str, name: str, version: str, how: str) -> None:
    sheet.put(("software", target, "name"), as_label(name), how)
    sheet.put(("software", target, "version"), version, how)
