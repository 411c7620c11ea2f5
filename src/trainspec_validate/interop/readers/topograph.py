"""Reads the cluster models of Topograph: switches, blocks of nodes, and accelerator domains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._hostlist import MAX_NAMES, expand
from trainspec_validate.interop.readers._sheet import Sheet, as_label, load_values, plain_text
from trainspec_validate.interop.readers._switch_tree import Switch, put_domains, put_tree

NAME = "topograph-model"
_SWITCHES = re.compile(r"^switches:", re.MULTILINE)
_BLOCKS = re.compile(r"^blocks:", re.MULTILINE)
_DOMAIN_SUFFIX = "/domain"


def looks_like(text: ForeignText) -> bool:
    """Whether the text has the two sections of a model at its outermost level."""
    return bool(_SWITCHES.search(text.text) and _BLOCKS.search(text.text))


def read(text: ForeignText) -> Fragment:
    """Nodes, tiers and accelerator domains of a model. Format: NVIDIA/topograph@e2b62507:tests/models.

    Raises:
        ForeignFormatError: the text is no model, or a list of names is malformed.
    """
    data = load_values(text, "model of Topograph")
    listed, blocks = (data.get("switches"), data.get("blocks")) if isinstance(data, dict) else (None, None)
    if not isinstance(listed, dict) or not isinstance(blocks, list):
        raise ForeignFormatError("a model has a mapping `switches` and a list `blocks`", 1)
    sheet = Sheet()
    left, partial = MAX_NAMES, 0
    nodes, domains = dict[str, list[str]](), dict[str, list[str]]()
    for block in blocks:
        if not isinstance(block, dict):
            raise ForeignFormatError(f"a block is no mapping: {plain_text(block)}")
        names = [name for word in _words(block.get("nodes"), "nodes") for name in expand(word, None, left)]
        left -= len(names)
        nodes.setdefault(plain_text(block.get("switch")), []).extend(names)
        domain = _domain(block)
        if domain:
            domains.setdefault(domain, []).extend(names)
        else:
            partial += 1
    put_tree(sheet, _switches(listed, nodes), "the model")
    if domains:
        put_domains(sheet, domains, "accelerator domain of the block")
    if partial and domains:
        sheet.remark(f"{partial} of {len(data['blocks'])} blocks name no accelerator domain")
    sheet.tell_unread("the model", data, read=("switches", "blocks"))
    sheet.tell_unread("switches", *(entry for entry in listed.values() if entry), read=("switches", "name"))
    sheet.tell_unread("blocks", *blocks, read=("switch", "nodes", "name", "annotations"))
    sheet.unknown(
        ("node_groups", 0, "scale_up", "domain_num_accelerators"),
        "the model counts nodes of a domain, not accelerators",
    )
    return sheet.fragment(NAME, text)


def _switches(listed: Mapping[str, Any], nodes: Mapping[str, list[str]]) -> list[Switch]:
    found = []
    for name, entry in listed.items():
        if entry is not None and not isinstance(entry, dict):
            raise ForeignFormatError(f"switch {plain_text(name)} is no mapping")
        children = tuple(_words((entry or {}).get("switches"), "switches"))
        found.append(Switch(name, children, tuple(nodes.get(name, ()))))
    # Leaves often stand in the blocks only.
    found.extend(Switch(name, (), tuple(below)) for name, below in nodes.items() if name not in listed)
    return found


def _words(value: Any, key: str) -> list[str]:
    if value is None:
        return []
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str | int) and not isinstance(word, bool) for word in words):
        raise ForeignFormatError(f"{key} is no list of names: {plain_text(value)}")
    return [str(word) for word in words]


def _domain(block: Mapping[str, Any]) -> str:
    """The accelerator domain that the annotations of a block name; empty where there is none."""
    annotations = block.get("annotations")
    if not isinstance(annotations, dict):
        return ""
    found = [value for key, value in annotations.items() if str(key).endswith(_DOMAIN_SUFFIX)]
    return as_label(str(found[0])) if found else ""


FORMATS = (Format(NAME, "cluster model of Topograph, YAML", "ClusterProfile", looks_like, read),)
