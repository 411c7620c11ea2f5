"""Reads what tools print of the state of one node: its GPUs, the ports of its NICs, its diagnostics and benchmarks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from trainspec_validate.interop import (
    amd_errors,
    amd_state,
    gpu_diagnostics,
    gpu_report,
    link_blocks,
    link_counters,
    machine_benchmarks,
    xgmi_links,
)
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.interop.readers._collective_table import has_table, operation, tables
from trainspec_validate.model import smi_report
from trainspec_validate.model.smi_report import key_of

_MAX_LINE = 1_000
_MAX_DEVICES = 1_024
_NVLINK_RATE = re.compile(r"(?=.*[1-9])([0-9]{1,5}(?:\.[0-9]{1,6})?) GB/s")
_INACTIVE = "<inactive>"
_SMI_FAILURE = re.compile(
    r"^((?:Unable to determine the device handle for |Failed to initialize NVML|NVIDIA-SMI has failed because |"
    r"No devices were found)[^\n]{0,160})",
    re.MULTILINE,
)
_TEST_FAILURE = re.compile(r"Test (?:NCCL|RCCL|CUDA|HIP) failure[^\n]{0,160}")
"""Source: NVIDIA/nccl-tests, src/common.h; ROCm/rccl-tests, src/common.h."""
_CA = re.compile(r"^CA '(?P<device>[A-Za-z0-9._-]{1,64})'", re.MULTILINE)
_HCA = re.compile(r"^hca_id:\s*(?P<device>[A-Za-z0-9._-]{1,64})", re.MULTILINE)
_NUM_PORTS = re.compile(r"\n\s*CA type:[^\n]{0,200}\n\s*Number of ports:\s*(?P<num>[0-9]{1,3})\s*$", re.MULTILINE)
"""After the head of a device in `ibstat`; `ibv_devinfo` can be asked for one port of several."""
_GUID = re.compile(r"(?:0x)?([0-9a-f]{4}):?([0-9a-f]{4}):?([0-9a-f]{4}):?([0-9a-f]{4})")
_LAST_KEYS = frozenset({"state", "rate", "active_width", "active_speed", "firmware_version", "fw_ver"})
"""Values that are read, so that a part of one would count as the whole."""
_WHOLE = "copy the whole output"
_FIELD = re.compile(r"^\s*(?P<key>[A-Za-z _]{2,40}):\s*(?P<value>.{0,200}?)\s*$")
_PORT = re.compile(r"^\s*(?:Port ([0-9]{1,3}):|port:\s+([0-9]{1,3}))\s*$")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(?: \([A-Z0-9]{1,8}\))?")
"""Gb/s, and the name of the generation after it where the driver knows one: `40 (FDR10)`."""
_NOT_POSITIVE = re.compile(r"0{1,6}(?:\.0{1,6})?(?: .{0,40})?|-[0-9]{1,9}(?:\.[0-9]{1,6})?(?: .{0,40})?")
_SPEED = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gbps")
_TIMES = re.compile(r"([0-9]{1,2})X")
_LINK_IS_UP = ("Initializing", "Armed", "PORT_INIT", "PORT_ARMED")
"""States of a port whose physical link is up. Source: InfiniBand specification 1.4, 7.2.7, port states."""
_MAX_ROWS = 16
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_HOSTS = 8
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*([0-9]{1,18})\s+FAILED", re.MULTILINE)


def node_facts(text: str) -> Facts | None:
    """Facts in a text about its node, of all tools whose output it has; None where it has none.

    Raises:
        ForeignFormatError: it has the output of such a tool, and it cannot be read.
    """
    found = [read(text) for looks_like, read in _TOOLS if looks_like(text)]
    gpu_report.refuse_mixed(text)
    joined: Facts = {}
    for key, value in (entry for facts in found for entry in facts.items()):
        if isinstance(value, list):
            joined.setdefault(key, []).extend(value)
        elif isinstance(value, int):
            joined[key] = min(joined.get(key, value), value)
        else:
            joined.setdefault(key, value)
    return joined if found else None


def _failed_smi(text: str) -> Facts:
    """What nvidia-smi printed in the place of a report, or of a GPU in it."""
    return {"failed_checks": [f"nvidia-smi: {found.rstrip()}" for found in _SMI_FAILURE.findall(text)][:_MAX_ROWS]}


def _failed_test(text: str) -> Facts:
    """The calls of which nccl-tests and rccl-tests say that they failed, with which a test ends."""
    return {"failed_checks": [f"collective: {found.strip()}" for found in _TEST_FAILURE.findall(text)][:_MAX_ROWS]}


def _nvlink(text: str) -> Facts:
    """The states of links of `nvidia-smi nvlink --status`, and lines of links that are not read.

    Raises:
        ForeignFormatError: the last GPU has fewer lines than the others, so that a part of the output is lost.
    """
    found, odd = link_blocks.blocks(text)
    devices: list[Facts] = []
    num_links: list[int] = []
    unread: list[str] = []
    for block in found:
        if block.counters and not block.states and not block.is_inactive:
            continue
        device: Facts = {"name": block.name}
        for link, state in block.states:
            unread += _take_link(device, link, state)
        num_links.append(len(block.states))
        if block.is_inactive and not block.states:
            device["num_active_links"], num_links[-1] = 0, max(num_links)
        devices.append(device)
    if devices and num_links[-1] < max(num_links):
        message = f"is cut off: {num_links[-1]} links of the last GPU are listed, of others {max(num_links)}"
        raise ForeignFormatError(message, help=_WHOLE)
    if unread and not text.endswith("\n"):
        raise ForeignFormatError("is cut off: its last line has no end", help=_WHOLE)
    for device in devices:
        if None in device.values():
            del device["num_active_links"]
    # of all GPUs, or of the one that it was asked for
    return {"devices": devices[:_MAX_DEVICES], "unread": [*unread, *odd]}


def _counters(text: str) -> Facts:
    """The counters of links of `nvidia-smi nvlink --errorcounters`.

    Raises:
        ForeignFormatError: the last GPU or its last link has fewer counters than the others, or the last one may lack
            digits.
    """
    found: dict[str, link_counters.Counters] = {}
    for block in link_blocks.blocks(text)[0]:
        for line in block.counters:
            found.setdefault(block.name, link_counters.Counters(block.name)).take(line)
    each = list(found.values())
    if not each:
        return {}
    last, most = each[-1], max(counters.num_taken for counters in each)
    if last.num_taken < most or link_counters.is_counter(text.rpartition("\n")[2]):
        message = f"is cut off: {last.num_taken} counters of the last GPU are listed, of others {most}"
        raise ForeignFormatError(message, help=_WHOLE)
    if last.of_last_link < max(last.by_link.values()):
        message = f"is cut off: {last.of_last_link} counters of the last link are listed, of others more"
        raise ForeignFormatError(message, help=_WHOLE)
    facts = [counters.facts() for counters in each[:_MAX_DEVICES]]
    taken: Facts = {key: [one for entry in facts for one in entry[key]] for key in ("devices", "unread")}
    taken["unread"] += [
        f"{name}: {counters.num_taken} counters of links, of others {most}"
        for name, counters in found.items()
        if counters.num_taken < most
    ]
    return {**taken, "counted_links": {name: len(counters.by_link) for name, counters in found.items()}}


def _take_link(device: Facts, link: str, state: str) -> Iterator[str]:
    """Take the state of one link; where it is none that can be, how many are active stays open."""
    rate = _NVLINK_RATE.fullmatch(state)
    before = device.get("num_active_links", 0)
    is_known = rate is not None or state == _INACTIVE
    device["num_active_links"] = None if before is None or not is_known else before + (rate is not None)
    if rate is not None:
        value = float(rate[1]) * 1e9
        device["least_link_bytes_per_second"] = min(value, device.get("least_link_bytes_per_second", value))
    elif not is_known:
        yield f"link {link} of {device['name']} {state}"


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
            key, value = key_of(field["key"]), field["value"]
            guid = _GUID.fullmatch(value.lower()) if key == "node_guid" else None
            if key in {"firmware_version", "fw_ver"}:
                own["firmware"] = value
            elif guid and any(digit != "0" for digit in "".join(guid.groups())):
                own["node_guid"] = "".join(guid.groups())
            elif found and found[-1]["device"] == device:
                _port_field(found[-1], key, value)
    _check_whole(text, found)
    kept = [port for port in found if port["port"] > 0 and port["device"]][: 4 * _MAX_DEVICES]
    ports = [{key: value for key, value in port.items() if key not in {"width", "odd_rate"}} for port in kept]
    return {"ports": ports, **_odd_rates(port for port in kept if port["active"] and "odd_rate" in port)}


def _odd_rates(ports: Iterable[Facts]) -> Facts:
    """What active ports state as their rate and none can run at: a number that is not positive, or no number."""
    odd: list[tuple[str, int]] = []
    failed: list[str] = []
    unread: list[str] = []
    for port in ports:
        text = f"rate of active port {port['port']} of {port['device']} is {port['odd_rate'][:40]}"
        odd.append((port["device"], port["port"]))
        (failed if _NOT_POSITIVE.fullmatch(port["odd_rate"]) else unread).append(text)
    found = {"odd_rates": odd, "failed_checks": failed[:_MAX_ROWS], "unread": unread[:_MAX_ROWS]}
    return {key: facts for key, facts in found.items() if facts}


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
    if field and key_of(field["key"]) in _LAST_KEYS:
        raise ForeignFormatError("is cut off: its last line has no end", help=_WHOLE)


def _port_field(port: Facts, key: str, value: str) -> None:
    if key == "state":
        if value in {"", "PORT_"}:
            return  # the line is cut off
        port["active"] = value.startswith(("Active", "PORT_ACTIVE"))
        if value.startswith(_LINK_IS_UP):
            port["awaits_subnet_manager"] = True
    elif key == "link_layer" and value.lower() in {"infiniband", "ethernet"}:
        port["link_layer"] = value.lower()
    elif key == "rate" and (rate := _RATE.fullmatch(value)) and 0 < float(rate[1]) < 100_000:
        port["rate_bytes_per_second"] = float(rate[1]) * 1.25e8
    elif key == "rate" and value:
        port["odd_rate"] = value
    elif key == "active_width" and (width := _TIMES.match(value)):
        port["width"] = int(width[1])
    elif key == "active_speed" and "width" in port and (speed := _SPEED.match(value)) and float(speed[1]) > 0:
        # Speeds of a lane as the library prints them: 25.0 for EDR and HDR100, 50.0 for HDR, 100.0 for NDR.
        port["rate_bytes_per_second"] = float(speed[1]) * port["width"] * 1.25e8


def _benchmarks(text: str) -> Facts:
    """The largest message of each benchmark that ran on one node."""
    largest: dict[tuple[str, int], Facts] = {}
    hosts: dict[str, None] = {}
    unread: list[str] = []
    for table in tables(text):
        kind, number = operation(table), len(table.hosts)
        unread += table.unread
        if table.rows and all(row.is_unchecked for row in table.rows):
            unread.append(f"line {table.rows[0].line}: #wrong is no number: the program did not check the data")
        names = set(table.hosts.values())
        hosts |= dict.fromkeys(name for name in names if len(names) == 1 and _HOST.fullmatch(name))
        if kind is None or number < 2 or len(set(table.hosts.values())) > 1:
            continue
        for row in sorted(table.rows, key=lambda row: row.size_bytes)[-1:]:
            rate = row.bus_bytes_per_second
            if not row.size_bytes or not rate:
                unread += [f"line {row.line}: busbw"] if row.size_bytes else []
                continue
            own = {"operation": kind, "num_ranks": number, "message_bytes": float(row.size_bytes)}
            largest[kind, number] = {**own, "bus_bandwidth_bytes_per_second": rate}
    return {
        "bus_bandwidths": list(largest.values()),
        "failed_checks": _wrong(text),
        "hosts": list(hosts)[:_SHOWN_HOSTS],
        "unread": list(dict.fromkeys(unread)),
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
    (smi_report.is_xml, gpu_report.read_xml),
    (smi_report.is_text, gpu_report.read_text),
    (lambda text: bool(_SMI_FAILURE.search(text)), _failed_smi),
    (lambda text: bool(_TEST_FAILURE.search(text)), _failed_test),
    (lambda text: bool(link_blocks.HEAD.search(text)), _nvlink),
    (lambda text: bool(link_blocks.HEAD.search(text)), _counters),
    (amd_errors.is_metric, amd_errors.read),
    (amd_state.is_metric, amd_state.read),
    (xgmi_links.is_table, xgmi_links.read),
    (lambda text: bool(_CA.search(text) or _HCA.search(text)), _ports),
    (gpu_diagnostics.is_table, gpu_diagnostics.read),
    (has_table, _benchmarks),
    (machine_benchmarks.is_nvbandwidth, machine_benchmarks.read_nvbandwidth),
    (machine_benchmarks.is_hpl, machine_benchmarks.read_hpl),
)
