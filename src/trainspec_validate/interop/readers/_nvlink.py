"""Writes the NVLinks between the accelerators of one node into a draft."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trainspec_validate.interop.readers._draft import Draft
from trainspec_validate.interop.readers._links import Shape

_PATH = ("scale_up",)


@dataclass(frozen=True, slots=True)
class Words:
    """How a source tells of links, and why it may leave a key open."""

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
    if shape.topology is None:
        draft.group_unknown(*_PATH, "topology", reason=words.no_topology)
    else:
        draft.group(*_PATH, "topology", value=shape.topology, how=words.how)
    if shape.num_links is not None and 1 <= shape.num_links <= 1024:
        draft.group(*_PATH, "num_links", value=shape.num_links, how=words.how)
    else:
        draft.group_unknown(*_PATH, "num_links", reason=words.no_links)
    if coherent:
        draft.group_unknown(*_PATH, "domain_num_accelerators", reason=words.one_node)
    else:
        draft.group(*_PATH, "domain_num_accelerators", value=shape.num_accelerators, how=words.joined)


def none_found(draft: Draft, num_accelerators: int, reason: str) -> None:
    """Writes that no NVLink joins the accelerators."""
    draft.group_unknown(*_PATH, reason=reason)
    if num_accelerators > 1:
        draft.remark("no NVLink between accelerators; they reach each other over PCIe")
