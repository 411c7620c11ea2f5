"""Says for rules which collective libraries run on the accelerators of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.performance.derived.cluster import listed

VENDORS = {
    "nccl": ("nvidia",),
    "rccl": ("amd",),
    "oneccl": ("intel",),
    "hccl": ("huawei", "intel", "habana"),
}
"""Makers of the accelerators that a library runs on; variants, and libraries of all makers such as MPI, are absent."""
_OTHERS = frozenset({"google", "aws", "graphcore", "cerebras"})
"""Makers whose accelerators none of these libraries runs on; others ship forks under the same names."""
_MAKERS = _OTHERS.union(*VENDORS.values())


def vendors(groups: Iterable[NodeGroup]) -> frozenset[str] | None:
    """Makers of the accelerators of node groups; None where one of them is not known."""
    found = set()
    for group in groups:
        known = listed(group)
        vendor = known.vendor if known else group.accelerator.vendor
        if vendor is None:
            return None
        found.add(vendor.casefold())
    return frozenset(found)


def runs_on(library: str, makers: Iterable[str] | None) -> bool | None:
    """Whether a library runs on accelerators of one of the makers; None where that is not known."""
    able = VENDORS.get(library.casefold())
    if able is None or makers is None or not _MAKERS.issuperset(makers):
        return None
    return any(maker in able for maker in makers)


def has_own(library: str, makers: Iterable[str]) -> bool:
    """Whether the makers of the accelerators have libraries of their own, of which this may be one, such as XLA."""
    return library.casefold() not in VENDORS and _OTHERS.issuperset(makers)


def unknown(library: str, makers: Iterable[str]) -> str:
    """Why nothing is known of a library on the accelerators of these makers."""
    if library.casefold() not in VENDORS:
        return f"which accelerators {library} runs on is not known"
    return f"whether {library} runs on accelerators of {' or '.join(sorted(makers))} is not known"


def fitting(makers: Iterable[str]) -> str:
    """Libraries for accelerators of these makers, in words."""
    names = [name for name, able in VENDORS.items() if any(maker in able for maker in makers)]
    return " or ".join(names) or "the library of their maker"
