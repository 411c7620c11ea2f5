"""Writes the NVLinks between the accelerators of one node into a draft."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trainspec_validate.interop.readers._draft import Draft, shown
from trainspec_validate.interop.readers._links import Shape

UNEVEN = "the links join sets of accelerators that differ in size; a node group has domains of one size"
_PATH = ("scale_up",)


@dataclass(frozen=True, slots=True)
class Words:
    """How a source describes links, and why it may leave a key open."""

    how: str
    joined: str
    """How the accelerators of a domain were counted."""
    no_topology: str
    no_links: str
    one_node: str
    """Why the domain of a coherent host stays open."""


def write(draft: Draft, shape: Shape, counts: Collection[int], words: Words, *, coherent: bool) -> None:
    """Writes the shape of a domain; `counts` are the links of pairs, or of accelerators that go through switches."""
    if shape.topology == "switched" and len(counts) > 1:
        told = ", ".join(f"NV{count}" for count in sorted(counts))
        draft.remark(f"pairs differ in NVLinks: {told}; links may be down")
    draft.group(*_PATH, "technology", value="nvlink")
    islands(draft, shape)
    if shape.topology is None and shape.num_accelerators is None:
        draft.group_unknown(*_PATH, "topology", reason=UNEVEN)
    elif shape.topology is None:
        draft.group_unknown(*_PATH, "topology", reason=words.no_topology)
    else:
        draft.group(*_PATH, "topology", value=shape.topology, how=words.how)
    if shape.num_links is not None and 1 <= shape.num_links <= 1024:
        draft.group(*_PATH, "num_links", value=shape.num_links, how=words.how)
    else:
        draft.group_unknown(*_PATH, "num_links", reason=words.no_links)
    if coherent:
        draft.group_unknown(*_PATH, "domain_num_accelerators", reason=words.one_node)
    elif shape.num_accelerators is None:
        draft.group_unknown(*_PATH, "domain_num_accelerators", reason=UNEVEN)
    else:
        draft.group(*_PATH, "domain_num_accelerators", value=shape.num_accelerators, how=words.joined)


def islands(draft: Draft, shape: Shape) -> None:
    """Remarks which accelerators the links join, where they do not join all of the node."""
    if shape.islands and (len(shape.islands) > 1 or shape.num_accelerators is None):
        told = "; ".join(shown([str(k) for k in sorted(part)]) for part in shape.islands)
        draft.remark(f"links join these accelerators, and others reach each other by another path: {told}")


def none_found(draft: Draft, num_accelerators: int, reason: str) -> None:
    """Writes that no NVLink joins the accelerators."""
    draft.group_unknown(*_PATH, reason=reason)
    if num_accelerators > 1:
        draft.remark("no NVLink between accelerators; they reach each other over PCIe")
