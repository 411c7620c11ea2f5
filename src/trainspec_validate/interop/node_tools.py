"""Reads what tools print of the state of one node: its GPUs, the ports of its NICs, its diagnostics and benchmarks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainspec_validate.interop import xml
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._accelerators import by_product
from trainspec_validate.interop.readers._collective_table import has_table, operation, tables
from trainspec_validate.interop.readers._counted import counted
from trainspec_validate.interop.readers._query import size

Facts = dict[str, Any]
"""Part of an observed node in plain values."""
Tree = dict[str, Any]
_MAX_LINE = 1_000
_MAX_DEPTH = 12
_MAX_DEVICES = 1_024
_SMI_ROOT = "nvidia_smi_log"
_SMI_XML = f"<{_SMI_ROOT}"
_SMI_TEXT = re.compile(r"^=+NVSMI LOG=+\s*$", re.MULTILINE)
_ENTRY = re.compile(r"(?P<indent> *)(?P<key>[^:]{1,120}?)\s*(?: : ?(?P<value>.*))?")
_GPU = re.compile(r"GPU (?P<pci>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])")
_UNREACHED = "Unable to determine the device handle"
"""What the tool prints in the place of a GPU that does not answer."""
_WIDTH = re.compile(r"(\d{1,2})x")
_MEGAHERTZ = re.compile(r"(\d{1,5}) MHz")
_NVLINK_GPU = re.compile(r"^GPU (?P<index>\d{1,4}): .{0,100}\(UUID: (?P<uuid>GPU-[0-9a-fA-F-]{36})\)", re.MULTILINE)
_NVLINK_LINK = re.compile(r"^\s+Link (?P<link>\d{1,3}): (?P<state><inactive>|[\d.]{1,10} GB/s)\s*$")
_NVLINK_NONE = "all links are inactive"
"""Printed in the place of the links; `nvidia-smi -L` prints the GPUs and nothing of links."""
_SLOWDOWNS = {"hw_thermal_slowdown": "throttle:thermal", "hw_power_brake_slowdown": "throttle:power-brake"}
_UNCORRECTED = re.compile(r"(?:dram|sram)_uncorrectable(?:_parity|_sec_ded|_secded)?")
_CA = re.compile(r"^CA '(?P<device>[A-Za-z0-9._-]{1,64})'", re.MULTILINE)
_HCA = re.compile(r"^hca_id:\s*(?P<device>[A-Za-z0-9._-]{1,64})", re.MULTILINE)
_NUM_PORTS = re.compile(r"\n\s*CA type:[^\n]{0,200}\n\s*Number of ports:\s*(?P<num>\d{1,3})\s*$", re.MULTILINE)
"""After the head of a device in `ibstat`; `ibv_devinfo` can be asked for one port of several."""
_GUID = re.compile(r"(?:0x)?([0-9a-f]{4}):?([0-9a-f]{4}):?([0-9a-f]{4}):?([0-9a-f]{4})")
_SERIAL = re.compile(r"(?=.*[1-9A-Za-z])[0-9A-Za-z-]{4,64}")
_LAST_KEYS = frozenset({"state", "rate", "active_width", "active_speed", "firmware_version", "fw_ver", "node_guid"})
"""Values that are read, so that a part of one would count as the whole."""
_WHOLE = "copy the whole output"
_FIELD = re.compile(r"^\s*(?P<key>[A-Za-z _]{2,40}):\s*(?P<value>.{0,200}?)\s*$")
_PORT = re.compile(r"^\s*(?:Port (\d{1,3}):|port:\s+(\d{1,3}))\s*$")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(?: \([A-Z0-9]{1,8}\))?")
"""Gb/s, and the name of the generation after it where the driver knows one: `40 (FDR10)`."""
_SPEED = re.compile(r"([\d.]{1,8}) Gbps")
_TIMES = re.compile(r"(\d{1,2})X")
_DIAGNOSTIC = re.compile(r"^\|\s*Diagnostic\s*\|\s*Result\s*\|", re.MULTILINE)
_BORDER = re.compile(r"\+-+\+-+\+")
_CHECK = re.compile(r"^\|[ |-]{0,3}\s*(?P<check>[A-Za-z][^|]{0,60}?)\s*\|\s*(?P<result>[^|]{1,200}?)\s*\|")
_MORE = re.compile(r"^\|\s*(?:(?:Warning|Error)[^|]{0,40})?\|\s*(?P<more>(?:GPU|CPU|Host|NvSwitch)[^|]{0,200}?)\s*\|")
_BAD = re.compile(r"^[A-Za-z]+ ?\d{0,4}: Fail")
"""Of one device, as DCGM 4 prints it: `GPU5: Fail`."""
_MAX_ROWS = 16
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_HOSTS = 8
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s+FAILED", re.MULTILINE)


def node_facts(text: str) -> Facts | None:
    """Facts in a text about its node, of all tools whose output it has; None where it has none.

    Raises:
        ForeignFormatError: it has the output of such a tool, and it cannot be read.
    """
    found = [read(text) for looks_like, read in _TOOLS if looks_like(text)]
    if _SMI_XML in text and xml.root_tag(text) != _SMI_ROOT:
        raise ForeignFormatError("has the XML of nvidia-smi after other text", help="keep it in a file of its own")
    joined: Facts = {}
    for key, value in (entry for facts in found for entry in facts.items()):
        if isinstance(value, list):
            joined.setdefault(key, []).extend(value)
        elif isinstance(value, int):
            joined[key] = min(joined.get(key, value), value)
        else:
            joined.setdefault(key, value)
    return joined if found else None


def _smi_text(text: str) -> Facts:
    """The report of `nvidia-smi -q`, which indents what belongs together."""
    root: Tree = {}
    stack: list[tuple[int, Tree]] = [(-1, root)]
    gpus: list[tuple[str, Tree]] = []
    for line in text.split("\n"):
        gpu, found = _GPU.match(line), _ENTRY.fullmatch(line[:_MAX_LINE].rstrip())
        if gpu is not None:
            gpus.append((gpu["pci"], {}))
            stack = [(-1, root), (0, gpus[-1][1])]
        elif found is not None and found["key"].strip():
            indent = len(found["indent"])
            while stack[-1][0] >= indent:
                stack.pop()
            if found["value"] is not None:
                stack[-1][1].setdefault(_key(found["key"]), found["value"].strip())
            elif len(stack) < _MAX_DEPTH:
                section = stack[-1][1].setdefault(_key(found["key"]), {})
                if isinstance(section, dict):
                    stack.append((indent, section))
    facts = _smi(root, gpus, is_unreached=_UNREACHED in text)
    sections = {key for _, tree in gpus for key in tree}
    if "num_accelerators" not in facts and (not text.endswith("\n") or sections - set(gpus[-1][1] if gpus else ())):
        raise ForeignFormatError(f"is cut off: {facts['open_counts'][0]}", help=_WHOLE)
    return facts


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def _smi_xml(text: str) -> Facts:
    root = xml.parse(text)
    gpus = [child for child in root.children if child.tag == "gpu"]
    return _smi(_tree(root, 0), [(_text(_tree(gpu, 0), "pci", "pci_bus_id") or "", _tree(gpu, 0)) for gpu in gpus])


def _tree(item: xml.Element, depth: int) -> Tree:
    found: Tree = {}
    for child in item.children:
        if child.tag != "gpu" or depth:
            below: Any = _tree(child, depth + 1) if child.children and depth < _MAX_DEPTH else child.text.strip()
            found.setdefault(_key(child.tag), below)
    return found


def _smi(root: Tree, gpus: list[tuple[str, Tree]], *, is_unreached: bool = False) -> Facts:
    """Facts of the GPUs of one report; one that the tool names as unreached is attached and not listed."""
    if len(gpus) > _MAX_DEVICES:
        raise ForeignFormatError(f"lists {len(gpus):,} devices", help=f"at most {_MAX_DEVICES:,} are read")
    rows = [{"uuid": _text(tree, "gpu_uuid") or _text(tree, "uuid"), "pci.bus_id": pci} for pci, tree in gpus]
    found = counted(rows, None if is_unreached else _text(root, "attached_gpus"), is_sampled=False)
    if len(found.firsts) < len(gpus):
        raise ForeignFormatError(f"lists {len(found.firsts)} GPUs several times", help="keep one report of the tool")
    facts: Facts = {"devices": [_gpu(pci, tree) for pci, tree in gpus]}
    if found.num_devices is None:
        facts["open_counts"] = [found.remark]
    else:
        facts["num_accelerators"] = found.num_devices
    if driver := _text(root, "driver_version"):
        facts["driver"] = driver
    return facts


def _text(tree: Mapping[str, Any], *path: str) -> str | None:
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    usable = (
        isinstance(found, str) and found and not re.fullmatch(r"\[?(n/a|unknown error|not supported).*", found.lower())
    )
    return found if usable else None


def _gpu(pci: str, tree: Tree) -> Facts:
    own: Facts = {"name": _text(tree, "gpu_uuid") or _text(tree, "uuid") or pci.lower(), "pci": pci}
    memory = size(_text(tree, "fb_memory_usage", "total"), "MiB")
    product = _text(tree, "product_name")
    match = by_product(product, memory) if product else None
    if match is not None:
        own["model"] = match.model
    if firmware := _text(tree, "vbios_version"):
        own["firmware"] = firmware
    serial = _text(tree, "serial_number") or _text(tree, "serial") or ""
    if _SERIAL.fullmatch(serial) and len(set(serial)) > 1:
        own["serial_number"] = serial
    for path in (
        ("gpu_link_info", "link_width", "current"),
        ("pci_gpu_link_info", "link_widths", "current_link_width"),
    ):
        if width := _WIDTH.fullmatch(_text(tree, "pci", *path) or ""):
            own["host_link_num_lanes"] = int(width[1])
    for key in ("sm", "sm_clock"):
        if clock := _MEGAHERTZ.fullmatch(_text(tree, "max_clocks", key) or ""):
            own["clock_limit_hertz"] = int(clock[1]) * 1e6
    errors = _uncorrected(tree.get("ecc_errors"))
    if errors is not None:
        own["num_uncorrected_errors"] = errors
    own["faults"] = list(_smi_faults(tree))
    return own


def _uncorrected(errors: Any) -> int | None:
    """Uncorrected errors since the driver was loaded; older drivers count double bits."""
    volatile = errors.get("volatile") if isinstance(errors, dict) else None
    if not isinstance(volatile, dict):
        return None
    found = [value for key, value in volatile.items() if _UNCORRECTED.fullmatch(key)]
    found += [volatile["double_bit"].get("total")] if isinstance(volatile.get("double_bit"), dict) else []
    counts = [int(value) for value in found if isinstance(value, str) and value.isdigit() and len(value) < 9]
    return sum(counts) if counts else None


def _smi_faults(tree: Tree) -> Iterator[str]:
    rows = tree.get("remapped_rows")
    rows = rows if isinstance(rows, dict) else {}
    for keys, fault in (
        (("remapping_failure_occurred", "remapped_row_failure"), "row-remap:failure"),
        (("pending", "remapped_row_pending"), "row-remap:pending"),
    ):
        if any(rows.get(key) == "Yes" for key in keys):
            yield fault
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = tree.get(section)
        for key, value in reasons.items() if isinstance(reasons, dict) else ():
            name = key.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_")
            if value == "Active" and name in _SLOWDOWNS:
                yield _SLOWDOWNS[name]


def _nvlink(text: str) -> Facts:
    """The states of links of `nvidia-smi nvlink --status`.

    Raises:
        ForeignFormatError: the last GPU has fewer lines than the others, so that a part of the output is lost.
    """
    devices: list[Facts] = []
    num_links: list[int] = []
    for line in text.split("\n"):
        if gpu := _NVLINK_GPU.match(line[:_MAX_LINE]):
            devices.append({"name": gpu["uuid"]})
            num_links.append(0)
        elif devices and (link := _NVLINK_LINK.match(line[:_MAX_LINE])):
            before = devices[-1].get("num_active_links", 0)
            devices[-1]["num_active_links"] = before + (link["state"] != "<inactive>")
            num_links[-1] += 1
        elif devices and _NVLINK_NONE in line.lower():
            devices[-1]["num_active_links"], num_links[-1] = 0, max(num_links)
    if num_links[-1] < max(num_links):
        message = f"is cut off: {num_links[-1]} links of the last GPU are listed, of others {max(num_links)}"
        raise ForeignFormatError(message, help=_WHOLE)
    return {"devices": devices[:_MAX_DEVICES]}  # of all GPUs, or of the one that it was asked for


def _ports(text: str) -> Facts:
    """The ports of `ibstat` and of `ibv_devinfo`.

    Raises:
        ForeignFormatError: a device lacks a port, or a port its state, so that a part of the output is lost.
    """
    found: list[Facts] = []
    device, own = "", Facts()
    for line in text.split("\n"):
        if head := _CA.match(line) or _HCA.match(line):
            device, own = head["device"], {}
        elif port := _PORT.match(line):
            found.append({"device": device, "port": int(port[1] or port[2]), **own})
        elif field := _FIELD.match(line):
            key, value = _key(field["key"]), field["value"]
            guid = _GUID.fullmatch(value.lower()) if key == "node_guid" else None
            if key in {"firmware_version", "fw_ver"}:
                own["firmware"] = value
            elif guid and any(digit != "0" for digit in "".join(guid.groups())):
                own["node_guid"] = "".join(guid.groups())
            elif found and found[-1]["device"] == device:
                _port_field(found[-1], key, value)
    _check_whole(text, found)
    ports = [{key: value for key, value in port.items() if key != "width"} for port in found if port["port"] > 0]
    return {"ports": [port for port in ports if port["device"]][: 4 * _MAX_DEVICES]}


def _check_whole(text: str, found: list[Facts]) -> None:
    """Refuse an output that is cut off: it would read as links that are down, or as ports that are absent."""
    num_ports = Counter(port["device"] for port in found)
    for head in (*_CA.finditer(text), *_HCA.finditer(text)):
        announced = _NUM_PORTS.match(text, head.end())
        wanted = int(announced["num"]) if announced else 1
        if num_ports[head["device"]] < wanted:
            message = f"is cut off: {num_ports[head['device']]} of {wanted} ports of {head['device']} are listed"
            raise ForeignFormatError(message, help=_WHOLE)
    stateless = next((port for port in found if "active" not in port), None)
    if stateless is not None:
        message = f"is cut off: port {stateless['port']} of {stateless['device']} has no state"
        raise ForeignFormatError(message, help=_WHOLE)
    last = "" if text.endswith("\n") else text.rpartition("\n")[2]
    field = _FIELD.match(last)
    if field and _key(field["key"]) in _LAST_KEYS:
        raise ForeignFormatError("is cut off: its last line has no end", help=_WHOLE)


def _port_field(port: Facts, key: str, value: str) -> None:
    if key == "state":
        if value in {"", "PORT_"}:
            return  # the line is cut off
        port["active"] = value.startswith(("Active", "PORT_ACTIVE"))
    elif key == "rate" and (rate := _RATE.fullmatch(value)) and 0 < float(rate[1]) < 100_000:
        port["rate_bytes_per_second"] = float(rate[1]) * 1.25e8
    elif key == "active_width" and (width := _TIMES.match(value)):
        port["width"] = int(width[1])
    elif key == "active_speed" and "width" in port and (speed := _SPEED.match(value)):
        # Speeds of a lane as the library prints them: 25.0 for EDR and HDR100, 50.0 for HDR, 100.0 for NDR.
        port["rate_bytes_per_second"] = float(speed[1]) * port["width"] * 1.25e8


def _diagnostics(text: str) -> Facts:
    """The table of `dcgmi diag`: what failed, and on which GPUs.

    Raises:
        ForeignFormatError: the table has no end, so that a part of the output is lost.
    """
    rows = [line.rstrip() for line in text.split("\n") if line.startswith(("|", "+"))]
    if not _BORDER.fullmatch(rows[-1][:_MAX_LINE]):
        raise ForeignFormatError("is cut off: the table of results has no end", help=_WHOLE)
    failed: list[str] = []
    for check, result, below in _checks(text):
        bad = [row for row in below if _BAD.search(row)]
        if result.startswith("Fail") or bad:
            rows = bad or [row for row in below if not row.endswith(": Pass")]
            own = "Fail" if bad and not result.startswith("Fail") else result
            failed.append(f"{check}: {', '.join([own, *([] if 'GPU' in own else rows[:_MAX_ROWS])])}")
    return {"failed_checks": list(dict.fromkeys(failed))[:_MAX_DEVICES]}


def _checks(text: str) -> list[tuple[str, str, list[str]]]:
    """Each check of the table: its name, its result, and what the rows below it say of single devices."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.split("\n"):
        if more := _MORE.match(line[:_MAX_LINE]):
            if found:
                found[-1][2].append(more["more"])
        elif row := _CHECK.match(line[:_MAX_LINE]):
            found.append((row["check"], row["result"], []))
    return found


def _benchmarks(text: str) -> Facts:
    """The largest message of each benchmark that ran on one node."""
    largest: dict[tuple[str, int], Facts] = {}
    hosts: dict[str, None] = {}
    for table in tables(text):
        kind, number = operation(table), len(table.hosts)
        names = set(table.hosts.values())
        hosts |= dict.fromkeys(name for name in names if len(names) == 1 and _HOST.fullmatch(name))
        if kind is None or number < 2 or len(set(table.hosts.values())) > 1:
            continue
        rows = [row for row in table.rows if row.bus_bytes_per_second and row.size_bytes]
        for row in sorted(rows, key=lambda row: row.size_bytes)[-1:]:
            rate = row.bus_bytes_per_second
            own = {"operation": kind, "num_ranks": number, "message_bytes": float(row.size_bytes)}
            largest[kind, number] = {**own, "bus_bandwidth_bytes_per_second": rate}
    return {
        "bus_bandwidths": list(largest.values()),
        "failed_checks": _wrong(text),
        "hosts": list(hosts)[:_SHOWN_HOSTS],
    }


def _wrong(text: str) -> list[str]:
    """Results of collectives that are not what was sent, as the tables count them, or else their last lines."""
    found = []
    for table in tables(text):
        wrong = [row for row in table.rows if row.num_wrong]
        if wrong:
            most = max(row.num_wrong for row in wrong)
            hosts = sorted(set(table.hosts.values()))[:_SHOWN_HOSTS]
            where = f" on {', '.join(hosts)}" if len(hosts) > 1 else ""
            kind = operation(table) or "collective"
            found.append(f"{kind}: {most} wrong values{where} ({len(wrong)} of {len(table.rows)} sizes have some)")
    return found or [f"collective: {number} wrong values (out of bounds)" for number in _OUT_OF_BOUNDS.findall(text)]


_TOOLS: tuple[tuple[Callable[[str], bool], Callable[[str], Facts]], ...] = (
    (lambda text: xml.root_tag(text) == _SMI_ROOT, _smi_xml),
    (lambda text: bool(_SMI_TEXT.search(text)), _smi_text),
    (lambda text: bool(_NVLINK_GPU.search(text)), _nvlink),
    (lambda text: bool(_CA.search(text) or _HCA.search(text)), _ports),
    (lambda text: bool(_DIAGNOSTIC.search(text)), _diagnostics),
    (has_table, _benchmarks),
)
