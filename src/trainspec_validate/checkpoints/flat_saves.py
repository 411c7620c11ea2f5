"""Groups files of several saves in one directory, where each save is files of several ranks or parts.

Composer writes `ep1-ba100-rank0.pt` and one for each further rank, and nanochat `model_000100.pt`, `meta_000100.json`
and `optim_000100_rank0.pt`. Numbers of ranks are set apart by their word; the number that is left is that of the save.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.save_names import WORDS, counts_in

_STATE = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors")
_FURTHER = ".json"
_RANK = re.compile(
    r"\d{1,7}[-_]of[-_]\d{1,7}|(?:(?<=^)|(?<=[-_.]))(?:(?:global|local|mp|tp|pp|dp|world)[-_])?(?:rank|shard|size)[-_]?\d{1,7}",
    re.ASCII,
)
_SLOT = re.compile(r"(?:^|[-_.])(?P<word>latest|last|best|final)(?=[-_.]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\d.])\d{1,12}(?![\d.])", re.ASCII)
_WORD = re.compile(r"[a-z]+")
_MODELS = frozenset({"model", "weights", "net"})
_PARTS = frozenset(
    {
        *(
            *_MODELS,
            "optim",
            "optimizer",
            "opt",
            "meta",
            "metadata",
            "scheduler",
            "lr",
            "rng",
            "random",
            "state",
            "states",
        ),
        *("extra", "ema", "train", "trainer", "data", "loader", "dataloader", "args", "scaler"),
    }
)
"""Words of the names of parts of one save."""
Place = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Name:
    name: str
    place: Place
    """What it counts: the files of one save have the same."""
    words: frozenset[str]
    """Words that are left of it."""
    has_rank: bool


def saves_side_by_side(names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each save by the first of them; empty where the names do not show several saves of several files.

    >>> saves_side_by_side(["ep1-ba8-rank0.pt", "ep1-ba8-rank1.pt", "ep1-ba9-rank0.pt", "ep1-ba9-rank1.pt"]).keys()
    dict_keys(['ep1-ba8-rank0.pt', 'ep1-ba9-rank0.pt'])
    >>> saves_side_by_side(["model_1.pt", "model_2.pt", "step_5.pt", "step_9.pt"])
    {}
    """
    listed = sorted(names)
    state = [_parsed(name) for name in listed if name.lower().endswith(_STATE)]
    if any(not one.place for one in state) or not _are_saves(state):
        return {}
    places = {one.place for one in state}
    further = [one for one in map(_parsed, (name for name in listed if name.endswith(_FURTHER))) if one.place in places]
    found: dict[Place, list[_Name]] = {}
    for one in (*state, *further):
        found.setdefault(one.place, []).append(one)
    return {_first(files): [one.name for one in files] for files in found.values()}


def form_of_part(name: str) -> str:
    """A name without the number of its save, and with that of its rank.

    >>> form_of_part("optim_000100_rank1.pt")
    'optim_#_rank1.pt'
    """
    kept = [match.span() for match in _RANK.finditer(name)]
    parts = [0, *(place for span in kept for place in span), len(name)]
    pieces = (name[start:end] for start, end in pairwise(parts))
    return "".join(piece if place % 2 else form_of(piece) for place, piece in enumerate(pieces))


def _first(files: list[_Name]) -> str:
    """The file that represents a save: that of a model, and of the first rank."""
    return min(files, key=lambda one: (_MODELS.isdisjoint(one.words), len(one.name), one.name)).name


def _parsed(name: str) -> _Name:
    stem = name.lower().rpartition(".")[0]
    rest = _RANK.sub("", stem)
    counts = {word: number for word, number in counts_in(rest).items() if word in WORDS}
    numbers = _NUMBER.findall(rest)
    slot = _SLOT.search(rest)
    place: Place = tuple(sorted(counts.items()))
    if not place and len(numbers) == 1:
        place = (("", (int(numbers[0]),)),)
    elif not place and not numbers and slot:
        place = ((slot["word"], ()),)
    return _Name(name, place, frozenset(_WORD.findall(rest)).difference(WORDS, ("global",)), rest != stem)


def _are_saves(files: list[_Name]) -> bool:
    """Whether there are several saves, and several files of one."""
    bare = sorted({counts[0][1][0] for one in files if (counts := one.place)[0][0] == "" and counts[0][1]})
    counted = {one.place for one in files if one.place[0][1]}
    if len(counted) < 2 or (bare and bare[-1] - bare[0] < len(bare) and bare[0] < 2):
        return False  # numbers from 0 or 1 on may be those of ranks
    if len({one.place for one in files}) == len(files):
        return False
    are_parts = all(one.words <= _PARTS for one in files) and any(one.words & _MODELS for one in files)
    return all(one.has_rank for one in files) or are_parts
