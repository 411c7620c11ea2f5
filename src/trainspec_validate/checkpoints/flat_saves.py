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
    r"[0-9]{1,7}[-_]of[-_][0-9]{1,7}|(?:(?<=^)|(?<=[-_.]))(?:(?:global|local|mp|tp|pp|dp|world)[-_])?(?:rank|shard|size)[-_]?[0-9]{1,7}",
    re.ASCII,
)
_SLOT = re.compile(r"(?:^|[-_.])(?P<word>latest|last|best|final)(?=[-_.]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![0-9.])[0-9]{1,12}(?![0-9.])", re.ASCII)
_WORD = re.compile(r"[a-z]+")
_MODELS = frozenset({"model", "weights", "net"})
_GENERATORS = frozenset({"g", "gen", "generator", "netg"})
_NETWORKS = (
    (_GENERATORS, frozenset({"d", "disc", "discriminator", "netd"})),
    (frozenset({"encoder"}), frozenset({"decoder"})),
    (frozenset({"actor"}), frozenset({"critic"})),
)
"""Words of the names of two networks that are trained together."""
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


def pairs_side_by_side(names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each save by the first of them, where names with the same words are at each step; empty otherwise.

    One save may lack a file. The content of the files decides whether they are parts: those of two runs hold the same
    tensors.

    >>> pairs_side_by_side(["G_10.pth", "D_10.pth", "G_20.pth", "D_20.pth", "G_30.pth"])["G_10.pth"]
    ['D_10.pth', 'G_10.pth']
    >>> pairs_side_by_side(["layer_10_a.pt", "layer_10_b.pt", "layer_11_a.pt", "layer_11_b.pt"])
    {}
    """
    found: dict[Place, list[_Name]] = {}
    for one in (_parsed(name) for name in sorted(names) if name.lower().endswith(_STATE)):
        if not one.place or one.has_rank:
            return {}
        found.setdefault(one.place, []).append(one)
    words = {one.words for files in found.values() for one in files}
    cut = [files for files in found.values() if len(files) < len(words)]
    numbered = [place for place in found if place[0][1]]
    are_bare = any(place[0][0] in {"", "ep"} for place in numbered)
    numbers = [place[0][1][-1] for place in numbered]
    if len(words) < 2 or len(found) - len(cut) < 2 or len(cut) > 1 or len(numbered) < 2:
        return {}
    if are_bare and max(numbers) - min(numbers) < len(numbers):
        return {}  # those of ranks or layers
    if any(len({one.words for one in files}) < len(files) for files in found.values()):
        return {}
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


def are_two_networks(names: Iterable[str]) -> bool:
    """Whether names say that files are parts of one model, such as a generator and a discriminator.

    >>> are_two_networks(["G_10.pth", "D_10.pth"]), are_two_networks(["a_10.pth", "b_10.pth"])
    (True, False)
    """
    words = [_parsed(name).words for name in names]
    return any(any(each & part for each in words) and any(each & other for each in words) for part, other in _NETWORKS)


def _first(files: list[_Name]) -> str:
    """The file that represents a save: that of a model, and of the first rank."""
    order = (_MODELS, _GENERATORS)
    return min(files, key=lambda one: (*map(one.words.isdisjoint, order), len(one.name), one.name)).name


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
