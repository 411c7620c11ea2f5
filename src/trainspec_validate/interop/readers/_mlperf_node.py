"""Records the node of an MLPerf system description: accelerator, host and scale-up links."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.interop.readers._mlperf_software import words
from trainspec_validate.interop.readers._mlperf_text import (
    Interconnect,
    interconnect,
    memory_bytes,
    vendor,
)
from trainspec_validate.interop.readers._sheet import Sheet, as_label, whole
from trainspec_validate.model.accelerator_names import meant_by
from trainspec_validate.model.catalog import CatalogAccelerator, links
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.units import bytes_

_GROUP: Pointer = ("node_groups", 0)
_MEMORY_TOLERANCE = 0.1
_RATE_TOLERANCE = 0.01
_PCIE = re.compile(r"pcie ?(?:gen ?)?(?P<generation>[0-9])(?:\.0)?(?: ?x ?(?P<lanes>[0-9]{1,2}))?", re.IGNORECASE)
_TORUS = re.compile(r"[0-9]{1,4}(?:x[0-9]{1,4}){1,2}")
_SWITCHED_IN_NODE = frozenset(
    {"nvidia-h100-sxm-80gb", "nvidia-h200-sxm-141gb", "nvidia-b200-sxm-180gb", "nvidia-b300-sxm-288gb"}
)
_RACK = re.compile(r"nvl[-_ ]?72", re.IGNORECASE)
_RACK_SIZE = 72
_RACKS = re.compile(r"(?P<count>[1-9][0-9]{0,3}) ?x [\w .-]{0,30}nvl[-_ ]?72", re.IGNORECASE)


def put_accelerator(sheet: Sheet, said: Mapping[str, Any]) -> CatalogAccelerator | None:
    """Record model and memory; returns the catalog's row where there is one."""
    title = words(said, "accelerator_model_name")
    written = words(said, "accelerator_memory_capacity")
    size = memory_bytes(written)
    meant = meant_by(title)
    if meant.entry is None and size is not None:
        meant = meant_by(title, size)
    known = meant.entry
    place = (*_GROUP, "accelerator")
    if known is not None:
        sheet.put((*place, "model"), known.name, f"the catalog's name for {title}")
    elif meant.alternatives:
        sheet.unknown((*place, "model"), f"{title} leaves open which it is of {', '.join(meant.alternatives)}")
    elif as_label(title):
        sheet.put((*place, "model"), as_label(title), "accelerator_model_name, with other characters as hyphens")
        if vendor(title):
            sheet.put((*place, "vendor"), vendor(title), "from accelerator_model_name")
        sheet.unknown((*place, "peak_rates"), f"{title} is not in the catalog; see the maker's data sheet")
    else:
        sheet.unknown((*place, "model"), "accelerator_model_name says nothing")
    if size is not None:
        fits = known is not None and abs(size / known.memory_bytes - 1) <= _MEMORY_TOLERANCE
        if fits and "i" not in written.casefold():
            reason = f"left to the catalog, which has what the device reports; the file rounds it to {written}"
            sheet.unknown((*place, "memory_bytes"), reason)
            return known
        sheet.put((*place, "memory_bytes"), size, f"accelerator_memory_capacity says {written}")
        if known and not fits:
            told = f"accelerator_memory_capacity says {written}, but {known.title} has {bytes_(known.memory_bytes)}"
            sheet.remark(told)
    else:
        sheet.unknown((*place, "memory_bytes"), f"accelerator_memory_capacity says {written or 'nothing'}")
    return known


def put_host(sheet: Sheet, said: Mapping[str, Any]) -> None:
    """Record sockets, cores, memory and the link between host and accelerator."""
    place = (*_GROUP, "host")
    sockets = whole(said.get("host_processors_per_node"), 1, 64)
    cores = whole(said.get("host_processor_core_count"), 1, 4096)
    threads = whole(said.get("host_processor_vcpu_count"), 1, 65536)
    if sockets is not None:
        sheet.put((*place, "num_sockets"), sockets)
    elif words(said, "host_processors_per_node"):
        written = words(said, "host_processors_per_node")
        sheet.unknown((*place, "num_sockets"), f"host_processors_per_node says {written}")
    if cores is not None and sockets is not None:
        total = sockets * cores
        if threads is not None and threads < total:
            told = f"{sockets} processors of {cores} cores are {total}, but host_processor_vcpu_count says {threads}"
            sheet.remark(told)
            sheet.unknown((*place, "num_cores"), told)
        else:
            sheet.put((*place, "num_cores"), total, "processors of a node times cores of a processor")
    else:
        told = words(said, "host_processor_core_count") or "nothing"
        sheet.unknown((*place, "num_cores"), f"host_processor_core_count says {told}")
    written = words(said, "host_memory_capacity")
    size = memory_bytes(written)
    if size is not None:
        sheet.put((*place, "memory_bytes"), size, f"host_memory_capacity says {written}")
    else:
        sheet.unknown((*place, "memory_bytes"), f"host_memory_capacity says {written or 'nothing'}")
    _put_host_link(sheet, words(said, "accelerator_host_interconnect"))


def _put_host_link(sheet: Sheet, written: str) -> None:
    place = (*_GROUP, "host_link")
    match = _PCIE.fullmatch(written)
    if match:
        sheet.put((*place, "technology"), "pcie")
        sheet.put((*place, "generation"), int(match["generation"]))
        if match["lanes"]:
            sheet.put((*place, "num_lanes"), int(match["lanes"]))
        else:
            sheet.unknown((*place, "num_lanes"), f"accelerator_host_interconnect says {written}")
    elif written.casefold() == "nvlink-c2c":
        sheet.put((*place, "technology"), "nvlink-c2c")
    else:
        sheet.unknown(place, f"accelerator_host_interconnect says {written or 'nothing'}")


@dataclass(frozen=True, slots=True)
class _Links:
    """What a description says of the links between accelerators, with the catalog's row at its side."""

    written: str
    shape: str
    title: str
    own: Interconnect
    model: CatalogAccelerator | None
    per_node: int | None

    @property
    def known(self) -> Mapping[str, str]:
        return (self.model.scale_up if self.model else None) or {}

    @property
    def technology(self) -> str | None:
        return self.own.technology or self.known.get("technology")

    @property
    def generation(self) -> str | None:
        same = self.technology == self.known.get("technology")
        return self.own.generation or (self.known.get("generation") if same else None)


def put_scale_up(sheet: Sheet, said: Mapping[str, Any], model: CatalogAccelerator | None, per_node: int | None) -> None:
    """Record technology, rate and domain of the links between accelerators."""
    place = (*_GROUP, "scale_up")
    written = words(said, "accelerator_interconnect")
    shape = words(said, "accelerator_interconnect_topology")
    title = f"{words(said, 'system_name')} {shape}"
    found = _Links(written, shape, title, interconnect(written), model, per_node)
    if found.technology is None:
        sheet.unknown(place, f"accelerator_interconnect says {written or 'nothing'}")
        return
    how = f"the catalog's links of {model.title}" if model else ""
    sheet.put((*place, "technology"), found.technology, "" if found.own.technology else how)
    if found.generation is not None:
        sheet.put((*place, "generation"), found.generation, "" if found.own.generation else how)
    if found.own.num_links is not None:
        sheet.put((*place, "num_links"), found.own.num_links, f"accelerator_interconnect says {written}")
    wanted = found.known.get("generation")
    same = found.own.technology == found.known.get("technology")
    if model and same and found.own.generation and found.own.generation != wanted:
        told = f"accelerator_interconnect says {written}, but {model.title} has {found.technology} generation {wanted}"
        sheet.remark(told)
    _put_rate(sheet, found)
    _put_domain(sheet, found)


def _put_rate(sheet: Sheet, found: _Links) -> None:
    place = (*_GROUP, "scale_up", "bandwidth_bytes_per_second")
    row = links().scale_up.get((found.technology or "", found.generation or ""))
    rate, written = found.own.rate_bytes_per_second, found.written
    if rate is None or row is None:
        sheet.unknown(place, f"accelerator_interconnect says {written or 'nothing'}")
        return
    one_way, per_node = row.bandwidth_bytes_per_second, found.per_node
    name = f"{row.technology} {row.generation}"
    if math.isclose(rate, one_way, rel_tol=_RATE_TOLERANCE):
        sheet.put(place, rate, f"accelerator_interconnect says {written}")
    elif math.isclose(rate, 2 * one_way, rel_tol=_RATE_TOLERANCE):
        sheet.put(place, rate / 2, f"half of {rate / 1e9:g} GB/s, which counts both directions of {name}")
        sheet.remark(f"{written}: the figure counts both directions; one way is {rate / 2e9:g} GB/s")
    elif per_node and math.isclose(rate, 2 * one_way * per_node, rel_tol=_RATE_TOLERANCE):
        how = f"{rate / 1e12:g} TB/s counts both directions of all {per_node} accelerators of a node"
        sheet.put(place, rate / 2 / per_node, how)
        sheet.remark(f"{written}: {how}; one way of one is {one_way / 1e9:g} GB/s")
    else:
        told = f"{written}, but {name} carries {one_way / 1e9:g} GB/s one way, twice that both ways"
        sheet.remark(told)
        sheet.unknown(place, told)


def _put_used(sheet: Sheet, found: _Links) -> None:
    """Record how many accelerators of a rack the submission uses, where it does not use whole racks."""
    total = sheet.facts.get("num_accelerators")
    if not isinstance(total, int) or total % _RACK_SIZE == 0:
        return
    named = _RACKS.search(found.title)
    racks = int(named["count"]) if named else 1 if total < _RACK_SIZE else 0
    place = (*_GROUP, "scale_up", "used_num_accelerators")
    if racks and total % racks == 0 and total // racks <= _RACK_SIZE:
        how = f"{total} accelerators over the {racks} racks that system_name names"
        sheet.put(place, total // racks, how if named else f"{total} accelerators are part of one rack")
    else:
        sheet.unknown(place, f"{total} accelerators are no whole number of racks of {_RACK_SIZE}")


def _put_domain(sheet: Sheet, found: _Links) -> None:
    place, shape, model = (*_GROUP, "scale_up"), found.shape, found.model
    if _TORUS.fullmatch(shape):
        extents = [int(extent) for extent in shape.split("x")]
        sheet.put((*place, "topology"), "torus", f"accelerator_interconnect_topology says {shape}")
        sheet.put((*place, "dimensions"), extents)
        sheet.unknown((*place, "wraparound"), "the form does not say which axes are closed")
        sheet.put((*place, "domain_num_accelerators"), math.prod(extents), "product of the extents")
        return
    switched = found.own.switched or "switch" in shape.casefold()
    if switched:
        sheet.put((*place, "topology"), "switched", "the text names switches between accelerators")
    elif shape.casefold() == "mesh":
        sheet.put((*place, "topology"), "full-mesh", f"accelerator_interconnect_topology says {shape}")
    else:
        sheet.unknown((*place, "topology"), f"accelerator_interconnect_topology says {shape or 'nothing'}")
    key = (*place, "domain_num_accelerators")
    if _RACK.search(found.title):
        sheet.put(key, _RACK_SIZE, "the system is named NVL72")
        _put_used(sheet, found)
    elif switched and found.per_node and model and model.name in _SWITCHED_IN_NODE:
        sheet.put(key, found.per_node, f"switches of {model.title} join those of one node")
    else:
        sheet.unknown(key, "the form does not say how many accelerators the links join")
