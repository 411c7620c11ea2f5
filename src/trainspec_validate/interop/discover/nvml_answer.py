"""Reads the answer of NVML about the accelerators of this machine, and the shape of their scale-up domain."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainspec_validate.interop.discover.machine import Machine
from trainspec_validate.interop.discover.tools import NVIDIA, Answer
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _nvlink, _query
from trainspec_validate.interop.readers._draft import Draft
from trainspec_validate.interop.readers._links import Shape, components, domain_size, from_nvlink_matrix, meshed
from trainspec_validate.interop.readers._query import Listed

FORMAT = "nvml"
SOURCE = "NVML through nvidia-ml-py"
_MISSING = "NVML does not report it"
_MAX_DEVICES = 256
_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", re.ASCII)
_LANES = frozenset({1, 2, 4, 8, 12, 16, 32})
_WORDS = _nvlink.Words(
    how="far ends of the active NVLinks",
    joined="accelerators of the node that NVLinks join",
    no_topology="NVML does not report where every NVLink leads; see nvidia-smi nvlink -R",
    no_links="the accelerators differ in active NVLinks, or NVML does not report all; see nvidia-smi nvlink -s",
    one_node="domains of coherent hosts may span nodes, and NVML shows one",
)
_Reach = Mapping[tuple[int, int], bool]
"""Whether the driver lets two devices reach each other over NVLink, in both orders, where it says so."""
_Pairs = dict[tuple[int, int], int]


def ask(machine: Machine) -> Answer:
    """The accelerators by NVML; nothing where its binding is not installed, or no driver of this maker is."""
    text = machine.nvml()
    if text is None:
        return Answer(NVIDIA, None)
    try:
        fragment, failure = _read(text), ""
    except _AbsentError:
        return Answer(NVIDIA, None)
    except ForeignFormatError as error:
        fragment, failure = None, f"NVML {error}; nvidia-smi is asked instead"
    return Answer(NVIDIA, fragment, failure)


class _AbsentError(Exception):
    """No driver of this maker is installed."""


def _read(text: str) -> Fragment:
    """The fragment of a survey.

    Raises:
        ForeignFormatError: the text is no survey, or NVML gave no answer.
        _AbsentError: no driver of this maker is installed.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ForeignFormatError("crashed, took too long or printed nothing") from None
    if not isinstance(found, dict):
        raise ForeignFormatError("returned invalid NVML output")
    if "error" in found:
        if found.get("absent") is True:
            raise _AbsentError
        raise ForeignFormatError(f"gave no answer: {str(found['error'])[:200]}")
    devices = found.get("devices")
    if not isinstance(devices, list) or not 0 < len(devices) <= _MAX_DEVICES:
        raise ForeignFormatError("lists no devices, or more than a node has")
    return _fragment(found, devices)


def _fragment(found: Mapping[str, Any], devices: Sequence[Any]) -> Fragment:
    draft = Draft()
    told = [device if isinstance(device, dict) else {} for device in devices]
    ends = [_Ends.of(_bus_id(device.get("bus_id")), _links(device)) for device in told]
    coherent = any(_whole(device.get("own_numa_node"), 0, 1024) is not None for device in told)
    _describe_links(draft, ends, _pairs(found.get("pairs"), len(told)), coherent=coherent)
    _query.write(draft, [_listed(device) for device in told], missing=_MISSING)
    draft.fact(("node_groups", 0, "accelerator", "vendor"), "nvidia", "the library shows accelerators of one maker")
    driver = found.get("driver")
    _query.software(draft, "driver", "nvidia", driver if isinstance(driver, str) else None)
    if any(device.get("mig") is True for device in told):
        draft.remark("MIG is enabled, so that jobs see parts of an accelerator")
    for position, device in enumerate(devices):
        if not isinstance(device, dict):
            draft.remark("NVML does not open the device", about=f"accelerator-{position}")
    failures = found.get("failures")
    for failure in failures[:16] if isinstance(failures, list) else ():
        draft.remark(f"a call of NVML failed: {str(failure)[:300]}")
    return draft.fragment(FORMAT, ForeignText(SOURCE, ""))


def _listed(device: Mapping[str, Any]) -> Listed:
    """The largest link that device and slot can have: an idle device runs a slower one to save power."""
    name, limit = device.get("name"), _whole(device.get("power_milliwatts"), 10_000, 50_000_000)
    memory, lanes = _whole(device.get("memory_bytes"), 1, 10**15), _whole(device.get("pcie_num_lanes"), 1, 32)
    nodes = device.get("numa_nodes")
    return Listed(
        product=name[:200] if isinstance(name, str) and name.strip() else None,
        memory_bytes=None if memory is None else float(memory),
        power_watts=None if limit is None else limit / 1000,
        link_generation=_whole(device.get("pcie_generation"), 1, 10),
        link_num_lanes=lanes if lanes in _LANES else None,
        numa_node=_whole(nodes[0], 0, 1024) if isinstance(nodes, list) and len(nodes) == 1 else None,
    )


def _whole(value: Any, low: int, high: int) -> int | None:
    fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return value if fine else None


def _bus_id(value: Any) -> str | None:
    """A PCI address in one spelling: NVML writes the domain with four or eight digits.

    >>> _bus_id("00000000:1B:00.0"), _bus_id("0000:1b:00.0"), _bus_id("GPU-1")
    ('00000000:1b:00.0', '00000000:1b:00.0', None)
    """
    found = _BUS_ID.fullmatch(value) if isinstance(value, str) else None
    return f"{found[1].zfill(8)}:{found[2]}:{found[3]}.{found[4]}".lower() if found else None


def _links(device: Mapping[str, Any]) -> Sequence[tuple[bool, str | None, str | None]]:
    links = device.get("links")
    entries = [link for link in links[:64] if isinstance(link, dict)] if isinstance(links, list) else []
    return [(link.get("active") is True, _remote(link.get("remote")), _bus_id(link.get("bus_id"))) for link in entries]


def _remote(value: Any) -> str | None:
    return value if isinstance(value, str) and value in {"gpu", "npu", "switch"} else None


def _pairs(value: Any, size: int) -> dict[tuple[int, int], bool]:
    """Both orders of each pair of devices that the driver tells of."""
    found: dict[tuple[int, int], bool] = {}
    for entry in value[: size * size] if isinstance(value, list) else ():
        if isinstance(entry, list) and len(entry) == 3 and isinstance(entry[2], bool):
            one, other = (_whole(position, 0, size - 1) for position in entry[:2])
            if one is not None and other is not None and one != other:
                found[one, other] = found[other, one] = entry[2]
    return found


@dataclass(frozen=True, slots=True)
class _Ends:
    """The NVLinks of one accelerator by what they lead to."""

    bus_id: str | None
    num_links: int
    """Links that the device has, active or not."""
    num_active: int
    """Active ones, without those to processors."""
    num_switched: int
    peers: Mapping[str | None, int]
    """Active links to other accelerators, by PCI address."""

    @classmethod
    def of(cls, bus_id: str | None, links: Sequence[tuple[bool, str | None, str | None]]) -> _Ends:
        """The links of a device, each reported as active, kind of the far end and its PCI address."""
        active = [(remote, address) for is_active, remote, address in links if is_active and remote != "npu"]
        switched = sum(remote == "switch" for remote, _ in active)
        peers = Counter(address for remote, address in active if remote == "gpu")
        return cls(bus_id, len(links), len(active), switched, peers)


def _describe_links(
    draft: Draft, ends: Sequence[_Ends], pairs: Mapping[tuple[int, int], bool], *, coherent: bool
) -> None:
    """Writes the domain; `pairs` has which devices the driver lets reach each other over NVLink, in both orders."""
    _inactive(draft, ends)
    if not any(one.num_active for one in ends):
        _nvlink.none_found(draft, len(ends), "NVML shows no active NVLink")
        return
    joined = _joined(ends, pairs)
    shape = _shape(draft, ends, joined)
    if shape is None:
        reason = "NVLinks are active, but the driver lets no two accelerators reach each other over them"
        _nvlink.none_found(draft, len(ends), reason)
    else:
        _nvlink.write(draft, shape, set(joined.values()), _WORDS, coherent=coherent)


def _inactive(draft: Draft, ends: Sequence[_Ends]) -> None:
    for position, one in enumerate(ends):
        if one.num_active < one.num_links and any(other.num_active > one.num_active for other in ends):
            told = f"{one.num_active} of {one.num_links} NVLinks are active"
            draft.remark(told, about=f"accelerator-{position}")


def _joined(ends: Sequence[_Ends], pairs: _Reach) -> _Pairs:
    """Links of each pair; through switches those of the accelerator that has fewer."""
    found: _Pairs = {}
    for a, one in enumerate(ends):
        for b, other in enumerate(ends):
            if a == b or not pairs.get((a, b), True):
                continue
            count = one.peers.get(other.bus_id, 0) if other.bus_id is not None else 0
            if not count and _told(one) and _told(other):
                count = min(one.num_switched, other.num_switched)
            elif not count and pairs.get((a, b)):
                count = min(one.num_active, other.num_active)
            if count:
                found[a, b] = count
    return found


def _told(one: _Ends) -> bool:
    """Whether the far end of every active link is known."""
    return one.num_switched + sum(one.peers.values()) == one.num_active


def _shape(draft: Draft, ends: Sequence[_Ends], joined: _Pairs) -> Shape | None:
    parts = components(len(ends), joined)
    if not parts:
        return None
    if not all(_told(one) for one in ends):
        return from_nvlink_matrix(len(ends), joined)
    active = {one.num_active for one in ends}
    num_links = active.pop() if len(active) == 1 else None
    if all(one.num_switched == one.num_active for one in ends):
        return Shape("switched", domain_size(len(ends), parts), num_links, tuple(parts))
    here = {one.bus_id for one in ends}
    if any(one.num_switched for one in ends) or any(set(one.peers) - here for one in ends):
        draft.remark("some NVLinks lead to accelerators that are not listed, or to switches and accelerators alike")
        return Shape(None, domain_size(len(ends), parts), num_links, tuple(parts))
    return meshed(len(ends), joined)
