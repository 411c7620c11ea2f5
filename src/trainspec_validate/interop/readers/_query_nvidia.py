"""Reads what NVIDIA's tools list of the devices of one node."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _query
from trainspec_validate.interop.readers._counted import counted
from trainspec_validate.interop.readers._draft import MAX_DEVICES, Draft
from trainspec_validate.interop.readers._matrix import plain_lines
from trainspec_validate.interop.readers._query import Listed, start
from trainspec_validate.model.values import cut_to
from trainspec_validate.system import xml
from trainspec_validate.system.boundary import words_of

_MISSING = "the tool was not asked for it"
_TYPICAL = frozenset({"name", "gpu_name", "memory.total", "power.limit", "uuid", "gpu_uuid", "pci.bus_id", "index"})
_IDENTITIES = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_SECTION = re.compile(r"[0-9]{1,4} [A-Za-z]{2,16} found\.", re.ASCII)
_DCGM_COUNT = re.compile(r"([0-9]{1,4}) GPUs? found\.", re.ASCII)
_DCGM_SWITCHES = re.compile(r"([0-9]{1,4}) NvSwitch(?:es)? found\.", re.ASCII)
_DCGM_FIELD = re.compile(r"\|[^|]{0,32}\|\s*(Name|Status):([^|]{0,200})\|")


# nvidia-smi --query-gpu=... --format=csv


def looks_like_csv(text: ForeignText) -> bool:
    """Whether the first line is a header of such a query."""
    first = start(text).lstrip("\ufeff\n").partition("\n")[0]
    names = {_key(field) for field in first.split(",")}
    return len(names & _TYPICAL) >= 2 or names == {"name"}


def _key(title: str) -> str:
    """The name of a field, from `memory.total [MiB]`."""
    return title.partition("[")[0].strip()


def read_csv(text: ForeignText) -> Fragment:
    """Facts of one node from `nvidia-smi --query-gpu=... --format=csv`.

    Raises:
        ForeignFormatError: there is no header, or a row does not have its fields.
    """
    lines = plain_lines(text.text.lstrip("\ufeff\n"))
    keys = [_key(title) for title in lines[0].split(",")]
    if not looks_like_csv(text):
        raise ForeignFormatError("has no header", 1, "leave `noheader` out of --format")
    if len(set(keys)) < len(keys):
        raise ForeignFormatError("the header names a field twice", 1)
    draft = Draft()
    found = list(_rows(lines, keys))
    if not found:
        raise ForeignFormatError("lists no device", 1, "the driver answered with a header alone")
    devices = [_nvidia_row(row, number) for number, row in found]
    _query.write(draft, devices, missing=_MISSING, counted=counted([row for _, row in found]))
    versions = {row.get("driver_version") for _, row in found}
    if len(versions) == 1:
        _query.software(draft, "driver", "nvidia", versions.pop())
    if any(row.get("mig.mode.current") == "Enabled" for _, row in found):
        draft.remark("MIG is enabled, so that jobs see parts of an accelerator")
    return draft.fragment("nvidia-smi-query-csv", text)


def _rows(lines: Sequence[str], keys: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows below the header, each with the number of its line; a loop and joined outputs may repeat the header.

    Raises:
        ForeignFormatError: a row does not have the fields of the header, or there are too many rows.
    """
    num_rows = 0
    for number, line in enumerate(lines[1:], 2):
        if not line.strip() or [_key(title) for title in line.split(",")] == keys:
            continue
        try:
            fields = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error as error:
            raise ForeignFormatError(f"is no row of CSV: {words_of(error)}", number) from None
        if len({_key(field) for field in fields} & _TYPICAL) >= 2:
            raise ForeignFormatError("is the header of another query", number, "keep each query in a file of its own")
        if len(fields) != len(keys):
            raise ForeignFormatError(f"has {len(fields)} fields, the header {len(keys)}", number)
        num_rows += 1
        if num_rows > MAX_DEVICES:
            raise ForeignFormatError(f"lists more than {MAX_DEVICES:,} devices", number)
        yield number, dict(zip(keys, (field.strip() for field in fields), strict=True))


def _nvidia_row(row: Mapping[str, str], number: int) -> Listed:
    """The largest link that device and slot can have: an idle device runs a slower one to save power."""
    power = row.get("power.limit") or row.get("enforced.power.limit")
    return Listed(
        product=row.get("name") or row.get("gpu_name"),
        line=number,
        name=next(
            (row[key] for key in _IDENTITIES if row.get(key)), f"GPU {row['index']}" if row.get("index") else None
        ),
        partitioned={"Enabled": True, "Disabled": False}.get(row.get("mig.mode.current", "")),
    ).measured(
        memory=row.get("memory.total"),
        memory_unit="MiB",
        power=power,
        default_power=row.get("power.default_limit"),
        generation=row.get("pcie.link.gen.max"),
        lanes=row.get("pcie.link.width.max"),
    )


# nvidia-smi -q -x


def looks_like_xml(text: ForeignText) -> bool:
    """Whether the first element is that of the log."""
    return xml.root_tag(text.text) == "nvidia_smi_log"


def read_xml(text: ForeignText) -> Fragment:
    """Facts of one node from `nvidia-smi -q -x`.

    Raises:
        ForeignFormatError: the text is not such a log.
    """
    root = xml.parse(text.text)
    if root.tag != "nvidia_smi_log":
        raise ForeignFormatError(
            f"starts with <{cut_to(root.tag, 64)}>", root.line, "a log starts with <nvidia_smi_log>"
        )
    draft = Draft()
    gpus = [child for child in root.children if child.tag == "gpu"]
    if not gpus:
        raise ForeignFormatError("lists no device", root.line)
    rows = [
        {"uuid": _text(gpu, "uuid"), "pci.bus_id": _text(gpu, "pci", "pci_bus_id") or gpu.get("id")} for gpu in gpus
    ]
    devices = [_nvidia_element(gpu) for gpu in gpus]
    found = counted(rows, _text(root, "attached_gpus"), is_sampled=False)
    _query.write(draft, devices, missing=_MISSING, counted=found)
    _query.software(draft, "driver", "nvidia", _text(root, "driver_version"))
    _query.software(draft, "runtime", "cuda", _text(root, "cuda_version"))
    if any(_text(gpu, "mig_mode", "current_mig") == "Enabled" for gpu in gpus):
        draft.remark("MIG is enabled, so that jobs see parts of an accelerator")
    return draft.fragment("nvidia-smi-log-xml", text)


def _text(item: xml.Element, *path: str) -> str | None:
    for tag in path:
        below = next((child for child in item.children if child.tag == tag), None)
        if below is None:
            return None
        item = below
    return item.text.strip() or None


def _nvidia_element(gpu: xml.Element) -> Listed:
    slot = ("pci", "pci_gpu_link_info")
    power = (("gpu_power_readings", "current_power_limit"), ("gpu_power_readings", "power_limit"))
    limits = [_text(gpu, *path) for path in (*power, ("power_readings", "power_limit"))]
    defaults = [_text(gpu, section, "default_power_limit") for section in ("gpu_power_readings", "power_readings")]
    return Listed(
        product=_text(gpu, "product_name"),
        line=gpu.line,
    ).measured(
        memory=_text(gpu, "fb_memory_usage", "total"),
        power=next((limit for limit in limits if limit), None),
        default_power=next((limit for limit in defaults if limit), None),
        generation=_text(gpu, *slot, "pcie_gen", "max_link_gen"),
        lanes=_text(gpu, *slot, "link_widths", "max_link_width"),
    )


# dcgmi discovery -l


def looks_like_dcgm(text: ForeignText) -> bool:
    """Whether the sentence with the number of devices appears near the start."""
    return any(_DCGM_COUNT.fullmatch(line.strip()) for line in start(text).split("\n"))


def read_dcgm(text: ForeignText) -> Fragment:
    """Facts of one node from `dcgmi discovery -l`.

    Raises:
        ForeignFormatError: the table is missing or cut off.
    """
    lines = plain_lines(text.text)
    stated = next((match for line in lines if (match := _DCGM_COUNT.fullmatch(line.strip()))), None)
    if stated is None:
        raise ForeignFormatError("does not say how many GPUs were found", help="copy `dcgmi discovery -l`")
    draft = Draft()
    found = _dcgm_devices(lines, draft)
    if len(found) != int(stated[1]):
        raise ForeignFormatError(f"{stated[1]} GPUs are announced, {len(found)} listed", help="copy the whole output")
    if not found:
        draft.remark("DCGM found no GPU")
    switches = next((match for line in lines if (match := _DCGM_SWITCHES.fullmatch(line.strip()))), None)
    _query.write(draft, found, missing="DCGM lists names alone; see nvidia-smi --query-gpu")
    if switches and int(switches[1]):
        draft.group("scale_up", "technology", value="nvlink", how="NvSwitches were found")
        draft.group("scale_up", "topology", value="switched", how="NvSwitches were found")
        draft.group("scale_up", "num_switches", value=int(switches[1]), how="NvSwitches of the node")
    return draft.fragment("dcgm-discovery", text)


def _dcgm_devices(lines: Sequence[str], draft: Draft) -> list[Listed]:
    """Devices of the table below the sentence with their number."""
    found: list[Listed] = []
    inside = False
    for number, line in enumerate(lines, 1):
        if _SECTION.fullmatch(line.strip()):
            inside = _DCGM_COUNT.fullmatch(line.strip()) is not None
        field = _DCGM_FIELD.fullmatch(line.strip()) if inside else None
        if field and field[1] == "Name":
            found.append(Listed(product=field[2].removesuffix("(last known)").strip(), line=number))
        elif field:
            draft.remark(f"a device has the status {cut_to(field[2].strip(), 32)}", number)
    return found
