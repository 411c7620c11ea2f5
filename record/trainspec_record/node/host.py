"""Reads the memory of the host, and how long tasks wait for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainspec_record.node.source import Reading, Source, read_text, whole

MEMORY = "system.memory.utilization"
PRESSURE = "train.host.memory.pressure"
_WAITED = re.compile(r"^some .*total=([0-9]+)", re.MULTILINE)
_KIB = re.compile(r"^(\w+):\s+([0-9]+)", re.MULTILINE)


def host_source(root: Path, seconds: Callable[[], float] = time.monotonic) -> Source:
    """Shares of memory by state, and the share of the window in which some task waited for memory."""
    unsupported = {}
    if not shares(root):
        unsupported[MEMORY] = "the kernel has no /proc/meminfo"
    if waited_us(root) is None:
        unsupported[PRESSURE] = "the kernel reports no pressure: /proc/pressure/memory cannot be read"
    if len(unsupported) == 2:
        return Source(unsupported=unsupported)
    last = (seconds(), waited_us(root))

    def read() -> Iterator[Reading]:
        nonlocal last
        before, last = last, (seconds(), waited_us(root))
        m = {f"{MEMORY}{{system.memory.state={state}}}": share for state, share in shares(root).items()}
        if before[1] is not None and last[1] is not None and last[0] > before[0]:
            m[PRESSURE] = min(1.0, max(0.0, (last[1] - before[1]) / 1e6 / (last[0] - before[0])))
        if m:
            yield Reading(m)

    return Source(frozenset({"node"}), read, unsupported=unsupported)


def shares(root: Path) -> dict[str, float]:
    """Share of memory in each state; together they are 1."""
    found = {name: whole(kib) or 0 for name, kib in _KIB.findall(read_text(root / "proc/meminfo") or "")}
    total = found.get("MemTotal", 0)
    if not total or "MemFree" not in found:
        return {}
    states = {
        "free": found["MemFree"],
        "buffers": found.get("Buffers", 0),
        "cached": found.get("Cached", 0) + found.get("SReclaimable", 0),
    }
    used = max(0, total - sum(states.values()))
    return {state: round(min(1.0, kib / total), 6) for state, kib in {"used": used, **states}.items()}


def waited_us(root: Path) -> int | None:
    """Microseconds since the start of the host in which some task waited for memory."""
    found = _WAITED.search(read_text(root / "proc/pressure/memory") or "")
    return whole(found[1]) if found else None
