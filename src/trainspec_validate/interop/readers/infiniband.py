"""Reads the output of ibnetdiscover: switches, adapters, cables and lane rates."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._port_survey import SurveyedSwitch, levels, put_survey, spread
from trainspec_validate.interop.readers._sheet import Sheet, plain_text
from trainspec_validate.model.catalog import links
from trainspec_validate.system.digits import is_digits

NAME = "ibnetdiscover"
_AGGREGATION = "aggregation node"
_LANES_OF_GENERATION = {"hdr100": 2, "ndr200": 2}
_SHOWN = 6
_MAX_DEVICES = 500_000
_DEVICE = re.compile(
    r'(?P<kind>Switch|Ca|Rt)\s+(?P<ports>[0-9]{1,4})\s+"(?P<id>[^"]{1,64})"\s*#\s*"(?P<name>[^"]{0,256})"'
)
_PORT = re.compile(r'\[(?P<number>[0-9]{1,4})\](?:\([0-9a-fA-F]+\))?\s+"(?P<target>[^"]{1,64})"\[[0-9]{1,4}\]')
_WIDTH = re.compile(r"([0-9]{1,2}x[A-Z]{2,4}[0-9]{0,3})\s*$")
_HEAD = re.compile(r'^(?:Switch|Ca|Rt)\t[0-9]+ "|^(?:switchguid|caguid)=0x', re.MULTILINE)
_HOST = re.compile(r"(?P<host>\S+) (?P<device>mlx\w+|HCA-[0-9]+|ib\w*|hfi\w+)")
_START = re.compile(r"^# Initiated from node ([0-9a-fA-F]{1,16})\b", re.MULTILINE)
_KEY = re.compile(r"[a-z]+guid?=|vendid=|devid=|rtguid=")


@dataclass(frozen=True, slots=True)
class _Port:
    """One cabled port."""

    number: int
    target: str
    width: str
    """Lanes and generation, for example `4xNDR`; empty where the line has none."""


@dataclass(frozen=True, slots=True)
class _Device:
    """One switch or adapter with its cabled ports."""

    identifier: str
    name: str
    is_switch: bool
    num_ports: int
    ports: tuple[_Port, ...]
    line: int

    @property
    def host(self) -> str:
        """Host of an adapter, by its name; empty where the name has none."""
        match = _HOST.fullmatch(self.name.strip())
        return match["host"] if match else ""

    @property
    def device(self) -> str:
        """Device of an adapter on its host, by its name; empty where the name has none."""
        match = _HOST.fullmatch(self.name.strip())
        return match["device"] if match else ""


def _looks_like_listing(text: ForeignText) -> bool:
    """Whether a line starts a device of the listing."""
    return bool(_HEAD.search(text.text))


def _starts_at(text: ForeignText) -> str | None:
    """Identifier of the device that the survey started from; None where the head of the listing is lost.

    >>> _starts_at(ForeignText("a", "# Initiated from node b8e9 port b8e9"))
    'H-000000000000b8e9'
    """
    match = _START.search(text.text)
    return f"H-{match[1].lower().zfill(16)}" if match else None


def _devices(text: ForeignText) -> Iterator[_Device]:
    """Every switch and adapter, in the order of the listing.

    Raises:
        ForeignFormatError: a line is neither a device, a port, a key nor a comment.
    """
    head: re.Match[str] | None = None
    start, ports, total = 0, list[_Port](), 0
    for number, line in enumerate(text.text.split("\n"), start=1):
        if not line.strip() or line.startswith("#") or _KEY.match(line):
            continue
        port = _PORT.match(line)
        if port is not None:
            if head is None:
                raise ForeignFormatError("a port before any switch or adapter: the start is cut off", number)
            width = _WIDTH.search(line)
            ports.append(_Port(int(port["number"]), port["target"], width[1] if width else ""))
            continue
        if head is not None:
            yield _device(head, start, ports)
        head, start, ports, total = _DEVICE.match(line), number, [], total + 1
        if head is None:
            raise ForeignFormatError(f"this is no line of ibnetdiscover: {plain_text(line)}", number)
        if total > _MAX_DEVICES:
            raise ForeignFormatError(f"more than {_MAX_DEVICES:,} devices", number)
    if head is not None:
        yield _device(head, start, ports)


def _device(head: re.Match[str], start: int, ports: list[_Port]) -> _Device:
    return _Device(head["id"], head["name"], head["kind"] != "Ca", int(head["ports"]), tuple(ports), start)


@dataclass(slots=True)
class _Fabric:
    """Devices by identifier, without the aggregation units that live inside switches."""

    switches: dict[str, _Device] = field(default_factory=dict)
    adapters: dict[str, _Device] = field(default_factory=dict)
    units: set[str] = field(default_factory=set)


def read(text: ForeignText) -> Fragment:
    """Tiers, uplinks and lane rates of a surveyed fabric. Format: `man 8 ibnetdiscover` of rdma-core.

    Leaves are the switches that carry adapters; every other layer is counted from there.

    Raises:
        ForeignFormatError: a line is malformed, or a part of the output is lost.
    """
    fabric = _Fabric()
    last = 1
    for device in _devices(text):
        last = device.line
        if device.is_switch:
            fabric.switches[device.identifier] = device
        elif _AGGREGATION in device.name.casefold():
            fabric.units.add(device.identifier)
        else:
            fabric.adapters[device.identifier] = device
    sheet = Sheet()
    sheet.put(("fabrics", 0, "name"), "fabric", "a label; the survey gives the network no name")
    sheet.put(("fabrics", 0, "transport"), "infiniband", "ibnetdiscover surveys InfiniBand subnets only")
    if fabric.switches:
        _put_switches(sheet, fabric)
        _put_nodes(sheet, fabric)
    elif _is_whole(fabric, _starts_at(text)):
        _put_adapters(sheet, fabric, last)
    else:
        adapters = f"{len(fabric.adapters)} adapter{'' if len(fabric.adapters) == 1 else 's'}"
        message = f"{adapters} and no switch: the output is cut off"
        raise ForeignFormatError(message, last, "run ibnetdiscover again and keep all that it prints")
    return sheet.fragment(NAME, text)


def _is_whole(fabric: _Fabric, start: str | None) -> bool:
    """Whether a survey without switches is all that there was to see: it lists its start and the end of each cable.

    Switches come before adapters in the listing, and ports without a cable are not printed.
    Source: linux-rdma/rdma-core@0c0ced81:infiniband-diags/ibnetdiscover.c (dump_topology).
    """
    targets = {port.target for adapter in fabric.adapters.values() for port in adapter.ports}
    return start in fabric.adapters and targets <= fabric.adapters.keys()


def _put_adapters(sheet: Sheet, fabric: _Fabric, line: int) -> None:
    """What a survey tells that met no switch: not the fabric, but that an adapter has no way into it."""
    names = ", ".join(plain_text(adapter.name) for adapter in list(fabric.adapters.values())[:_SHOWN])
    cabled = any(adapter.ports for adapter in fabric.adapters.values())
    told = "cabled to each other" if cabled else "no port has a link"
    message = f"the survey met no switch and shows nothing of the fabric: {names}, {told}"
    sheet.remark(message if cabled else f"{message}; see ibstat on that host, and survey from another one", line)
    reason = "the survey met no switch; survey from a host whose link is up"
    for pointer in (("fabrics", 0, "topology"), ("fabrics", 0, "tiers"), ("num_nodes",)):
        sheet.unknown(pointer, reason)
    for key in ("num_accelerators", "node_groups"):
        sheet.unknown((key,), "the survey sees adapters, not what nodes are made of")


def rate_of(width: str) -> float | None:
    """Bytes per second of a port from its lanes and generation, `4xNDR`, in one direction; None when unknown.

    Source of the rates: `links.yaml` of the specification.

    >>> rate_of("4xNDR"), rate_of("2xHDR"), rate_of("4xSDR")
    (50000000000.0, 12500000000.0, None)
    """
    lanes, _, generation = width.partition("x")
    full = links().nic_rate_bytes_per_second.get(("infiniband", generation.casefold()))
    if full is None or not is_digits(lanes):
        return None
    return full * int(lanes) / _LANES_OF_GENERATION.get(generation.casefold(), 4)


def _put_switches(sheet: Sheet, fabric: _Fabric) -> None:
    neighbours: dict[str, list[str]] = defaultdict(list)
    for switch in fabric.switches.values():
        neighbours[switch.identifier] = [port.target for port in switch.ports]
    leaves = [name for name in fabric.switches if any(target in fabric.adapters for target in neighbours[name])]
    found = levels(fabric.switches, leaves, neighbours)
    _remark_odd(sheet, fabric, found)
    surveyed = [_surveyed(fabric, fabric.switches[name], found) for name in fabric.switches if name in found]
    put_survey(sheet, surveyed)
    widths = Counter(port.width for switch in fabric.switches.values() for port in switch.ports if port.width)
    if len(widths) > 1:
        told = ", ".join(f"{count} of {width}" for width, count in widths.most_common(_SHOWN))
        sheet.remark(f"ports run at different widths or rates: {told}")
    strange = sorted(width for width in widths if rate_of(width) is None)
    if strange:
        sheet.remark(f"no rate is known for {', '.join(strange[:_SHOWN])}")
    _put_shape(sheet, fabric, leaves)


def _surveyed(fabric: _Fabric, switch: _Device, found: Mapping[str, int]) -> SurveyedSwitch:
    own = found[switch.identifier]
    targets = [port.target for port in switch.ports]
    up = sum(found.get(target, -1) > own for target in targets)
    down = sum(target in fabric.adapters or -1 < found.get(target, own) < own for target in targets)
    rates = Counter(rate_of(port.width) for port in switch.ports if port.target not in fabric.units)
    # The last port of a housing with an aggregation unit is internal: 65 is a switch of 64.
    inner = any(port.number == switch.num_ports and port.target in fabric.units for port in switch.ports)
    rate = rates.most_common(1)[0][0] if rates else None
    return SurveyedSwitch(plain_text(switch.name), own, down, up, switch.num_ports - inner, rate)


def _remark_odd(sheet: Sheet, fabric: _Fabric, found: Mapping[str, int]) -> None:
    lost = [switch for name, switch in fabric.switches.items() if name not in found]
    if lost:
        names = ", ".join(plain_text(switch.name) for switch in lost[:_SHOWN])
        sheet.remark(f"{len(lost)} switches have no path to an adapter (left out): {names}", lost[0].line)
    for name, switch in fabric.switches.items():
        beside = [port for port in switch.ports if name in found and found.get(port.target, -1) == found[name]]
        if beside:
            sheet.remark(f"{plain_text(switch.name)} has {len(beside)} cables within its own layer", switch.line)
    known = {*fabric.switches, *fabric.adapters, *fabric.units}
    absent = {port.target for switch in fabric.switches.values() for port in switch.ports} - known
    if absent:
        sheet.remark(f"{len(absent)} devices are named by cables but not listed: the output may be cut off")


def _put_shape(sheet: Sheet, fabric: _Fabric, leaves: Iterable[str]) -> None:
    """Rails, where every leaf carries one device of all its nodes."""
    per_leaf = {leaf: _devices_on(fabric, fabric.switches[leaf]) for leaf in leaves}
    named = {leaf: counts for leaf, counts in per_leaf.items() if counts}
    mixed = {leaf: counts for leaf, counts in named.items() if len(counts) > 1}
    reason = "the cabling plan shows whether the network is a fat tree, rail-optimised or other"
    rails = {next(iter(counts)) for counts in named.values() if len(counts) == 1}
    if len(named) > 1 and not mixed and len(rails) > 1:
        place = ("fabrics", 0, "topology")
        sheet.put(("fabrics", 0, "num_rails"), len(rails), "device names of the nodes counted, one on each leaf")
        sheet.put(place, "rail-optimised", "every leaf carries the same device of all its nodes")
    elif named and mixed:
        most = [sum(counts.values()) - max(counts.values()) for counts in mixed.values()]
        reason = (
            f"{len(named) - len(mixed)} of {len(named)} leaves carry one device of each node, as rails would; "
            f"{len(mixed)} carry others too, {sum(most)} in all; {reason}"
        )
        leaf = next(iter(mixed))
        shown = spread_names(mixed[leaf])
        sheet.remark(f"{plain_text(fabric.switches[leaf].name)} carries {shown}: rails are crossed, or named otherwise")
    if "topology" not in sheet.facts["fabrics"][0]:
        sheet.unknown(("fabrics", 0, "topology"), reason)


def spread_names(counts: Mapping[str, int]) -> str:
    """Device names with their number on one switch.

    >>> spread_names({"mlx5_0": 3, "mlx5_1": 1})
    'mlx5_0 (3), mlx5_1 (1)'
    """
    return ", ".join(f"{plain_text(name)} ({count})" for name, count in Counter(counts).most_common(_SHOWN))


def _devices_on(fabric: _Fabric, switch: _Device) -> Counter[str]:
    adapters = (fabric.adapters[port.target] for port in switch.ports if port.target in fabric.adapters)
    return Counter(adapter.device for adapter in adapters if adapter.device)


def _put_nodes(sheet: Sheet, fabric: _Fabric) -> None:
    hosts = Counter(adapter.host for adapter in fabric.adapters.values() if adapter.host)
    anonymous = sum(not adapter.host for adapter in fabric.adapters.values())
    if anonymous or len(set(hosts.values())) > 1:
        told = f"{len(fabric.adapters):,} adapters on {len(hosts):,} named hosts ({spread(Counter(hosts.values()))})"
        told += f", {anonymous} adapters without a host name" if anonymous else ""
        sheet.remark(told)
        sheet.unknown(("num_nodes",), f"{told}; count the nodes in the scheduler")
    elif hosts:
        sheet.put(("num_nodes",), len(hosts), "host names of the adapters counted, all with equally many adapters")
    sheet.unknown(("num_accelerators",), "the survey sees adapters, not accelerators")
    sheet.unknown(("node_groups",), "the survey sees adapters, not what nodes are made of")


FORMATS = (Format(NAME, "output of ibnetdiscover", "ClusterProfile", _looks_like_listing, read),)
