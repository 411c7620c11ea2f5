"""Reads network descriptions of the simulator ASTRA-sim."""

from __future__ import annotations

import math
import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._sheet import Sheet, load_values, plain_text, whole
from trainspec_validate.model.finding import Pointer

NAME = "astra-sim-network"
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_STARTS = tuple(re.compile(rf"^{key}[ \t]*:", re.MULTILINE) for key in _KEYS[:3])
_SHAPES = {"switch": "switched", "ring": "ring", "fullyconnected": "full-mesh"}
_MAX_DIMENSIONS = 16
_MAX_COUNT = 10_000_000
_MOST = 1e12
"""Of a bandwidth in GB/s or a latency in ns."""
_UNIT = "bandwidth is read as 10^9 bytes per second; releases of the simulator differ in whether GB is 2^30"


def looks_like(text: ForeignText) -> bool:
    """Whether the text has the keys of a network at its outermost level."""
    return all(pattern.search(text.text) for pattern in _STARTS)


def read(text: ForeignText) -> Fragment:
    """Accelerators, and the first dimension as the scale-up domain.

    Format: astra-sim/astra-sim@518bd513:inputs/network. Bandwidth is in GB/s and latency in ns, per dimension.

    Raises:
        ForeignFormatError: the text is no such description, or its lists differ in length.
    """
    data = load_values(text, "network of ASTRA-sim")
    if not isinstance(data, dict):
        raise ForeignFormatError("a network has the keys topology, npus_count, bandwidth and latency", 1)
    shapes, counts = _list(data, "topology"), [whole(value, 1, _MAX_COUNT) for value in _list(data, "npus_count")]
    rates = [_number(value) for value in _list(data, "bandwidth")]
    waits = [_number(value) for value in (_list(data, "latency") if "latency" in data else [None] * len(shapes))]
    if not shapes or len({len(shapes), len(counts), len(rates), len(waits)}) != 1 or len(shapes) > _MAX_DIMENSIONS:
        message = f"the lists have {len(shapes)}, {len(counts)}, {len(rates)} and {len(waits)} entries"
        raise ForeignFormatError(message, None, f"give one entry for each of 1 to {_MAX_DIMENSIONS} dimensions")
    if None in counts:
        raise ForeignFormatError(f"npus_count has an entry that is no count: {plain_text(data['npus_count'])}")
    sheet = Sheet()
    sizes = [count for count in counts if count is not None]
    sheet.put(("num_accelerators",), math.prod(sizes), "product of npus_count")
    sheet.unknown(("num_nodes",), "the simulator knows accelerators, not nodes")
    _put_domain(sheet, str(shapes[0]), sizes[0], rates[0], waits[0])
    for position in range(1, len(shapes)):
        _put_tier(sheet, position, str(shapes[position]), rates[position], waits[position])
    sheet.remark(_UNIT)
    sheet.tell_unread("the network", data, read=_KEYS)
    return sheet.fragment(NAME, text)


def _put_domain(sheet: Sheet, shape: str, size: int, rate: float | None, wait: float | None) -> None:
    place: Pointer = ("node_groups", 0, "scale_up")
    sheet.put((*place, "domain_num_accelerators"), size, "npus_count of the first dimension")
    topology = _SHAPES.get(shape.casefold().replace("_", ""))
    if topology:
        sheet.put((*place, "topology"), topology, f"the first dimension is a {plain_text(shape)}")
    else:
        sheet.unknown((*place, "topology"), f"the first dimension is a {plain_text(shape)}, which no value names")
    if rate is not None and topology == "switched":
        how = "bandwidth of the first dimension, one link of each accelerator to the switch"
        sheet.put((*place, "bandwidth_bytes_per_second"), rate * 1e9, how)
    elif rate is not None:
        how = "bandwidth of the first dimension, of one link"
        sheet.put((*place, "link_bandwidth_bytes_per_second"), rate * 1e9, how)
    if wait is not None:
        sheet.put((*place, "latency_seconds"), round(wait * 1e-9, 15), "latency of the first dimension, in ns")
    sheet.unknown((*place, "technology"), "the simulator does not name the kind of link")
    for key in ("name", "num_nodes", "num_accelerators_per_node", "accelerator"):
        sheet.unknown(("node_groups", 0, key), "the simulator knows accelerators, not nodes or models")


def _put_tier(sheet: Sheet, position: int, shape: str, rate: float | None, wait: float | None) -> None:
    place: Pointer = ("fabrics", 0, "tiers", position - 1)
    if position == 1:
        sheet.put(("fabrics", 0, "name"), "fabric", "a label for the dimensions beyond the first")
        sheet.unknown(("fabrics", 0, "transport"), "the simulator does not name a protocol")
        sheet.unknown(("fabrics", 0, "topology"), "the dimensions are abstract; name the shape of the real network")
    sheet.put((*place, "name"), f"dimension-{position + 1}", "a label by the position of the dimension")
    if rate is not None:
        sheet.put((*place, "port_bandwidth_bytes_per_second"), rate * 1e9, f"bandwidth of a {plain_text(shape)}")
    if wait is not None and wait > 0:
        sheet.put((*place, "latency_seconds"), round(wait * 1e-9, 15), "latency of the dimension, in ns")


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else [] if value is None else [value]


def _number(value: Any) -> float | None:
    """A figure; None where there is none.

    Raises:
        ForeignFormatError: it is beyond all networks.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MOST:
        raise ForeignFormatError(f"{plain_text(value)} is no bandwidth and no latency", None, f"write 0 to {_MOST:g}")
    return float(value)


FORMATS = (Format(NAME, "network description of ASTRA-sim, YAML", "ClusterProfile", looks_like, read),)
