"""Finds facts of nodes that stay open: names of other hosts, links with fewer lanes, memory without ECC, stragglers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.rules._same_machine import short

_SHOWN = 8
STRAGGLER = "TS-TEL-035"
_CORRECT = "correct host_link of the node group"


@dataclass(frozen=True, slots=True)
class Note:
    """A fact that is open for some nodes."""

    fact: str
    """As the statement lists it."""
    nodes: tuple[str, ...]
    reason: str
    remedy: str
    requirement: str
    covers: tuple[str, ...] = ()
    """Requirements of which nothing was judged."""


def notes(
    data: Mapping[str, Any], observed: Sequence[Facts], declared: Sequence[str], *, has_streams: bool
) -> Iterator[Note]:
    """The open facts of a profile, its observed nodes and the nodes that it declares by name.

    Args:
        data: the profile.
        observed: what the files of each node show.
        declared: names of the nodes of the profile.
        has_streams: whether a stream of a training run is among the files.
    """
    if not has_streams:
        yield Note(
            "whether its ranks are slow in a run",
            tuple(str(one["name"]) for one in observed),
            "holds no stream of a training run, so that stragglers are not judged",
            "run a short training job, and add the times of its ranks",
            STRAGGLER,
            (STRAGGLER,),
        )
    yield from _foreign_hosts(observed, declared)
    yield from _partial_benchmarks(data, observed)
    if not any(_lanes(group) for group in data.get("node_groups") or ()):
        fewer = {str(one["name"]): sum(map(_has_fewer_lanes, one.get("devices", ()))) for one in observed}
        yield from _devices(
            fewer,
            "whether host links of accelerators should have more lanes",
            "with fewer lanes of the host link than board and slot can have",
            "declare host_link.num_lanes of the node group",
        )
    yield from _faster_links(data, observed)
    off = {str(one["name"]): sum(d.get("ecc_enabled") is False for d in one.get("devices", ())) for one in observed}
    yield from _devices(
        off,
        "errors of memory without ECC",
        "whose ECC is off, so that errors of their memory are not seen",
        "switch it on, such as by nvidia-smi -e 1",
    )


def _partial_benchmarks(data: Mapping[str, Any], observed: Sequence[Facts]) -> Iterator[Note]:
    """Nodes whose benchmarks ran on some of their accelerators alone."""
    groups = [group for group in data.get("node_groups") or () if isinstance(group, Mapping)]
    declared = groups[0].get("num_accelerators_per_node") if len(groups) == 1 else None
    partial: dict[str, str] = {}
    for one in observed:
        number = max((bench["num_ranks"] for bench in one.get("bus_bandwidths", ())), default=None)
        size = one.get("num_accelerators", declared)
        if number is not None and isinstance(size, int) and number < size:
            partial[str(one["name"])] = f"{one['name']} ({number} of {size})"
    if partial:
        yield Note(
            "the bus bandwidth of all of its accelerators",
            tuple(partial),
            f"has benchmarks of {len(partial)} nodes that left accelerators out: {named(list(partial.values()))}",
            "run one rank on each accelerator",
            "TS-CLU-074",
        )


def _faster_links(data: Mapping[str, Any], observed: Sequence[Facts]) -> Iterator[Note]:
    """Nodes with a host link of a higher generation, or with more lanes, than any node group has."""
    links = [group.get("host_link") for group in data.get("node_groups") or () if isinstance(group, Mapping)]
    told: dict[str, str] = {}
    for key, words in (("generation", "generation {}, declared is {}"), ("num_lanes", "{} lanes, declared are {}")):
        declared = [link.get(key) for link in links if isinstance(link, Mapping)]
        stated = [one for one in declared if isinstance(one, int)]
        if not links or len(stated) < len(links):
            continue
        for node in observed:
            found = [
                one.get(f"host_link_{key}") or 0 for one in (*node.get("devices", ()), *node.get("descriptions", ()))
            ]
            name = str(node["name"])
            if max(found, default=0) > max(stated):
                more = words.format(max(found), max(stated))
                told[name] = f"{told[name]}; {more}" if name in told else f"{name}: {more}"
    if told:
        reason = f"shows host links that are better than declared, on {len(told)} of {len(observed)} nodes"
        reason = f"{reason} ({named(list(told.values()))})"
        fact = "whether its host links are those that are declared"
        yield Note(fact, tuple(told), reason, _CORRECT, "TS-CLU-073", ("TS-CLU-073",))


def _foreign_hosts(observed: Sequence[Facts], declared: Sequence[str]) -> Iterator[Note]:
    """Nodes whose files state host names, and neither their own nor that of another node."""
    known = {short(name) for name in (*(str(one["name"]) for one in observed), *declared)}
    found = {str(one["name"]): one["hosts"] for one in observed if one.get("hosts")}
    foreign = {name: hosts for name, hosts in found.items() if not known.intersection(map(short, hosts))}
    if foreign:
        told = named([f"{name} ({', '.join(hosts[:_SHOWN])})" for name, hosts in foreign.items()])
        yield Note(
            "whether its files are of this host",
            tuple(foreign),
            f"holds files of {len(foreign)} nodes that state other host names: {told}",
            "name each directory as its host, or compare the names",
            "TS-CLU-054",
        )


def _devices(counts: Mapping[str, int], fact: str, words: str, remedy: str) -> Iterator[Note]:
    nodes = tuple(name for name, number in counts.items() if number)
    if nodes:
        reason = f"has {sum(counts.values())} accelerators {words}, on {len(nodes)} nodes ({named(list(nodes))})"
        yield Note(fact, nodes, reason, remedy, "TS-CLU-073")


def _lanes(group: Any) -> bool:
    link = group.get("host_link") if isinstance(group, Mapping) else None
    return isinstance(link, Mapping) and link.get("num_lanes") is not None


def _has_fewer_lanes(device: Facts) -> bool:
    lanes, most = device.get("host_link_num_lanes"), device.get("host_link_most_lanes")
    return lanes is not None and most is not None and bool(lanes < most)


def named(names: list[str]) -> str:
    """The first of some names, and the number of the others."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def parts_of(found: Mapping[str, Sequence[str]]) -> list[str]:
    """Files with the first of their parts that no reader takes, each file once.

    >>> parts_of({"a/dmesg.txt": [":2 (no code)", ":7 (no code)"], "a/nvlink.txt": [" (link 3)"]})
    ['a/dmesg.txt:2 (no code), :7 (no code)', 'a/nvlink.txt (link 3)']
    """
    return [name + parts[0] + "".join(f", {part.strip()}" for part in _few(parts[1:])) for name, parts in found.items()]


def _few(parts: Sequence[str]) -> list[str]:
    more = len(parts) - _SHOWN + 1
    return [*parts[: _SHOWN - 1], *([f"and {more} more"] if more > 0 else [])]


def uncounted(counted: Mapping[str, int], devices: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Gaps of a list of link counters: active links and GPUs of a node without any.

    >>> list(uncounted({"GPU-1": 4}, [{"name": "GPU-1", "num_active_links": 18}, {"name": "GPU-2"}]))
    ['counters of 4 of 18 active links of GPU-1', 'counters of links of 1 of 2 GPUs']
    """
    for device in devices:
        num_links = device.get("num_active_links") or 0
        if 0 < counted.get(device["name"], 0) < num_links:
            yield f"counters of {counted[device['name']]} of {num_links} active links of {device['name']}"
    gpus = [device["name"] for device in devices if str(device["name"]).startswith("GPU-")]
    if 0 < (number := sum(name in counted for name in gpus)) < len(gpus):
        yield f"counters of links of {number} of {len(gpus)} GPUs"


def counted_words(names: Sequence[str], one: str, many: str, rest: str) -> str:
    """Words with their number, such as `3 links, which are not followed`."""
    return f"{one} {rest}" if len(names) == 1 else f"{len(names)} {many} {rest}"
