"""Parses the lines of ibnetdiscover."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._sheet import plain_text

MAX_DEVICES = 500_000
_DEVICE = re.compile(
    r'(?P<kind>Switch|Ca|Rt)\s+(?P<ports>\d{1,4})\s+"(?P<id>[^"]{1,64})"\s*#\s*"(?P<name>[^"]{0,256})"'
)
_PORT = re.compile(r'\[(?P<number>\d{1,4})\](?:\([0-9a-fA-F]+\))?\s+"(?P<target>[^"]{1,64})"\[\d{1,4}\]')
_WIDTH = re.compile(r"(\d{1,2}x[A-Z]{2,4}\d{0,3})\s*$")
_HEAD = re.compile(r'^(?:Switch|Ca|Rt)\t\d+ "|^(?:switchguid|caguid)=0x', re.MULTILINE)
_HOST = re.compile(r"(?P<host>\S+) (?P<device>mlx\w+|HCA-\d+|ib\w*|hfi\w+)")
_START = re.compile(r"^# Initiated from node ([0-9a-fA-F]{1,16})\b", re.MULTILINE)
_KEY = re.compile(r"[a-z]+guid?=|vendid=|devid=|rtguid=")


@dataclass(frozen=True, slots=True)
class Port:
    """One cabled port."""

    number: int
    target: str
    width: str
    """Lanes and generation, for example `4xNDR`; empty where the line has none."""


@dataclass(frozen=True, slots=True)
class Device:
    """One switch or adapter with its cabled ports."""

    identifier: str
    name: str
    is_switch: bool
    num_ports: int
    ports: tuple[Port, ...]
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


def looks_like_listing(text: ForeignText) -> bool:
    """Whether a line starts a device of the listing."""
    return bool(_HEAD.search(text.text))


def starts_at(text: ForeignText) -> str | None:
    """Identifier of the device that the survey started from; None where the head of the listing is lost.

    >>> starts_at(ForeignText("a", "# Initiated from node b8e9 port b8e9"))
    'H-000000000000b8e9'
    """
    match = _START.search(text.text)
    return f"H-{match[1].lower().zfill(16)}" if match else None


def devices(text: ForeignText) -> Iterator[Device]:
    """Every switch and adapter, in the order of the listing.

    Raises:
        ForeignFormatError: a line is neither a device, a port, a key nor a comment.
    """
    head: re.Match[str] | None = None
    start, ports, total = 0, list[Port](), 0
    for number, line in enumerate(text.text.split("\n"), start=1):
        if not line.strip() or line.startswith("#") or _KEY.match(line):
            continue
        port = _PORT.match(line)
        if port is not None:
            if head is None:
                raise ForeignFormatError("a port before any switch or adapter: the start is cut off", number)
            width = _WIDTH.search(line)
            ports.append(Port(int(port["number"]), port["target"], width[1] if width else ""))
            continue
        if head is not None:
            yield _device(head, start, ports)
        head, start, ports, total = _DEVICE.match(line), number, [], total + 1
        if head is None:
            raise ForeignFormatError(f"this is no line of ibnetdiscover: {plain_text(line)}", number)
        if total > MAX_DEVICES:
            raise ForeignFormatError(f"more than {MAX_DEVICES:,} devices", number)
    if head is not None:
        yield _device(head, start, ports)


def _device(head: re.Match[str], start: int, ports: list[Port]) -> Device:
    return Device(head["id"], head["name"], head["kind"] != "Ca", int(head["ports"]), tuple(ports), start)
