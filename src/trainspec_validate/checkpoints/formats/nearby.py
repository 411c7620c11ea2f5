"""Recognises checkpoints that libraries keep near the nodes: NVRx, DLRover and VELOC."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from trainspec_validate.checkpoints import regions
from trainspec_validate.checkpoints.view import Checkpoint

# https://github.com/NVIDIA/nvidia-resiliency-ext/blob/d8686d9/src/nvidia_resiliency_ext/checkpointing/local/
# ckpt_managers/local_manager.py, _filename_from_template
_LOCAL = re.compile(r"^iter_(?P<version>[0-9]{7})_(?P<rank>[0-9]{1,9})_local(?P<dirty>\.dirty)?\.pt$")
# https://github.com/intelligent-machine-learning/dlrover, dlrover/python/elastic_agent/torch/ckpt_saver.py
_STAGE = "._dlrover_ckpt_stage"
_TRACKER = "dlrover_latest.txt"
_EARLIER = "resume from an earlier checkpoint"
_SHOWN = 5


def read(checkpoint: Checkpoint) -> None:
    """Add what names and headers of these libraries say."""
    _read_nvrx(checkpoint)
    _read_dlrover(checkpoint)
    _read_veloc(checkpoint)


def _read_nvrx(checkpoint: Checkpoint) -> None:
    """A file of each rank, and copies of those of others; the word dirty stands in the name while it is written."""
    versions: dict[tuple[str, int], set[int]] = {}
    for path in checkpoint.files:
        folder, _, name = path.rpartition("/")
        match = _LOCAL.match(name)
        if match is None:
            continue
        ranks = versions.setdefault((folder, int(match["version"])), set())
        if match["dirty"]:
            checkpoint.report("residue", path, "the file still has the name that it is written under", _EARLIER)
        else:
            ranks.add(int(match["rank"]))
    if versions:
        checkpoint.formats.append("NVRx local checkpoint")
        _check_ranks(checkpoint, versions)


def _check_ranks(checkpoint: Checkpoint, versions: Mapping[tuple[str, int], set[int]]) -> None:
    """The newest version in a directory holds the ranks of those before it."""
    checkpoint.examined.add("shards")
    newest: dict[str, int] = {}
    for folder, version in versions:
        newest[folder] = max(newest.get(folder, 0), version)
    for (folder, version), ranks in versions.items():
        absent = sorted(ranks - versions[folder, newest[folder]])
        if absent:
            shown = ", ".join(map(str, absent[:_SHOWN])) + (", …" if len(absent) > _SHOWN else "")
            words = f"version {newest[folder]:,} lacks {len(absent):,} of the ranks of version {version:,}: {shown}"
            checkpoint.report("shards", folder, words, f"the save was interrupted: {_EARLIER}")


def _read_dlrover(checkpoint: Checkpoint) -> None:
    """The saver removes what ranks have told when it commits, and then names the step in the tracker file."""
    beside = checkpoint.root.parent
    if checkpoint.is_bundle or not ((beside / _TRACKER).is_file() or (beside / _STAGE).is_dir()):
        return
    if checkpoint.step is None or not checkpoint.formats:
        return
    checkpoint.formats.append("DLRover flash checkpoint")
    checkpoint.examined.add("mark")
    done = beside / _STAGE / f"{checkpoint.step}.done"
    if done.is_dir():
        with os.scandir(done) as entries:
            number = sum(1 for _ in entries)
        words = f"{_STAGE}/{done.name} is still there, with the word of {number:,} ranks: the save was not committed"
        checkpoint.report("mark", "", words, _EARLIER)


def _read_veloc(checkpoint: Checkpoint) -> None:
    """A file of each rank and version, whose header says how long it is."""
    found = {path: match for path in checkpoint.files if (match := regions.NAME.match(path.rpartition("/")[2]))}
    known = {match["name"] for path, match in found.items() if regions.is_whole(checkpoint.root / path)}
    if not known:
        return
    checkpoint.formats.append("VELOC")
    checkpoint.examined.add("files")
    versions: dict[tuple[str, int], set[int]] = {}
    for path, match in found.items():
        if match["name"] not in known:
            continue
        versions.setdefault((path.rpartition("/")[0], int(match["version"])), set()).add(int(match["rank"]))
        wanted, size = regions.wanted_bytes(checkpoint.root / path), checkpoint.files[path].size_bytes
        if wanted != size:
            asked = "is missing or damaged" if wanted is None else f"asks for {wanted:,}"
            checkpoint.report("files", path, f"the file has {size:,} bytes, and its header {asked}", _EARLIER)
    _check_ranks(checkpoint, versions)
