"""Completes a cluster profile that describes one node or part of one, so that its graph can be drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.load import LoadError, load_file
from trainspec_validate.documents.types import ClusterProfile, SchemaMismatch, read

_KIND = "ClusterProfile"
_UNNAMED = "unnamed"
_ABSENT = re.compile(r"node_groups\.[0-9]{1,6}\.(?P<part>scale_up|nics)")
_WORDS = {"scale_up": "scale-up domain", "nics": "network interface"}


def partial_profile(path: str) -> tuple[ClusterProfile, list[str]] | None:
    """The profile of a file that lacks required keys, with what was assumed for them; None where it is no such file.

    Raises:
        Failure: the file describes no accelerators, or more is wrong than absent keys.
    """
    try:
        data = load_file(Path(path)).data
    except LoadError:
        return None
    if not isinstance(data, dict) or data.get("kind") != _KIND:
        return None
    groups = data.get("node_groups")
    counted = isinstance(groups, list) and groups and all(_counted(group) for group in groups)
    if not counted:
        what = "node_groups with num_accelerators_per_node"
        raise Failure(f"{path}: a graph needs {what}, which the profile lacks; see: trainspec-validate {path}")
    completed, assumed = _completed(data)
    try:
        profile = read(_KIND, completed)
    except SchemaMismatch as error:
        raise Failure(f"{path}: no graph: {error}; see: trainspec-validate {path}") from error
    return cast("ClusterProfile", profile), assumed


def _counted(group: Any) -> bool:
    count = group.get("num_accelerators_per_node") if isinstance(group, dict) else None
    return isinstance(count, int) and not isinstance(count, bool) and count >= 1


def _completed(data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The profile with one node where none are counted, and without interfaces of unknown rate."""
    assumed: list[str] = []
    groups = [_group(group, f"node_groups.{index}", assumed) for index, group in enumerate(data["node_groups"])]
    unknowns = data.get("unknowns")
    places = [place for place in unknowns if isinstance(place, str)] if isinstance(unknowns, list) else []
    assumed.extend(
        f"no {_WORDS[found['part']]}: the profile lists {place} as unknown"
        for place in places
        if (found := _ABSENT.fullmatch(place))
    )
    counted = [group for group in groups if isinstance(group["num_nodes"], int)]
    totals = {
        "num_nodes": max(1, sum(group["num_nodes"] for group in counted)),
        "num_accelerators": max(1, sum(group["num_nodes"] * group["num_accelerators_per_node"] for group in counted)),
    }
    named = {"metadata": {"name": _UNNAMED}}
    return {**named, **totals, **data, "node_groups": groups}, assumed


def _group(group: dict[str, Any], place: str, assumed: list[str]) -> dict[str, Any]:
    found = dict(group)
    if "num_nodes" not in found:
        found["num_nodes"] = 1
        assumed.append(f"one node: the profile lacks {place}.num_nodes")
    accelerator = found.get("accelerator", {})
    if isinstance(accelerator, dict) and "model" not in accelerator:
        found["accelerator"] = {"model": _UNNAMED, **accelerator}
        assumed.append(f"one rank for each accelerator: the profile lacks {place}.accelerator.model")
    scale_up = found.get("scale_up")
    if isinstance(scale_up, dict) and "topology" not in scale_up:
        found["scale_up"] = {"topology": "other", **scale_up}
        assumed.append(f"a domain of no known shape: the profile lacks {place}.scale_up.topology")
    nics = found.get("nics")
    if isinstance(nics, list):
        rated = [nic for nic in nics if not isinstance(nic, dict) or "rate_bytes_per_second" in nic]
        if len(rated) < len(nics):
            found["nics"] = rated
            assumed.append(f"no interface of which the profile lacks {place}.nics.*.rate_bytes_per_second")
    return found
