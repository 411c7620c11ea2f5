"""Gathers what files of nodes show, and writes a cluster profile with it: the document that an acceptance judges."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainspec_validate.documents.load import LoadError, load_file, load_text, read_file
from trainspec_validate.interop.document import plain_text
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.gpu_report import PARTS, Facts
from trainspec_validate.interop.node_tools import node_facts
from trainspec_validate.interop.open import decoded
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.model.finding import Unjudged
from trainspec_validate.pipeline.acceptance_descriptions import REQUIREMENTS as DESCRIBED
from trainspec_validate.pipeline.acceptance_descriptions import description, group_of, is_rate_open, open_facts
from trainspec_validate.pipeline.acceptance_logs import node_log
from trainspec_validate.pipeline.acceptance_notes import Note, counted_words, named, notes, parts_of, uncounted
from trainspec_validate.pipeline.acceptance_runs import RunStream, run_stream
from trainspec_validate.pipeline.acceptance_tests import BUS_BANDWIDTH, SHORT_RUN, not_run
from trainspec_validate.pipeline.claims import claims
from trainspec_validate.pipeline.files import SKIPPED_DIRECTORIES, walk
from trainspec_validate.system.boundary import InputError, reason_of, untrusted
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.telemetry.formats.machine_errors import pci_address

REQUIREMENTS = ("TS-CLU-054", "TS-CLU-073", "TS-CLU-074", "TS-CLU-080")
_MOST_NODES = Limit("a directory of nodes", 100_000, "nodes")
_MOST_FILES = Limit("a directory of nodes", 1_000_000, "files")
_MOST_FACTS = Limit("a directory of nodes", 400_000, "devices, faults of devices, ports and failed checks")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_NUMBER = "the number of accelerators"
_ASPECTS = {
    _NUMBER: ("num_accelerators", ("TS-CLU-054",)),
    "the driver": ("driver", ("TS-CLU-054",)),
    "the ports": ("ports", ("TS-CLU-073", "TS-CLU-080")),
    "the bus bandwidth": ("bus_bandwidths", ("TS-CLU-074",)),
}
"""What can be judged of a node, by the key that holds it, and for which requirements."""
_KNOWN = "nvidia-smi-log-xml"
"""What is read as a report of the state of accelerators, which describes each of them."""
_STATE = "the state of accelerators"
_STATE_REQUIREMENTS = ("TS-CLU-054", "TS-CLU-073", "TS-CLU-080")
_RATES = "the rate of each active port"
_KERNEL_ERRORS = "errors of the kernel"
_COUNT = ("node_groups", 0, "num_accelerators_per_node")
"""Where the description of one node has the number of its accelerators."""


@dataclass(slots=True)
class _Node:
    """What the files of one node show so far."""

    name: str
    num_facts: Count
    """Of all nodes."""
    declared_counts: frozenset[int] = frozenset()
    """Accelerators of a node by the node groups of the profile."""
    facts: Facts = field(default_factory=dict)
    devices: dict[str, Facts] = field(default_factory=dict)
    by_pci: dict[str, Facts] = field(default_factory=dict)
    """The devices of the former by their PCI addresses."""
    known: set[tuple[str, str]] = field(default_factory=set)
    """What the lists of the facts hold: key and value."""
    files: list[dict[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Files of no known format."""
    differing: list[str] = field(default_factory=list)
    half_read: dict[str, list[str]] = field(default_factory=dict)
    """Files of a known format with the parts that no reader takes, as they follow its name."""
    counted: dict[str, int] = field(default_factory=dict)
    """Links with counters, of each GPU."""
    counters: str = ""
    """The file that has them."""
    open_counts: dict[str, None] = field(default_factory=dict)
    """Files whose list of accelerators does not show each of them once, each with the reason."""
    stated: set[str] = field(default_factory=set)
    """What of `PARTS` a report states of its accelerators."""
    num_stated: int = 1 << 20
    """Accelerators that the report with the fewest has."""
    odd_rates: set[tuple[str, int]] = field(default_factory=set)
    """Devices and ports whose stated rate is none that a port can run at."""
    ran: set[str] = field(default_factory=set)
    """Tests that the files have results of."""
    reading: str = ""
    """The file that is being read."""
    has_kernel_log: bool = False
    streams: list[RunStream] = field(default_factory=list)

    def leave_open(self, name: str, parts: Iterable[str]) -> None:
        """Note parts of a file that no reader takes."""
        for part in parts:
            self.half_read.setdefault(name, []).append(part)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A cluster profile with what was found on its nodes."""

    text: str
    """The document, in YAML."""
    num_nodes: int
    failures: tuple[str, ...]
    """Files that could not be read, each with the reason."""
    left_out: tuple[Unjudged, ...]
    """Files that are not looked at."""
    unjudged: tuple[Unjudged, ...]
    """Files of no known format, and what no file of some nodes states."""
    open: Mapping[str, tuple[str, ...]]
    """The latter by node: facts that no file of it states, and files that are not read, or not wholly."""
    open_requirements: tuple[str, ...]
    """The requirements that these facts are judged by, sorted."""
    not_run: Mapping[str, tuple[str, ...]]
    """The nodes of which no file has a result of a test, by test."""
    streams: tuple[RunStream, ...]
    """Streams of training runs, among the files of nodes."""
    streams_of_no_node: tuple[RunStream, ...]
    """Streams of training runs next to the directories of nodes."""


def gather(profile: Path, directory: Path) -> Gathered:
    """The profile with one entry for each directory of a node below a directory.

    Raises:
        InputError: the profile cannot be read, or the directory holds no directory of a node, or more than the limits.
    """
    data = _profile(profile)
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{directory.as_posix()}: {reason_of(error)}") from error
    places = _places(directory, entries)
    failures: list[str] = []
    groups = [group for group in data.get("node_groups") or () if isinstance(group, Mapping)]
    counts = frozenset(n for group in groups if isinstance(n := group.get("num_accelerators_per_node"), int))
    budget = Count(_MOST_FILES), Count(_MOST_FACTS)
    try:
        nodes = [_node(_Node(place.name, budget[1], counts), place, failures, budget[0]) for place in places]
    except OverLimitError as error:
        raise InputError(f"{directory.as_posix()}: {error}") from error
    observed = [_plain(node) for node in nodes]
    document = {**data, "observed_nodes": [*observed, *_absent(data, {node.name for node in nodes})]}
    absent = _not_stated(data, observed, nodes)
    runs = [stream for entry in entries if (stream := _of_no_node(entry, directory)) is not None]
    has_streams = bool(runs) or any(node.streams for node in nodes)
    found = list(notes(data, observed, _declared(data), has_streams=has_streams))
    told = (Unjudged(directory.as_posix(), note.reason, note.remedy, note.covers) for note in found)
    return Gathered(
        plain_text(document),
        len(nodes),
        tuple(failures),
        left_out=tuple(_left_out(directory, entries, {stream.name for stream in runs})),
        unjudged=(*_unknown(directory, nodes), *_unjudged(directory, absent, observed), *told),
        open=_open({**absent, **{note.fact: list(note.nodes) for note in found}}, nodes),
        open_requirements=_open_requirements(absent, found),
        not_run=_not_run(document["observed_nodes"], nodes, has_streams=has_streams),
        streams=tuple(stream for node in nodes for stream in node.streams),
        streams_of_no_node=tuple(runs),
    )


def _places(directory: Path, entries: Iterable[os.DirEntry[str]]) -> list[Path]:
    """The directories of nodes.

    Raises:
        InputError: there is none, or more than the limit, or a name is none of a node.
    """
    places = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    if len(places) > _MOST_NODES.most:
        raise InputError(f"{directory.as_posix()}: {_MOST_NODES.refusal}")
    if not places:
        raise InputError(f"{directory.as_posix()}: has no directory of a node; put the files of each node into one")
    odd = next((place.name for place in places if not _NAME.fullmatch(place.name)), None)
    if odd is not None:
        raise InputError(f"{directory.as_posix()}: {odd!r} is no name of a node (letters, digits and . _ + -)")
    return places


def _profile(path: Path) -> Mapping[str, Any]:
    try:
        data = load_file(path).data
    except LoadError as error:
        raise InputError(f"{path.as_posix()}: {error.message}") from error
    if not isinstance(data, dict) or data.get("kind") != "ClusterProfile":
        raise InputError(f"{path.as_posix()}: is no ClusterProfile")
    return data


def declared_nodes(profile: Path) -> list[str]:
    """The names of the nodes that a cluster profile lists.

    Raises:
        InputError: the profile cannot be read.
    """
    return _declared(_profile(profile))


def _declared(data: Mapping[str, Any]) -> list[str]:
    layout = data.get("layout")
    listed = layout.get("nodes") if isinstance(layout, Mapping) else None
    names = [entry.get("name") for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return [name for name in names if isinstance(name, str)]


def _absent(data: Mapping[str, Any], found: set[str]) -> Iterator[Facts]:
    """Entries of the nodes that the profile has and no directory is of: by name, or as a number."""
    missing = [name for name in _declared(data) if name not in found]
    yield from ({"name": name, "answered": False} for name in missing)
    stated = data.get("num_nodes")
    num_absent = stated - len(found) - len(missing) if isinstance(stated, int) else 0
    if num_absent > 0:
        yield {"name": "absent-node", "answered": False, **({"num_nodes": num_absent} if num_absent > 1 else {})}


def _node(node: _Node, place: Path, failures: list[str], num_files: Count) -> _Node:
    root = place.parent
    for path in walk(place, lambda _: True):
        if isinstance(path, InputError):
            failures.append(str(path))
            continue
        num_files.add()
        name = path.relative_to(root).as_posix()
        stream = run_stream(path, root)
        if stream is not None:
            _take_stream(node, stream)
            continue
        try:
            content = read_file(path)
        except LoadError as error:
            failures.append(f"{name}: {error.message}")
            continue
        try:
            with untrusted(lambda reason, _: ForeignFormatError(reason)):
                is_read = _take(node, name, content)
        except (ForeignFormatError, LoadError) as error:
            failures.append(f"{name}: {error}")
            continue
        if is_read:
            node.files.append({"path": name, "digest": f"sha256:{sha256(content).hexdigest()}"})
        else:
            node.unknown.append(name if content.strip() else f"{name} (empty)")
    node.leave_open(node.counters, [f" ({part})" for part in uncounted(node.counted, [*node.devices.values()])])
    return node


def _of_no_node(entry: os.DirEntry[str], directory: Path) -> RunStream | None:
    is_plain = entry.is_file(follow_symlinks=False) and not entry.name.startswith(".")
    return run_stream(Path(entry.path), directory) if is_plain else None


def _take_stream(node: _Node, stream: RunStream) -> None:
    """Take the stream of a run, and what tools printed among the lines of its console."""
    node.streams.append(stream)
    node.files.append({"path": stream.name, "digest": f"sha256:{stream.digest}"})
    if stream.is_console:
        with suppress(LoadError, ForeignFormatError), untrusted(lambda reason, _: ForeignFormatError(reason)):
            _take(node, stream.name, read_file(stream.path))


def _take(node: _Node, name: str, content: bytes) -> bool:
    """Take what a file says of its node; whether it says anything."""
    node.reading = name
    if claims(content):
        _take_profile(node, name, load_text(content, name).data)
        return True
    text = decoded(content, name)
    facts = node_facts(text.text)
    if facts is not None:
        _merge(node, facts)
        _take_open(node, name, facts.get("open_counts", ()), facts.get("unread", ()))
        node.stated.update(facts.get("stated", ()))
        node.num_stated = min(facts.get("num_stated", node.num_stated), node.num_stated)
        node.odd_rates.update(facts.get("odd_rates", ()))
        node.ran.update(facts.get("ran", ()))
        if links := facts.get("counted_links"):
            node.counted, node.counters = {**node.counted, **links}, name
    has_log = _take_kernel_log(node, name, text.text)
    is_known = facts is not None or has_log
    return _take_foreign(node, text, is_known=is_known) or is_known


def _take_kernel_log(node: _Node, name: str, text: str) -> bool:
    log = node_log(text, node.name)
    if log is None:
        return False
    node.has_kernel_log |= log.is_of_node
    node.leave_open(name, log.unread)
    # A node that was renamed has two hosts, and a log of several nodes is of no one.
    _merge(node, {"hosts": list(log.hosts) if len(log.hosts) == 1 else [], "devices": log.devices})
    return True


def _take_foreign(node: _Node, text: ForeignText, *, is_known: bool) -> bool:
    """Take what an importer reads; a text with the output of a known tool may also have a part for one."""
    try:
        found = recognise(text)
    except ForeignFormatError:
        return False
    if found.kind != "ClusterProfile":
        return False
    try:
        fragment = found.read(text)
    except ForeignFormatError as error:
        if not is_known:
            raise
        node.leave_open(text.name, [f" (as {found.name}: {error})"])
        return True
    facts = {"software": fragment.facts.get("software")} if fragment.format == _KNOWN else fragment.facts
    _take_profile(node, text.name, facts, None if fragment.format == _KNOWN else fragment)
    counts = [remark.message for remark in fragment.remarks if remark.pointer == _COUNT]
    _take_open(node, text.name, counts, [remark.message for remark in fragment.remarks if remark.is_unread])
    return True


def _take_open(node: _Node, name: str, counts: Iterable[str], values: Iterable[str]) -> None:
    node.open_counts |= dict.fromkeys(f"{name} ({reason})" for reason in counts)
    node.leave_open(name, [f" ({value})" for value in values])


def _take_profile(node: _Node, name: str, data: Any, fragment: Fragment | None = None) -> None:
    """What a description of the node as a cluster of one says."""
    facts: Facts = {}
    partial, devices = (fragment.partial, fragment.devices) if fragment is not None else (False, ())
    number = group_of(data).get("num_accelerators_per_node")
    if isinstance(number, int) and (not partial or number in node.declared_counts):
        facts["num_accelerators"] = number
    software = data.get("software") if isinstance(data, Mapping) else None
    driver = software.get("driver") if isinstance(software, Mapping) else None
    if isinstance(driver, Mapping) and isinstance(driver.get("version"), str):
        facts["driver"] = driver["version"]
    if found := description(name, data, devices, partial=partial):
        facts["descriptions"] = [found]
    _merge(node, facts)


def _merge(node: _Node, facts: Facts) -> None:
    if "num_accelerators" in facts:
        before = node.facts.get("num_accelerators", facts["num_accelerators"])
        node.facts["num_accelerators"] = min(before, facts["num_accelerators"])
    if "driver" in facts and node.facts.setdefault("driver", facts["driver"]) != facts["driver"]:
        node.differing.append(f"{node.reading} (driver {facts['driver']}; another file has {node.facts['driver']})")
    for key in ("ports", "failed_checks", "bus_bandwidths", "copies", "linpack_runs", "hosts", "descriptions"):
        for one in facts.get(key, ()):
            if (key, repr(one)) not in node.known:
                node.num_facts.add()
                node.known.add((key, repr(one)))
                node.facts.setdefault(key, []).append(one)
    for device in facts.get("devices", ()):
        _merge_device(node, device)


def _merge_device(node: _Node, device: Facts) -> None:
    """Join what several files say of a device, by its UUID or its PCI address: of two numbers the worse one."""
    pci = pci_address(device["pci"]) if device.get("pci") else None
    known = node.devices.get(device["name"]) or (node.by_pci.get(pci) if pci is not None else None)
    if known is None:
        node.num_facts.add()
        known = node.devices[device["name"]] = {**device, "pci": None, "faults": {}}
    elif str(device["name"]).startswith("GPU-"):
        known["name"] = device["name"]
    for fault in device.get("faults", ()):
        if fault not in known["faults"]:
            node.num_facts.add()
            known["faults"][fault] = None
    for key, value in device.items():
        if key in {"faults", "name", "pci"} or known.setdefault(key, value) == value:
            continue
        if isinstance(value, str):
            node.differing.append(f"{node.reading} ({key} of {known['name']}: {value}; another file has {known[key]})")
        else:  # what holds of a device holds in each of its reports
            known[key] = (max if key == "num_uncorrected_errors" else min)(known[key], value)
    known["pci"] = known["pci"] or pci
    if pci is not None:
        node.by_pci.setdefault(pci, known)


def _plain(node: _Node) -> Facts:
    """The entry of a node in the document."""
    if not node.files:
        return {"name": node.name, "answered": False}
    found: Facts = {"name": node.name, **{key: value for key, value in node.facts.items() if value not in (None, [])}}
    devices = [
        {
            key: value
            for key, value in {**one, "faults": [*one["faults"]]}.items()
            if key != "pci" and value not in (None, [])
        }
        for one in node.devices.values()
    ]
    return {**found, **({"devices": devices} if devices else {}), "files": node.files}


def _left_out(directory: Path, entries: Sequence[os.DirEntry[str]], runs: Set[str]) -> Iterator[Unjudged]:
    """Files that are not looked at: links, hidden ones, those of tools' own directories, and those of no node."""
    links, hidden = [], []
    plain = [one.name for one in entries if not one.is_symlink() and not one.is_dir(follow_symlinks=False)]
    stray = [name for name in plain if name not in runs]
    pending = [list(entries)]
    while pending:
        below = pending.pop()
        for entry in below:
            name = Path(entry.path).relative_to(directory).as_posix()
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.is_symlink():
                links.append(name)
            elif name not in plain and (
                entry.name.startswith(".") or (is_directory and entry.name in SKIPPED_DIRECTORIES)
            ):
                hidden.append(name)
            elif is_directory:
                with suppress(OSError), os.scandir(entry) as found:  # the search of files reports it
                    pending.append(sorted(found, key=lambda one: one.name))
    for names, what, remedy in (
        (links, ("a link, which is", "links, which are", "not followed"), "copy into it what the links lead to"),
        (hidden, ("a hidden entry, which is", "hidden entries, which are", "not read"), "give them other names"),
        (stray, ("a file", "files", "of no node"), "put each into the directory of its node"),
    ):
        if names:
            reason = f"holds {counted_words(names, *what)}: {named(sorted(names))}"
            yield Unjudged(directory.as_posix(), reason, remedy, ())


def _unknown(directory: Path, nodes: Sequence[_Node]) -> Iterator[Unjudged]:
    names = [name for node in nodes for name in node.unknown]
    if names:
        reason = f"holds {counted_words(names, 'a file', 'files', 'of no known format')}: {named(names)}"
        yield Unjudged(directory.as_posix(), reason, "`trainspec accept --help` lists the tools that are read", ())
    counts = [count for node in nodes for count in node.open_counts]
    if counts:
        lists = counted_words(counts, "a list that does", "lists that do", "not show each accelerator once")
        remedy, judged = "gather the list of all devices of the node, once", _ASPECTS[_NUMBER][1]
        yield Unjudged(directory.as_posix(), f"holds {lists}: {named(counts)}", remedy, judged)
    parts = [part for node in nodes for part in parts_of(node.half_read)]
    if parts:
        files = counted_words(parts, "a file of which a part", "files of which a part", "is not read")
        reason = f"holds {files}: {named(parts)}"
        yield Unjudged(directory.as_posix(), reason, "look at them, or gather the output of the tool anew", ())
    values = [value for node in nodes for value in node.differing]
    if values:
        reason = f"holds {counted_words(values, 'a value', 'values', 'that another file contradicts')}: {named(values)}"
        yield Unjudged(directory.as_posix(), reason, "keep the files of one state of the node", _ASPECTS[_NUMBER][1])


def _not_stated(data: Mapping[str, Any], observed: Iterable[Facts], nodes: Iterable[_Node]) -> dict[str, list[str]]:
    """The nodes that answered and of which no file states a fact, by fact."""
    answered = [(one, node) for one, node in zip(observed, nodes, strict=True) if one.get("answered", True)]
    absent = {
        words: [str(one["name"]) for one, _ in answered if key not in one] for words, (key, _) in _ASPECTS.items()
    }
    stated = {node.name: node.stated for one, node in answered if node.num_stated >= one.get("num_accelerators", 0)}
    for part in PARTS:
        absent[f"{part} of accelerators"] = [name for name, parts in stated.items() if parts and part not in parts]
    absent[_STATE] = [node.name for _, node in answered if not stated.get(node.name)]
    for one, _ in answered:
        for words in open_facts(data, one):
            absent.setdefault(words, []).append(str(one["name"]))
    absent[_RATES] = [str(one["name"]) for one, node in answered if is_rate_open(one, node.odd_rates)]
    absent[_KERNEL_ERRORS] = [node.name for _, node in answered if not node.has_kernel_log]
    return {words: names for words, names in absent.items() if names}


def _unjudged(directory: Path, absent: Mapping[str, list[str]], observed: Sequence[Facts]) -> Iterator[Unjudged]:
    """What cannot be judged of nodes that answered, since none of their files states it."""
    num_answered = sum(one.get("answered", True) for one in observed)
    for words, names in absent.items():
        reason = f"no file states {words} of {len(names)} of {num_answered} nodes ({named(names)})"
        remedy, judged = "gather the output of a tool that states it", _open_requirements([words], ())
        yield Unjudged(directory.as_posix(), reason, remedy, judged)


def _open(absent: Mapping[str, list[str]], nodes: Sequence[_Node]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {node.name: [] for node in nodes}
    for words, names in absent.items():
        for name in names:
            found[name].append(words)
    for node in nodes:
        parts = [f"{name}{part}" for name, own in node.half_read.items() for part in own]
        found[node.name] += [f"what {part} says" for part in (*node.unknown, *parts, *node.differing)]
    return {name: tuple(facts) for name, facts in found.items() if facts}


def _not_run(observed: Iterable[Facts], nodes: Sequence[_Node], *, has_streams: bool) -> dict[str, tuple[str, ...]]:
    ran = {str(one["name"]): {BUS_BANDWIDTH} if one.get("bus_bandwidths") else set() for one in observed}
    for node in nodes:
        ran[node.name] |= node.ran | ({SHORT_RUN} if has_streams else set())
    return not_run(ran)


def _open_requirements(absent: Iterable[str], found: Iterable[Note]) -> tuple[str, ...]:
    aspects = {**{words: ids for words, (_, ids) in _ASPECTS.items()}, _STATE: _STATE_REQUIREMENTS, **DESCRIBED}
    wanted = {one for words in absent for one in aspects.get(words, ("TS-CLU-073",))}
    return tuple(sorted(wanted | {note.requirement for note in found}))
