"""Reads the log lines of NCCL and RCCL, and the facts of one job in them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.interop.readers._sheet import Sheet, as_label, plain_text
from trainspec_validate.model.units import counted

Platform = dict[tuple[str, str], int]
"""Subject and value, with the first line that states it."""
_MAX_VALUES = 32
_LISTED = 8
_CUDA = "cudaDriverVersion"
_PATTERNS = {
    _CUDA: re.compile(r"cudaDriverVersion (?P<value>[0-9]{4,6})\b"),
    "ROCr version": re.compile(r"ROCr version (?P<value>[0-9]{1,4}\.[0-9]{1,4})\b"),
    "path of the network plug-in": re.compile(r"Plugin Path ?: (?P<value>\S{1,300})"),
    "network plug-in": re.compile(r"NET/Plugin: (?P<value>(?:Loaded net plugin|Could not find:?) .{1,200})"),
}
STARTS = (_CUDA, "ROCr version", "Plugin Path", "NET/Plugin: ")
"""How the lines that `take_platform` reads begin."""


def take_platform(platform: Platform, said: str, number: int) -> None:
    """Keep what one line states, once for every value."""
    for subject, pattern in _PATTERNS.items():
        found = pattern.match(said)
        if found and len(platform) < _MAX_VALUES:
            platform.setdefault((subject, plain_text(found["value"]).rstrip(".")), number)


def remark_platform(sheet: Sheet, platform: Platform) -> None:
    """Report what an observation has no key for, and where ranks differ in it."""
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


MAX_WARNINGS = 20
_MAX_INTERFACES = 256
_MAX_SETTINGS = 200
_MAX_LINE = 20_000
_HOST = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,127}):[0-9]{1,10}:[0-9]{1,10} \[(?P<device>[0-9]{1,4})\]")
_VERSION = re.compile(r"\b(?P<name>NCCL|RCCL) version {0,4}:? {0,4}(?P<version>[0-9][\w.+-]{0,60})")
_ADAPTER = re.compile(r"\b(?P<name>[A-Za-z]\w{0,60}):[0-9]{1,3}/(?P<layer>RoCE|IB)\b")
_SOCKET = re.compile(r"\[[0-9]{1,3}\](?P<name>[A-Za-z][\w.-]{0,60}):")
_VIA = re.compile(r"\bvia NET/(?P<path>\S.*)")
_SETTING = re.compile(r"\b(?P<name>(?:NCCL|RCCL)_[A-Z0-9_]{1,60}) set (?:by environment )?to (?P<value>\S*)")
_RANKS = re.compile(r"\bn[Rr]anks (?P<ranks>[0-9]{1,8})\b")
_NODES = re.compile(r"\bnNodes (?P<nodes>[0-9]{1,7})\b")
_LARGEST_RANK = 10_000_000
_RING = re.compile(r"(?:Channel [0-9]{2,3}/[0-9]{1,4}|NVLS Head\s+[0-9]{1,4}) ?:(?P<ranks>(?:\s+[0-9]{1,8})+)\s*$")
_ARROW = re.compile(r"([0-9]{1,8})(?:\[[0-9a-f]{1,8}\])?\s?->\s?([0-9]{1,8})\b")
_REDUCING = re.compile(r"NVLS Head|\b[1-9][0-9]* nvls channels")
_LAYERS = {"RoCE": "ethernet", "IB": "infiniband"}
_NETWORKS = (
    ("socket", "tcp"),
    ("fastrak", "tcpxo"),
    ("tcpxo", "tcpxo"),
    ("tcpx", "tcpx"),
)
_ROCE_VERSION = "NCCL_IB_ROCE_VERSION_NUM"
_MARK = "NCCL INFO "
_WARNING = "NCCL WARN "
_MAX_HEADS = 100_000


@dataclass(slots=True)
class Seen:
    """Facts in the lines of one log, counted while they are read."""

    library: tuple[str, str] | None = None
    networks: Counter[str] = field(default_factory=Counter)
    adapters: dict[str, str] = field(default_factory=dict)
    adapter_lists: set[str] = field(default_factory=set)
    sockets: dict[str, None] = field(default_factory=dict)
    provider: str = ""
    num_connections: int = 0
    num_direct: int = 0
    num_ranks: int = 0
    largest_rank: int = -1
    num_nodes: int = 0
    devices: set[tuple[str, str]] = field(default_factory=set)
    """Host and device of each rank that wrote a line."""
    settings: dict[str, str] = field(default_factory=dict)
    reducing: bool = False
    no_device_line: int | None = None
    cut_line: int | None = None
    warnings: dict[str, int] = field(default_factory=dict)
    platform: Platform = field(default_factory=dict)
    num_lines: int = 0


def is_log(text: str) -> bool:
    """Whether a text holds lines of the library.

    >>> is_log("node1:1:2 [0] NCCL INFO Bootstrap : Using eth0"), is_log("NCCL")
    (True, False)
    """
    return _MARK in text


def watch(text: str) -> Seen:
    """Everything that the lines of a log show."""
    seen = Seen()
    heads: set[str] = set()
    for number, whole_line in enumerate(text.split("\n"), start=1):
        line = whole_line[:_MAX_LINE]
        if "CCL" not in line:
            continue
        if seen.library is None and (version := _VERSION.search(line)):
            seen.library = (version["name"].lower(), version["version"])
        head, mark, said = line.partition(_MARK)
        if not mark:
            head, mark, said = line.partition(_WARNING)
        if not mark:
            continue
        seen.num_lines += 1
        if head not in heads and len(heads) < _MAX_HEADS:
            heads.add(head)
            host = _HOST.search(head)
            seen.devices |= {(host["host"], host["device"])} if host else set()
        if mark == _MARK:
            _take(seen, said.strip(), number)
        elif len(seen.warnings) < MAX_WARNINGS and said.strip():
            seen.warnings.setdefault(plain_text(said), number)
    return seen


def _take(seen: Seen, said: str, number: int) -> None:
    """Read one line; the commonest kinds come first, since a log has millions of them."""
    if said.startswith("Channel "):
        via = _VIA.search(said)
        if via:
            seen.num_connections += 1
            seen.num_direct += "GDR" in via["path"]
            return
    if said.startswith(("Channel ", "Trees ", "NVLS Head")):
        _take_ranks(seen, said)
    if said.startswith(STARTS):
        take_platform(seen.platform, said, number)
    if "NET/" in said:
        _take_network(seen, said, number)
    if said.startswith("Using network "):
        seen.networks[plain_text(said.removeprefix("Using network "))[:60]] += 1
    setting = _SETTING.search(said)
    if setting and len(seen.settings) < _MAX_SETTINGS:
        seen.settings[setting["name"]] = setting["value"].rstrip(".")
    ranks, nodes = _RANKS.search(said), _NODES.search(said)
    if ranks:
        seen.num_ranks = max(seen.num_ranks, int(ranks["ranks"]))
    if nodes:
        seen.num_nodes = max(seen.num_nodes, int(nodes["nodes"]))
    seen.reducing = seen.reducing or bool(_REDUCING.search(said))


def _take_ranks(seen: Seen, said: str) -> None:
    """Keep the largest rank of a ring, tree or connection; a long ring is cut, so its length tells nothing."""
    ring = _RING.match(said)
    numbers = ring["ranks"].split() if ring else [number for pair in _ARROW.findall(said) for number in pair]
    for number in map(int, numbers):
        if number < _LARGEST_RANK:
            seen.largest_rank = max(seen.largest_rank, number)


def _take_network(seen: Seen, said: str, number: int) -> None:
    if "NET/IB : Using" in said:
        found = {match["name"]: match["layer"] for match in _ADAPTER.finditer(said)}
        seen.adapter_lists.add(",".join(found))
        if "OOB" not in said:  # every list ends with it, and a line of the log has at most 1,023 characters
            seen.cut_line = number
        for name, layer in found.items():
            if len(seen.adapters) < _MAX_INTERFACES:
                seen.adapters.setdefault(name, layer)
    elif "NET/IB : No device found" in said:
        seen.no_device_line = seen.no_device_line or number
    elif "NET/Socket : Using" in said:
        for match in _SOCKET.finditer(said):
            if len(seen.sockets) < _MAX_INTERFACES:
                seen.sockets.setdefault(match["name"])
    elif "NET/OFI" in said and "provider is" in said.casefold():
        seen.provider = plain_text(said.casefold().partition("provider is")[2])[:60]


def put_observation(sheet: Sheet, seen: Seen, name: str) -> None:
    """Record what was seen as the first observation, and remark on what contradicts itself."""
    transport = _transport(sheet, seen)
    interfaces, layers = list(seen.adapters), sorted({_LAYERS[layer] for layer in seen.adapters.values()})
    if transport in {"tcp", "tcpx", "tcpxo"}:
        interfaces, layers = list(seen.sockets), []
    own: dict[str, Any] = {"source": {"title": "Log of the collective library", "reference": plain_text(name) or "log"}}
    if seen.library:
        own["library"] = {"name": seen.library[0], "version": seen.library[1]}
    if seen.cut_line:
        interfaces = []
    num_ranks = 0 if _apart(seen) else seen.num_ranks or seen.largest_rank + 1
    num_nodes = seen.num_nodes or (len({host for host, _ in seen.devices}) if _complete(seen, num_ranks) else 0)
    num_nodes = 0 if _apart(seen) else num_nodes
    counted = {
        "transport": transport,
        "interfaces": [as_label(interface) for interface in interfaces] or None,
        "link_layers": layers or None,
        "num_ranks": num_ranks or None,
        "num_nodes": num_nodes or None,
        "gpu_direct_share": seen.num_direct / seen.num_connections if seen.num_connections else None,
        "forced_settings": sorted(seen.settings) or None,
        "in_switch_reduction": _reduction(seen),
        "warnings": list(seen.warnings) or None,
    }
    for key, value in {**own, **counted}.items():
        place = ("observations", 0, key)
        if value is not None:
            sheet.put(place, value, _how(key, seen))
        elif key in {"transport", "num_ranks", "num_nodes", "gpu_direct_share", "interfaces"}:
            sheet.unknown(place, _why_unknown(key, seen))
    if not seen.library:
        sheet.unknown(("observations", 0, "library"), "no line of the log names the version; NCCL_DEBUG=VERSION does")
    _remark(sheet, seen)


def _complete(seen: Seen, num_ranks: int) -> bool:
    """Whether every rank wrote lines; the log of one rank or host does not show the other hosts."""
    return 0 < num_ranks <= len(seen.devices)


def _apart(seen: Seen) -> bool:
    """Whether more devices wrote lines than the largest communicator has ranks: none of them spans the job."""
    return 0 < seen.num_ranks < len(seen.devices)


def _why_unknown(key: str, seen: Seen) -> str:
    if key in {"num_ranks", "num_nodes"} and _apart(seen):
        amount = counted(len(seen.devices), "device")
        told = f"{amount} wrote lines, and the largest communicator has {counted(seen.num_ranks, 'rank')}"
        return f"{told}, so no communicator of the log spans them"
    if key == "transport" and set(seen.adapters.values()) == {"RoCE"}:
        return (
            f"RoCE version 1 or 2, which the log does not state; {_ROCE_VERSION} or the GID table of the adapter does"
        )
    if key == "interfaces" and seen.cut_line:
        return f"the list of interfaces is cut off after {len(seen.adapters)}"
    if key == "num_nodes" and seen.devices:
        return f"only {counted(len(seen.devices), 'rank')} wrote lines, so other nodes may be missing"
    return f"no line of the log shows {key.replace('_', ' ')}"


def _how(key: str, seen: Seen) -> str:
    return {
        "num_ranks": "nranks of the largest communicator" if seen.num_ranks else "largest rank in the log, plus one",
        "num_nodes": "nNodes of the log" if seen.num_nodes else "host names before the lines, counted",
        "gpu_direct_share": f"{seen.num_direct} of {seen.num_connections} network connections in the log",
        "transport": "network that the library says it uses, and the link layer of its interfaces",
    }.get(key, "")


def _transport(sheet: Sheet, seen: Seen) -> str | None:
    names = [name.casefold() for name in seen.networks]
    if len(names) > 1:
        sheet.remark(f"the log names several networks: {', '.join(seen.networks)}")
    kinds = {_kind(name, seen) for name in names}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is None and not seen.adapters:
        sheet.remark(f"the network {next(iter(seen.networks))} is not known; name its transport yourself")
    return kind


def _kind(name: str, seen: Seen) -> str | None:
    """Transport of one network name; None where the interfaces do not tell it."""
    for word, transport in _NETWORKS:
        if word in name:
            return transport
    if "libfabric" in name or "ofi" in name:
        return "efa-srd" if seen.provider.startswith("efa") else "tcp" if seen.provider.startswith("tcp") else None
    layers = set(seen.adapters.values())
    if len(layers) != 1 or not (name.startswith("ib") or "ucx" in name or "sharp" in name):
        return None
    if layers == {"IB"}:
        return "infiniband"
    # The word RoCE appears for both versions; without the setting the GID index decides.
    return "rocev2" if seen.settings.get(_ROCE_VERSION) == "2" else None


def _reduction(seen: Seen) -> str | None:
    if seen.settings.get("NCCL_NVLS_ENABLE") == "0":
        return "disabled"
    return "seen" if seen.reducing else None


def _remark(sheet: Sheet, seen: Seen) -> None:
    if len(set(seen.adapters.values())) > 1:
        told = ", ".join(f"{count} {layer}" for layer, count in Counter(seen.adapters.values()).items())
        sheet.remark(f"one job uses interfaces of two link layers: {told}")
    if len(seen.adapter_lists) > 1:
        sheet.remark(f"{len(seen.adapter_lists)} different lists of interfaces are in the log; their union is taken")
    if seen.cut_line:
        told = f"the list of interfaces is cut off after {len(seen.adapters)} and left out"
        sheet.remark(told, seen.cut_line)
    if seen.no_device_line:
        sheet.remark("the library found no InfiniBand or RoCE device", seen.no_device_line)
    if 0 < seen.num_direct < seen.num_connections:
        sheet.remark(f"only {seen.num_direct} of {seen.num_connections} network connections go direct")
    if seen.settings:
        told = ", ".join(f"{name}={value}" for name, value in sorted(seen.settings.items()))
        sheet.remark(f"the environment sets {told}")
    remark_platform(sheet, seen.platform)
    for warning, line in seen.warnings.items():
        sheet.remark(f"warning of the library: {warning}", line)
