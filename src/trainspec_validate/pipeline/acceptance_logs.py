"""Reads the kernel log of a node for an acceptance: its errors, and the hosts that its lines name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats.kernel_log import device_error
from trainspec_validate.telemetry.formats.machine_errors import HINTS as MACHINE_HINTS
from trainspec_validate.telemetry.formats.machine_errors import DeviceError, machine_error

_KERNEL = re.compile(
    r"NVRM: |nvidia-nvswitch[0-9]|amdgpu [0-9a-f]{4}:|^\[ *[0-9]+\.[0-9]+\] |\bkernel: "
    # `dmesg --time-format iso` alone writes this comma
    r"|^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{6}[+-][0-9]{2}:[0-9]{2} ",
    re.MULTILINE,
)
_TIME = r"[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:\.[0-9]{1,9})?"
_HOST = re.compile(
    r"(?:<[0-9]{1,3}>)?(?:1 )?(?:"
    r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[^ \n]{8,30}"  # RFC 5424, and short-iso of the journal
    rf"|(?:[A-Z][a-z]{{2}} )?[0-9]{{4}}-[0-9][0-9]-[0-9][0-9] {_TIME}(?: [A-Z+:0-9-]{{1,6}})?"  # short-full
    rf"|[A-Z][a-z]{{2}} [ 0-9][0-9] (?:[0-9]{{4}} )?{_TIME}"  # RFC 3164
    r"|[0-9]{9,11}\.[0-9]{1,9}"  # short-unix
    r"|\[ {0,12}[0-9]{1,12}\.[0-9]{1,9}\]"  # short-monotonic
    r") (?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,127}) kernel(?:\[[0-9]{1,10}\])?(?::| - )"
)
"""Formats of the journal: https://www.freedesktop.org/software/systemd/man/latest/journalctl.html#-o."""
_FIELD = re.compile(r"(?:^\s*_HOSTNAME=|\"_HOSTNAME\"\s{0,4}:\s{0,4}\")(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,127})")
_NO_HOSTS = frozenset({"localhost", "localhost.localdomain"})
_HINTS = ("Xid (", "NVRM: ", "amdgpu ", *MACHINE_HINTS)
_ERRORS = ("Xid (", "fallen off the bus")
_CORRECTED = frozenset({"corrected", "nonfatal"})
_MOST_ERRORS = Limit("a kernel log", 400_000, "errors of devices")
_SHOWN = 4
_MAX_HOSTS = 64
_MAX_LINE = 4_000


@dataclass(slots=True)
class NodeLog:
    """Errors and hosts in a kernel log of a node."""

    hosts: dict[str, None] = field(default_factory=dict)
    """Names of hosts in its lines, without those that any host has."""
    devices: list[Facts] = field(default_factory=list)
    """Devices with a fault, one for each error."""
    unread: list[str] = field(default_factory=list)
    """Parts of the log that are not judged, each with the reason, or the line and the reason."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Errors of other hosts, by host."""
    is_of_node: bool = True
    """Whether it is a log of the node: no line names a host, or one names this."""


def node_log(text: str, node: str) -> NodeLog | None:
    """Errors and hosts in a text, as the kernel log of a node; None where it is none.

    Lines that name another host are not charged to the node, nor are those without a host in a log of other hosts.
    """
    if not _KERNEL.search(text):
        return None
    found, is_by_entry = NodeLog(), False
    for line in text.split("\n"):
        host, by_field = _host(line)
        is_by_entry |= by_field and line.lstrip().startswith("_")
        if host is not None and len(found.hosts) < _MAX_HOSTS:
            found.hosts.setdefault(host)
    others = [host for host in found.hosts if not is_same_host(host, node)]
    found.is_of_node = len(others) < len(found.hosts) or not found.hosts
    unnamed = others[0] if others and (is_by_entry or not found.is_of_node) else None
    known = set[tuple[str, str]]()
    for number, line in enumerate(text.split("\n"), start=1):
        error = device_error(line) or machine_error(line) if any(hint in line for hint in _HINTS) else None
        if error is None and not any(hint in line for hint in _ERRORS):
            continue
        owner = _host(line)[0] or unnamed
        if owner is not None and not is_same_host(owner, node):
            found.foreign[owner if owner in found.hosts else others[0]] += 1
        elif error is None:
            found.unread.append(f":{number} (an error without its device or code)")
        elif error.severity not in _CORRECTED and (error.pci, _fault(error)) not in known:
            known.add((error.pci, _fault(error)))
            found.devices.append({"name": error.pci, **_pci(error), "faults": [_fault(error)]})
        _MOST_ERRORS.check(len(known) + len(found.unread))
    found.unread += _told(found, others)
    return found


def _host(line: str) -> tuple[str | None, bool]:
    """The host that a line names, and whether it does so in a field of the journal."""
    stated = _HOST.match(line[:_MAX_LINE])
    in_field = None if stated else _FIELD.search(line) if "_HOSTNAME" in line else None
    name = (stated or in_field or {"host": None})["host"]
    return (None if name in _NO_HOSTS else name), in_field is not None


def is_same_host(one: str, other: str) -> bool:
    """Whether two names are clearly of one host: they are equal, or one is the first label of the other.

    >>> is_same_host("Node-1.example.org", "node-1"), is_same_host("node-1.a.org", "node-1.b.org")
    (True, False)
    """
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _pci(error: DeviceError) -> Facts:
    return {"pci": error.pci} if ":" in error.pci else {}


def _fault(error: DeviceError) -> str:
    is_fatal = error.severity == "fatal" and error.code.startswith(("xid:", "sxid:"))
    return f"{error.code} fatal" if is_fatal else error.code


def _told(found: NodeLog, others: list[str]) -> Iterator[str]:
    """What is said of a log of other hosts, and of the errors of other hosts in a log of the node."""
    shown = ", ".join(others[:_SHOWN]) + (" and others" if len(others) > _SHOWN else "")
    num_errors = found.foreign.total()
    counted = f", with {num_errors} error{'' if num_errors == 1 else 's'}" if num_errors else ""
    if not found.is_of_node:
        yield f" (a kernel log of another host: {shown}{counted})"
    elif num_errors:
        yield f" (lines of other hosts: {shown}{counted})"
