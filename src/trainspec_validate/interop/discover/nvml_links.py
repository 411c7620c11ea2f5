"""Finds the shape of a scale-up domain from the far ends of NVLinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.readers import _nvlink
from trainspec_validate.interop.readers._draft import Draft
from trainspec_validate.interop.readers._links import Shape, components, domain_size, from_nvlink_matrix, meshed

_WORDS = _nvlink.Words(
    how="far ends of the active NVLinks",
    joined="accelerators of the node that NVLinks join",
    no_topology="NVML does not report where every NVLink leads; see nvidia-smi nvlink -R",
    no_links="the accelerators differ in active NVLinks, or NVML does not report all; see nvidia-smi nvlink -s",
    one_node="domains of coherent hosts may span nodes, and NVML shows one",
)
Reach = Mapping[tuple[int, int], bool]
"""Whether the driver lets two devices reach each other over NVLink, in both orders, where it says so."""
Pairs = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Ends:
    """The NVLinks of one accelerator by what they lead to."""

    bus_id: str | None
    num_links: int
    """Links that the device has, active or not."""
    num_active: int
    """Active ones, without those to processors."""
    num_switched: int
    peers: Mapping[str | None, int]
    """Active links to other accelerators, by PCI address."""

    @classmethod
    def of(cls, bus_id: str | None, links: Sequence[tuple[bool, str | None, str | None]]) -> Ends:
        """The links of a device, each reported as active, kind of the far end and its PCI address."""
        active = [(remote, address) for is_active, remote, address in links if is_active and remote != "npu"]
        switched = sum(remote == "switch" for remote, _ in active)
        peers = Counter(address for remote, address in active if remote == "gpu")
        return cls(bus_id, len(links), len(active), switched, peers)


def describe_links(
    draft: Draft, ends: Sequence[Ends], pairs: Mapping[tuple[int, int], bool], *, coherent: bool
) -> None:
    """Writes the domain; `pairs` has which devices the driver lets reach each other over NVLink, in both orders."""
    _inactive(draft, ends)
    if not any(one.num_active for one in ends):
        _nvlink.none_found(draft, len(ends), "NVML shows no active NVLink")
        return
    joined = _joined(ends, pairs)
    shape = _shape(draft, ends, joined)
    if shape is None:
        reason = "NVLinks are active, but the driver lets no two accelerators reach each other over them"
        _nvlink.none_found(draft, len(ends), reason)
    else:
        _nvlink.write(draft, shape, set(joined.values()), _WORDS, coherent=coherent)


def _inactive(draft: Draft, ends: Sequence[Ends]) -> None:
    for position, one in enumerate(ends):
        if one.num_active < one.num_links and any(other.num_active > one.num_active for other in ends):
            told = f"{one.num_active} of {one.num_links} NVLinks are active"
            draft.remark(told, about=f"accelerator-{position}")


def _joined(ends: Sequence[Ends], pairs: Reach) -> Pairs:
    """Links of each pair; through switches those of the accelerator that has fewer."""
    found: Pairs = {}
    for a, one in enumerate(ends):
        for b, other in enumerate(ends):
            if a == b or not pairs.get((a, b), True):
                continue
            count = one.peers.get(other.bus_id, 0) if other.bus_id is not None else 0
            if not count and _told(one) and _told(other):
                count = min(one.num_switched, other.num_switched)
            elif not count and pairs.get((a, b)):
                count = min(one.num_active, other.num_active)
            if count:
                found[a, b] = count
    return found


def _told(one: Ends) -> bool:
    """Whether the far end of every active link is known."""
    return one.num_switched + sum(one.peers.values()) == one.num_active


def _shape(draft: Draft, ends: Sequence[Ends], joined: Pairs) -> Shape | None:
    parts = components(len(ends), joined)
    if not parts:
        return None
    if not all(_told(one) for one in ends):
        return from_nvlink_matrix(len(ends), joined)
    active = {one.num_active for one in ends}
    num_links = active.pop() if len(active) == 1 else None
    if all(one.num_switched == one.num_active for one in ends):
        return Shape("switched", domain_size(len(ends), parts), num_links, tuple(parts))
    here = {one.bus_id for one in ends}
    if any(one.num_switched for one in ends) or any(set(one.peers) - here for one in ends):
        draft.remark("some NVLinks lead to accelerators that are not listed, or to switches and accelerators alike")
        return Shape(None, domain_size(len(ends), parts), num_links, tuple(parts))
    return meshed(len(ends), joined)
