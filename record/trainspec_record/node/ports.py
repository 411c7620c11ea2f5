"""Reads the counters of network interfaces and of their remote memory access."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainspec_record.node.source import Reading, Source, listed, read_text, read_whole

BYTES_PER_WORD = 4
"""`port_xmit_data` and `port_rcv_data` count words of four bytes."""
IO = "hw.network.io{network.io.direction=%s}"
ERRORS = "hw.errors{error.type=%s,hw.type=network}"
RETRANSMITS, WAIT = "train.network.retransmits", "train.network.wait.time"
INFINIBAND_ERRORS = {
    "symbol_error": "symbol",
    "link_error_recovery": "link_recovery",
    "link_downed": "link_down",
}
NO_PACKETS = "cards count causes of retransmission, and no packets that were sent again"
NO_TICK = "cards count ticks, whose length they do not report"


def port_source(root: Path, host: str) -> Source:
    """Traffic and errors of each port: of InfiniBand and RoCE by the card, of other interfaces by the kernel."""
    ports = {f"{host}/{name}": folder for name, folder in _cards(root)}
    interfaces = {} if ports else {f"{host}/{name}": folder for name, folder in _interfaces(root)}
    unsupported = {RETRANSMITS: NO_PACKETS, WAIT: NO_TICK}
    if not ports and not interfaces:
        return Source(unsupported={**unsupported, "hw.network.io": "the kernel lists no interface with a device"})

    def read() -> Iterator[Reading]:
        for name, folder in ports.items():
            m = _of_card(folder)
            if m:
                yield Reading(m, device=name)
        for name, folder in interfaces.items():
            m = _of_interface(folder)
            if m:
                yield Reading(m, device=name)

    return Source(frozenset({"nic"}), read, unsupported=unsupported)


def _cards(root: Path) -> Iterator[tuple[str, Path]]:
    """Ports of cards with remote memory access, whose counters hold what the kernel never sees."""
    for port in listed(root / "sys/class/infiniband", "*/ports/*"):
        if (port / "counters/port_xmit_data").exists():
            yield f"{port.parent.parent.name}/{port.name}", port


def _interfaces(root: Path) -> Iterator[tuple[str, Path]]:
    """Interfaces that are no loops, bridges or tunnels."""
    folders = [folder for folder in listed(root / "sys/class/net") if (folder / "statistics").is_dir()]
    real = [folder for folder in folders if (folder / "device").exists()]
    for folder in real or [folder for folder in folders if read_text(folder / "type") == "1"]:
        if read_text(folder / "operstate") != "down":
            yield folder.name, folder


def _of_card(port: Path) -> dict[str, Any]:
    counters = port / "counters"
    m: dict[str, Any] = {}
    for direction, name in (("receive", "port_rcv_data"), ("transmit", "port_xmit_data")):
        words = read_whole(counters / name)
        if words is not None:
            m[IO % direction] = words * BYTES_PER_WORD
    for name, kind in INFINIBAND_ERRORS.items():
        count = read_whole(counters / name)
        if count is not None:
            m[ERRORS % kind] = count
    return m


def _of_interface(folder: Path) -> dict[str, Any]:
    m: dict[str, Any] = {}
    for direction, prefix in (("receive", "rx"), ("transmit", "tx")):
        count = read_whole(folder / f"statistics/{prefix}_bytes")
        if count is not None:
            m[IO % direction] = count
    crc = read_whole(folder / "statistics/rx_crc_errors")
    if crc is not None:
        m[ERRORS % "crc"] = crc
    return m
