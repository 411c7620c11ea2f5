"""Reads what the tools of AMD and Google list of the devices of one node."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _query
from trainspec_validate.interop.readers._draft import Draft
from trainspec_validate.interop.readers._matrix import plain_lines
from trainspec_validate.interop.readers._query import Listed, start
from trainspec_validate.system.digits import is_digits

_MISSING = "the tool was not asked for it"
_BORDERS = str.maketrans("│┃|", "   ")
_TPU_MEMORY = re.compile(r"[^/]*/\s*([0-9]{1,4}\.[0-9]{1,3} GiB)\b.*")
_ROCM = re.compile(r"^GPU\[([0-9]{1,4})\][ \t]*:[ \t]*([^:\n]{1,64}):[ \t]*([^\n]{0,200})$", re.MULTILINE | re.ASCII)
_AMD_START = re.compile(r"^GPU: [0-9]{1,4}[ \t]*$", re.MULTILINE)
_AMD_DRIVER = re.compile(
    r"^(?P<indent> {1,16})DRIVER:[ \t]*\n(?:(?P=indent) {1,16}(?!VERSION:)[^\n]{0,200}\n){0,8}"
    r"(?P=indent) {1,16}VERSION: (?P<version>[^\n]{1,500}?)[ \t]*$",
    re.MULTILINE,
)
"""Of a driver that comes with the kernel the tool prints the line of the kernel, such as
`Linuxversion6.8.0-79-generic(`, which is no version of a driver."""
_AMD_FIELD = re.compile(r"\s*([A-Za-z][A-Za-z0-9_ ]{0,63}):(.*)")


# tpu-info


def looks_like_tpu(text: ForeignText) -> bool:
    """Whether the title of the first table and a device appear near the start."""
    near = start(text)
    return "TPU Chips" in near and "/dev/" in near


def read_tpu(text: ForeignText) -> Fragment:
    """Facts of one host from `tpu-info`.

    Raises:
        ForeignFormatError: the table lists no chip.
    """
    lines = plain_lines(text.text)
    chips = [(number, row) for number, line in enumerate(lines, 1) if (row := _tpu_row(line)) is not None]
    if not chips:
        raise ForeignFormatError("lists no chip", help="copy the output of `tpu-info`")
    cores = {row[1] for _, row in chips}
    sizes = {_query.size(found[1]) for line in lines if "GiB" in line and (found := _TPU_MEMORY.fullmatch(line))}
    memory = sizes.pop() if len(sizes) == 1 and cores == {"1"} else None
    draft = Draft()
    _query.write(draft, [Listed(row[0], memory, line=number) for number, row in chips], missing="tpu-info has no more")
    if sizes and memory is None and len(sizes) > 1:
        draft.remark("chips differ in memory")
    if cores != {"1"}:
        draft.remark(f"a chip shows as {', '.join(sorted(cores))} devices, which are cores; chips are counted")
    return draft.fragment("tpu-info", text)


def _tpu_row(line: str) -> tuple[str, str] | None:
    """Product and number of devices from a row such as `/dev/accel0  TPU v4 chip  1  4711`."""
    words = line.translate(_BORDERS).split()[:12]
    if len(words) < 4 or not words[0].startswith("/dev/") or not words[1].startswith("TPU"):
        return None
    end = next((k for k, word in enumerate(words) if k > 1 and re.fullmatch(r"[0-9]{1,2}", word, re.ASCII)), None)
    return None if end is None else (" ".join(words[1:end]), words[end])


# rocm-smi with any of --showproductname, --showmeminfo vram, --showmaxpower


def looks_like_rocm(text: ForeignText) -> bool:
    """Whether lines of devices appear near the start, and no matrix of the topology."""
    near = start(text)
    return _ROCM.search(near) is not None and "between two GPUs" not in near


def read_rocm(text: ForeignText) -> Fragment:
    """Facts of one node from the lists of `rocm-smi`.

    Raises:
        ForeignFormatError: there is no list of devices.
    """
    plain_lines(text.text)
    found: dict[int, dict[str, str]] = {}
    for match in _ROCM.finditer(text.text):
        found.setdefault(int(match[1]), {}).setdefault(match[2].strip().lower(), match[3].strip())
    if not found:
        raise ForeignFormatError("lists no device", help="copy the output of `rocm-smi --showproductname`")
    draft = Draft()
    _query.write(draft, [_rocm_device(found[number]) for number in sorted(found)], missing=_MISSING)
    return draft.fragment("rocm-smi-list", text)


def _rocm_device(fields: Mapping[str, str]) -> Listed:
    product = next((fields[key] for key in ("card series", "card model", "device name") if _is_name(fields, key)), None)
    return Listed(product, partitioned=_partitioned(fields.get("compute partition"))).measured(
        memory=fields.get("vram total memory (b)"), power=fields.get("max graphics package power (w)")
    )


def _partitioned(mode: str | None) -> bool | None:
    """Whether a compute partition is one of several of its package; SPX is the whole one.

    >>> _partitioned("SPX"), _partitioned("CPX"), _partitioned("N/A")
    (False, True, None)
    """
    return mode != "SPX" if mode is not None and re.fullmatch(r"[SDTQC]PX", mode) else None


def _is_name(fields: Mapping[str, str], key: str) -> bool:
    """Whether a field names a product; some versions print the PCI identifier in its place."""
    return key in fields and re.match(r"0x|N/A", fields[key]) is None and fields[key] != ""


# amd-smi list, amd-smi static


def looks_like_amd(text: ForeignText) -> bool:
    """Whether the line that opens a device appears near the start."""
    near = start(text)
    return _AMD_START.search(near) is not None and re.search(r"\b(BDF|MARKET_NAME|ASIC):", near) is not None


def read_amd(text: ForeignText) -> Fragment:
    """Facts of one node from `amd-smi list` or `amd-smi static`.

    Raises:
        ForeignFormatError: there is no device.
    """
    blocks: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(plain_lines(text.text), 1):
        if _AMD_START.fullmatch(line):
            blocks.append((number, {}))
        elif re.fullmatch(r"CPU: [0-9]+\s*", line):
            blocks.append((0, {}))
        elif blocks and (field := _AMD_FIELD.fullmatch(line)):
            blocks[-1][1].setdefault(field[1].strip().upper().replace(" ", "_"), field[2].strip())
    gpus = [(number, fields) for number, fields in blocks if number]
    if not gpus:
        raise ForeignFormatError("lists no device", help="copy the output of `amd-smi static`")
    draft = Draft()
    if any(fields.get("PARTITION_ID") not in {None, "0", "N/A"} for _, fields in gpus):
        draft.remark("some devices are partitions; each device counts as one accelerator here")
    _query.write(draft, [_amd_device(fields, number) for number, fields in gpus], missing=_MISSING)
    versions = {found["version"] for found in _AMD_DRIVER.finditer(text.text)}
    if len(versions) == 1 and is_digits((version := versions.pop())[0]):
        _query.software(draft, "driver", "amdgpu", version)
    return draft.fragment("amd-smi", text)


def _amd_device(fields: Mapping[str, str], number: int) -> Listed:
    return Listed(
        product=fields.get("MARKET_NAME"),
        line=number,
        name=fields.get("BDF"),
        partitioned=_partitioned(fields.get("ACCELERATOR_PARTITION") or fields.get("COMPUTE_PARTITION")),
    ).measured(
        memory=re.sub(r"\bMB$", "MiB", fields.get("SIZE", "")),  # which the tool prints for 2**20 bytes
        power=fields.get("SOCKET_POWER") or fields.get("MAX_POWER"),
        generation=fields.get("MAX_PCIE_SPEED"),
        lanes=fields.get("MAX_PCIE_WIDTH"),
    )
