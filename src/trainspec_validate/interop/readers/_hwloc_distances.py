"""Reads the distance matrices of hwloc: links between accelerators and to their switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers import _nvlink, _pci
from trainspec_validate.interop.readers._draft import Draft, plain_int
from trainspec_validate.interop.readers._links import meshed
from trainspec_validate.model.values import cut_to
from trainspec_validate.system import xml

_TAGS = frozenset({"distances2", "distances2hetero"})
_TECHNOLOGIES = {"NVLinkBandwidth": "nvlink", "XGMIBandwidth": "xgmi"}
_MAX_OBJECTS = 2048


def identity(item: xml.Element) -> tuple[str | None, str | None, str | None]:
    """Class, vendor and device of a PCI device, from `0302 [10de:1db8] [10de:131d] a1 00`."""
    words = (item.get("pci_type") or "").split()
    pair = words[1].strip("[]").split(":") if len(words) > 1 else []
    vendor, device = (_pci.identifier(pair[0]), _pci.identifier(pair[1])) if len(pair) == 2 else (None, None)
    return _pci.identifier(words[0]) if words else None, vendor, device


@dataclass(frozen=True, slots=True)
class Matrix:
    """A square matrix of whole numbers with the index of each object."""

    name: str
    indexes: tuple[str, ...]
    values: tuple[int, ...]
    line: int

    def row(self, position: int) -> tuple[int, ...]:
        """Values from one object to all."""
        size = len(self.indexes)
        return self.values[position * size : (position + 1) * size]


def matrices(root: xml.Element) -> Iterator[Matrix]:
    """Every distance matrix of an export.

    Raises:
        ForeignFormatError: a matrix is not as large as it says, or holds something else than numbers.
    """
    for item in root.children:
        if item.tag not in _TAGS:
            continue
        indexes = tuple(word for child in item.children if child.tag == "indexes" for word in child.text.split())
        words = [word for child in item.children if child.tag == "u64values" for word in child.text.split()]
        size = plain_int(item.get("nbobjs"), 1, _MAX_OBJECTS)
        if size is None or len(indexes) != size or len(words) != size * size:
            told = f"a distance matrix states {cut_to((item.get('nbobjs') or 'no'), 16)} objects"
            raise ForeignFormatError(
                f"{told}, but has {len(indexes)} indexes and {len(words)} values",
                item.line,
                "the export is cut off or edited; export it again",
            )
        values = [plain_int(word, 0, 2**53) for word in words]
        if None in values:
            raise ForeignFormatError("a distance matrix holds something else than numbers", item.line)
        yield Matrix(item.get("name") or "", indexes, tuple(value or 0 for value in values), item.line)


def scale_up(root: xml.Element, gpus: Sequence[xml.Element], draft: Draft, num_dies: int) -> None:
    """Writes the scale-up domain from a matrix of link rates; the name of other matrices becomes a remark.

    Raises:
        ForeignFormatError: a matrix is damaged.
    """
    found = False
    owner, switches = _owners(root, gpus)
    for matrix in matrices(root):
        if matrix.name not in _TECHNOLOGIES:
            draft.remark(f"the distance matrix {matrix.name[:64] or 'without a name'} has no key here", matrix.line)
        elif found:
            draft.remark("a second matrix of links is left out", matrix.line)
        elif gpus:
            found = _from_rates(matrix, (owner, switches), len(gpus), draft, num_dies)
    if not found and gpus:
        draft.group_unknown("scale_up", reason="the export holds no matrix of links between accelerators")


def _owners(root: xml.Element, gpus: Sequence[xml.Element]) -> tuple[dict[str, int], set[str]]:
    """Global index of accelerators, their operating system's devices included, and of switches."""
    owner = {
        index: k
        for k, gpu in enumerate(gpus)
        for item in gpu.walk()
        if item.tag == "object" and (index := item.get("gp_index")) is not None
    }
    switches = set()
    for item in root.walk():
        index = item.get("gp_index")
        if item.tag == "object" and item.get("type") == "PCIDev" and index is not None:
            device_class, vendor, _ = identity(item)
            # A switch that the driver has put to sleep shows neither class nor maker.
            if device_class in {"0680", "0000"} and vendor in {"10de", "0000"}:
                switches.add(index)
    return owner, switches


def _from_rates(
    matrix: Matrix, devices: tuple[dict[str, int], set[str]], size: int, draft: Draft, num_dies: int
) -> bool:
    technology = _TECHNOLOGIES[matrix.name]
    owner, switches = devices
    columns = [index.rpartition(":")[2] for index in matrix.indexes]
    pairs: dict[tuple[int, int], int] = {}
    to_switch = dict.fromkeys(range(size), 0)
    for position, index in enumerate(columns):
        source = owner.get(index)
        if source is None:
            continue
        for column, rate in zip(columns, matrix.row(position), strict=True):
            target = owner.get(column)
            if rate and target is not None and target != source:
                pairs[source, target] = rate
            elif rate and column in switches:
                to_switch[source] += rate
    switched = any(to_switch.values())
    if not switched and not pairs:
        return False
    draft.group("scale_up", "technology", value=technology, how=f"the matrix {matrix.name}")
    if switched and not pairs:
        _switched(to_switch, draft)
    elif pairs and not switched:
        _direct(pairs, size, technology, draft, num_dies)
    return True


def _switched(to_switch: dict[int, int], draft: Draft) -> None:
    draft.group("scale_up", "topology", value="switched", how="the links end at switches")
    rates = set(to_switch.values())
    if len(rates) == 1:
        how = "rates of one accelerator to all switches in MB/s, added up"
        draft.group("scale_up", "bandwidth_bytes_per_second", value=rates.pop() * 1e6, how=how)
    joined = sum(1 for rate in to_switch.values() if rate)
    draft.group("scale_up", "domain_num_accelerators", value=joined, how="accelerators of the node with such links")
    draft.group_unknown("scale_up", "num_links", reason="the matrix holds rates, not numbers of links")


def _direct(pairs: dict[tuple[int, int], int], size: int, technology: str, draft: Draft, num_dies: int) -> None:
    shape = meshed(size, pairs, count_links=False)
    if shape is None:
        return
    if shape.topology is not None:
        draft.group("scale_up", "topology", value=shape.topology, how="rates between pairs of accelerators")
    _nvlink.islands(draft, shape)
    if shape.num_accelerators is None:
        for key in ("topology", "domain_num_accelerators"):
            draft.group_unknown("scale_up", key, reason=_nvlink.UNEVEN)
    elif shape.num_accelerators % num_dies == 0:
        how = "accelerators of the node that the links join"
        draft.group("scale_up", "domain_num_accelerators", value=shape.num_accelerators // num_dies, how=how)
    draft.group_unknown("scale_up", "num_links", reason="the matrix holds rates, not numbers of links")
    totals = dict.fromkeys(range(size), 0)
    for (one, _), rate in pairs.items():
        totals[one] += rate
    rates = set(totals.values())
    if technology == "nvlink" and len(rates) == 1 and 10 <= max(rates) <= 10_000_000:
        how = "rates of one accelerator to all others in MB/s, added up"
        draft.group("scale_up", "bandwidth_bytes_per_second", value=rates.pop() * 1e6, how=how)
    elif technology == "xgmi":
        reason = "the driver writes a fixed rate for every xGMI link, of both directions"
        draft.group_unknown("scale_up", "bandwidth_bytes_per_second", reason=reason)
