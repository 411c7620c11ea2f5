"""Reads the graph files of NCCL and RCCL: the rings and trees that the library chose on a node."""

from __future__ import annotations

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._draft import Draft, plain_int
from trainspec_validate.interop.readers._node import PATHS
from trainspec_validate.system import xml

NAME = "nccl-graph-xml"
_NVLS = 5
# Source: NVIDIA/nccl@5067397c:src/include/graph.h, NCCL_TOPO_PATTERN_*.
_PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", _NVLS: "NVLS", 6: "direct CollNet"}
_MAX_SHOWN = 32


def looks_like(text: ForeignText) -> bool:
    """Whether the first element is the one that NCCL writes around its graphs."""
    return xml.root_tag(text.text) == "graphs"


def read(text: ForeignText) -> Fragment:
    """Facts of a graph file about a node: most of it is a choice of the library and becomes remarks.

    Raises:
        ForeignFormatError: the text is not such a file.
    """
    root = xml.parse(text.text)
    if root.tag != "graphs":
        raise ForeignFormatError(f"starts with <{root.tag[:64]}>", root.line, "a graph file starts with <graphs>")
    graphs = [child for child in root.children if child.tag == "graph"]
    if not graphs:
        raise ForeignFormatError("holds no <graph>", root.line, "NCCL_GRAPH_DUMP_FILE writes a whole file")
    draft = Draft()
    if root.get("version") != "1":
        draft.remark(f"version is {(root.get('version') or 'missing')[:16]}; 1 is known", root.line)
    for graph in graphs:
        _graph(graph, draft)
    _devices(root, draft)
    _path(graphs, draft)
    for key in ("accelerator", "host", "scale_up"):
        draft.group_unknown(key, reason="a graph names devices by number; the topology file holds the rest")
    return draft.fragment(NAME, text)


def _graph(graph: xml.Element, draft: Draft) -> None:
    pattern = plain_int(graph.get("pattern"), 0, 99)
    label = f"graph {(graph.get('id') or '?')[:16]} ({_PATTERNS.get(pattern or 0, 'unknown pattern')})"
    channels = [child for child in graph.children if child.tag == "channel"]
    stated = plain_int(graph.get("nchannels"), 0, 1024)
    if stated is not None and stated != len(channels):
        draft.remark(f"{label} states {stated} channels and lists {len(channels)}", graph.line)
    orders: dict[tuple[str, ...], int] = {}
    for channel in channels:
        order = tuple(_device(item) for item in channel.children if item.tag in {"gpu", "net"})
        orders.setdefault(order, channel.line)
        gpus = [item for item in order if item.startswith("gpu")]
        if len(set(gpus)) < len(gpus):
            draft.remark(f"{label}: a channel passes an accelerator twice", channel.line)
    for order, line in orders.items():
        more = "" if len(order) <= _MAX_SHOWN else f" and {len(order) - _MAX_SHOWN} more"
        draft.remark(f"{label}, order of devices: {' '.join(order[:_MAX_SHOWN])}{more}", line)
    if pattern == _NVLS and channels:
        how = "the library built an NVLS graph, which reduces in the switches"
        draft.group("scale_up", "in_network_reduction", value=True, how=how)
        draft.group("scale_up", "technology", value="nvlink", how=how)


def _device(item: xml.Element) -> str:
    return f"{item.tag}{(item.get('dev') or '?')[:16]}"


def _devices(root: xml.Element, draft: Draft) -> None:
    seen = {_device(item) for item in root.walk() if item.tag == "gpu"}
    nets = {_device(item) for item in root.walk() if item.tag == "net"}
    told = f"the graphs pass {len(seen)} accelerators and {len(nets)} network interfaces"
    draft.remark(told)
    reason = f"{told}, which need not be all"
    draft.group_unknown("num_accelerators_per_node", reason=reason)
    draft.group_unknown("nics", reason=reason)


def _path(graphs: list[xml.Element], draft: Draft) -> None:
    """The path class from accelerators to their interfaces, from graphs that reach the network."""
    reaching = [graph for graph in graphs if graph.all("net")]
    classes = {graph.get("typeinter") or "" for graph in reaching}
    known = classes & set(PATHS)
    if not reaching:
        return
    if len(classes) != 1 or not known:
        told = ", ".join(sorted(name[:16] or "none" for name in classes))
        draft.remark(f"graphs that reach the network state the path classes {told}")
        return
    draft.group("nics", 0, "name", value="nics", how="a label for the entry")
    how = "typeinter of the graphs that reach the network"
    draft.group("nics", 0, "accelerator_path", value=known.pop(), how=how)
    for key in ("num_per_node", "technology", "rate_bytes_per_second"):
        draft.group_unknown("nics", 0, key, reason="a graph names interfaces by number; see the topology file")


FORMATS: tuple[Format, ...] = (Format(NAME, "graph file of NCCL or RCCL", "ClusterProfile", looks_like, read),)
