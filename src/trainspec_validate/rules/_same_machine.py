"""Finds one machine that is given as several nodes: devices that two nodes report, and hosts that are other nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.observation import NodeObservation
from trainspec_validate.model.finding import Pointer
from trainspec_validate.rules import Violation, at
from trainspec_validate.system.digits import is_digits

_KEY = "observed_nodes"
_SHOWN = 2

Identity = tuple[str, str]
"""Its kind and its value."""


def same_machines(cluster: ClusterProfile) -> Iterator[Violation]:
    """Devices that two nodes report, by what makers promise to be unique, and boards that one node has too often.

    The promise is of NVIDIA for the UUID ("globally unique immutable alphanumeric identifier") and the serial number
    ("matches the serial number physically printed on each board") of a GPU, https://docs.nvidia.com/deploy/nvidia-smi/,
    and of the InfiniBand architecture for a node GUID. GPUs of one board share its serial number.
    """
    first: dict[Identity, int] = {}
    shared: dict[tuple[int, int], dict[Identity, tuple[Pointer, str]]] = defaultdict(dict)
    for i, node in enumerate(cluster.observed_nodes):
        for identity, found in _identities(i, node):
            owner = first.setdefault(identity, i)
            if owner != i:
                shared[owner, i].setdefault(identity, found)
        yield from _boards(cluster, i, node)
    for (one, other), identities in shared.items():
        yield _shared(cluster, (one, other), identities)


def _identities(i: int, node: NodeObservation) -> Iterator[tuple[Identity, tuple[Pointer, str]]]:
    """Each identity with its place and its words."""
    for j, device in enumerate(node.devices):
        place: Pointer = (_KEY, i, "devices", j)
        if device.name.startswith("GPU-"):
            yield ("UUID", device.name), ((*place, "name"), device.name)
        if device.serial_number is not None:
            yield ("serial number", device.serial_number), ((*place, "serial_number"), device.serial_number)
    for j, port in enumerate(node.ports):
        if port.node_guid is not None:
            told = f"{port.node_guid} ({port.device})"
            yield ("node GUID", port.node_guid), ((_KEY, i, "ports", j, "node_guid"), told)


def _shared(
    cluster: ClusterProfile, pair: tuple[int, int], identities: dict[Identity, tuple[Pointer, str]]
) -> Violation:
    """The finding on two nodes; kinds of identities in the order in which they were found."""
    one, other = (cluster.observed_nodes[i] for i in pair)
    kinds: dict[str, list[str]] = defaultdict(list)
    for (kind, _), (_, words) in identities.items():
        kinds[kind].append(words)
    told = "; ".join(f"{kind} {_few(values)}" for kind, values in kinds.items())
    message = f"{other.name} has devices of {one.name}: {told}"
    place, _ = next(iter(identities.values()))
    return Violation(at(cluster, *place), message, "gather the files of each node from it")


def _boards(cluster: ClusterProfile, i: int, node: NodeObservation) -> Iterator[Violation]:
    """A serial number that more devices of a node have than boards of this node usually carry."""
    counts = Counter(device.serial_number for device in node.devices if device.serial_number is not None)
    sizes = Counter(counts.values())
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    for serial, number in counts.items():
        if number > usual:
            j = max(j for j, device in enumerate(node.devices) if device.serial_number == serial)
            message = f"{node.name}: {number} devices have the serial number {serial}, boards of it carry {usual}"
            place = at(cluster, _KEY, i, "devices", j, "serial_number")
            yield Violation(place, message, "one serial number on each board")


def other_hosts(cluster: ClusterProfile) -> Iterator[Violation]:
    """Files that were gathered as of one node and state the name of another one of the cluster."""
    listed = [node.name for node in cluster.layout.nodes] if cluster.layout is not None else []
    names = {short(name): name for name in (*listed, *(node.name for node in cluster.observed_nodes))}
    for i, node in enumerate(cluster.observed_nodes):
        for j, host in enumerate(node.hosts):
            other = names.get(short(host))
            if other is not None and short(host) != short(node.name):
                message = f"{node.name}: a file of it states the host name {host}, which is the node {other}"
                yield Violation(at(cluster, _KEY, i, "hosts", j), message, f"put the file into the directory {other}")


def short(name: str) -> str:
    """The host part of a name; an address has none.

    >>> short("Node-1.example.org"), short("10.0.0.1")
    ('node-1', '10.0.0.1')
    """
    head = name.lower().partition(".")[0]
    return name if is_digits(head) else head


def _few(values: list[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
