"""Finds the accelerators of the catalog that a product name can mean, by the words of the name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from trainspec_validate.model.catalog import CatalogAccelerator, accelerators

_MEMORY_TOLERANCE = 0.1
_LONGEST = 200
_FORMS = frozenset({"sxm", "pcie", "nvl", "oam", "server"})
_NOISE = frozenset(
    {
        # makers, brands and generations that every product of the name has
        *("nvidia", "amd", "intel", "google", "aws", "huawei", "graphcore", "tesla", "instinct", "geforce", "radeon"),
        *("grace", "hopper", "gracehopper", "superchip", "blackwell", "ultra", "cloud"),
        # what it is
        *("tensor", "core", "gpu", "gpus", "ai", "accelerator", "accelerators", "chip", "graphics", "ipu", "edition"),
        # packaging, cooling, partition modes of a whole device, virtual functions and boards
        *("mcm", "ac", "mba", "vf", "hf", "dlc", "cts", "ls", "nps1", "spx"),
    }
)
"""Words that leave open which product it is, and make no other of it."""
_MEMORY_KINDS = {
    "nvidia-a100-sxm-40gb": "hbm2",
    "nvidia-a100-sxm-80gb": "hbm2e",
    "nvidia-a100-pcie-40gb": "hbm2",
    "nvidia-a100-pcie-80gb": "hbm2e",
    "nvidia-h100-sxm-80gb": "hbm3",
    "nvidia-h100-pcie-80gb": "hbm2e",
    "nvidia-h100-nvl-94gb": "hbm3",
    "nvidia-gh200-96gb": "hbm3",
    "nvidia-gh200-144gb": "hbm3e",
}
"""Memory technology where it parts products of one name. Source: the data sheets of the catalog."""
_ONE_FORM = frozenset({"b200", "b300"})
"""Chips that are sold in the catalog's form only."""
_DRIVERS_FORM = {"h200": "sxm", "h800": "sxm"}
"""The form that NVIDIA's driver leaves out of the name."""
_SEVERAL_MEMORIES = frozenset({"v100"})
"""Chips that are sold with more memory sizes than the catalog has."""
_HOST_MEMORY = {480: 96, 120: 96, 624: 144}
"""What NVIDIA's driver calls Grace Hopper by, the memory of its host, and the memory of the accelerator in GB."""
_SYNONYMS = {"trillium": "v6e", "ironwood": "v7x", "se": "server", "v5litepod": "v5e"}
_MEMORY = re.compile(r"([0-9]{1,4})(?:g|gb|gib)")
_BEST_KNOWN = {
    "v100": "nvidia-v100-sxm2-32gb",
    "a100": "nvidia-a100-sxm-80gb",
    "h100": "nvidia-h100-sxm-80gb",
    "h200": "nvidia-h200-sxm-141gb",
}
"""What a product name alone means where it is sold in several forms."""
_MODEL = re.compile(r"[a-z]{1,8}[0-9]{1,5}[a-z]{0,3}|[0-9]{3,4}[a-z]{0,3}")
"""A word of a name that parts products: letters with a number, or a number such as 4090."""
_SHORTEST_START = 4
"""Letters of a word that is completed to the names that begin so."""
_IGNORED = re.compile(r"nvl[0-9]+|hbm[0-9]?e?|[0-9]{2,4}w|0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Meant:
    """Meaning of a name: one row of the catalog, or those that it leaves open."""

    entry: CatalogAccelerator | None = None
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a name by what they say."""

    chip: frozenset[str]
    forms: frozenset[str]
    memories: frozenset[int]
    kinds: frozenset[str]


def meant_by(name: str, memory_bytes: float | None = None, *, driver: bool = False) -> Meant:
    """Accelerator that a product name means; a reported memory must fit the catalog within 10 %.

    `driver` says that the name is that of NVIDIA's driver, which leaves out a form.

    >>> meant_by("NVIDIA A100 - PCIe - 80 GB").entry.name, meant_by("H100 NVL Tensor Core GPU (PCIe)").entry.name
    ('nvidia-a100-pcie-80gb', 'nvidia-h100-nvl-94gb')
    >>> meant_by("NVIDIA A100-SXM4").alternatives
    ('nvidia-a100-sxm-40gb', 'nvidia-a100-sxm-80gb')
    """
    words = _words_of(name)
    of_chip = [entry for chip, entry in _chips() if chip == words.chip]
    fitting = [entry for entry in of_chip if _fits(entry, words, memory_bytes)]
    decided = [entry for entry in fitting if _is_decided(entry, words, memory_bytes, driver=driver)]
    if len(decided) == 1:
        return Meant(decided[0])
    return Meant(alternatives=tuple(entry.name for entry in decided or fitting))


def is_same_product(one: str, other: str) -> bool | None:
    """Whether two names mean one product; None where they leave it open, such as a family, or a name without a model.

    >>> is_same_product("nvidia-v100-sxm2-16gb", "Tesla V100-SXM2-16GB"), is_same_product("amd-mi250x-128gb", "MI200")
    (True, None)
    >>> is_same_product("nvidia-a100-sxm-40gb", "Tesla V100-SXM2-16GB"), is_same_product("h100", "NVIDIA H100 PCIe")
    (False, True)
    """
    first, second = meant_by(one).entry, meant_by(other).entry
    if one == other or (first is not None and first == second):
        return True
    if first is not None and second is not None:
        return False
    own, others = _words_of(one), _words_of(other)
    ours, theirs = (frozenset(filter(_MODEL.fullmatch, words.chip)) for words in (own, others))
    if not ours or not theirs or "device" in own.chip | others.chip:
        return None
    if own.chip != others.chip:
        is_open = ours & theirs or any(_is_family(a, b) or _is_family(b, a) for a in ours for b in theirs)
        return None if is_open else False
    if own.forms and others.forms and not own.forms & others.forms:
        return False
    sizes = [(a, b) for a in own.memories for b in others.memories]
    return not sizes or any(abs(a / b - 1) <= _MEMORY_TOLERANCE for a, b in sizes)


def _is_family(name: str, member: str) -> bool:
    """Whether a name is that of a family of AMD, such as MI200 of MI210, MI250 and MI250X."""
    family = re.fullmatch(r"(mi[0-9])00", name)
    return family is not None and member.startswith(family[1])


def accelerators_named(words: str) -> tuple[CatalogAccelerator, ...]:
    """The accelerators that a name as people, drivers and submissions write it can mean; the best-known form alone.

    >>> [entry.name for entry in accelerators_named("H100")]
    ['nvidia-h100-sxm-80gb']
    >>> [entry.name for entry in accelerators_named("A100 PCIe")]
    ['nvidia-a100-pcie-40gb', 'nvidia-a100-pcie-80gb']
    >>> [entry.name for entry in accelerators_named("NVIDIA H100 80GB HBM3")]
    ['nvidia-h100-sxm-80gb']
    >>> [entry.name for entry in accelerators_named("mi300")]
    ['amd-mi300a-128gb', 'amd-mi300x-192gb']
    """
    known = accelerators()
    wanted = _plain_words(words)
    if not wanted:
        return ()
    alone = _BEST_KNOWN.get("-".join(wanted - {entry.vendor for entry in known.values()}))
    if alone:
        return (known[alone],)
    found = tuple(entry for entry in known.values() if wanted <= _plain_words(f"{entry.name} {entry.title}"))
    return found or _meant(words) or _beginning(wanted)


def _meant(name: str) -> tuple[CatalogAccelerator, ...]:
    meant = meant_by(name)
    return (meant.entry,) if meant.entry else tuple(accelerators()[other] for other in meant.alternatives)


def _beginning(wanted: frozenset[str]) -> tuple[CatalogAccelerator, ...]:
    """The accelerators of which each word of a name begins one."""
    if max(map(len, wanted)) < _SHORTEST_START:
        return ()
    names = {entry.name: _plain_words(f"{entry.name} {entry.title}") for entry in accelerators().values()}
    return tuple(
        accelerators()[name]
        for name, own in names.items()
        if all(any(word.startswith(start) for word in own) for start in wanted)
    )


def _plain_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text[:_LONGEST].casefold()))


def fits_memory(entry: CatalogAccelerator, memory_bytes: float) -> bool:
    """Whether a package, or one of its dies, has about this much memory."""
    sizes = {entry.memory_bytes, entry.memory_bytes / entry.num_dies}
    return any(abs(memory_bytes / size - 1) <= _MEMORY_TOLERANCE for size in sizes)


def _words_of(name: str) -> _Words:
    plain = re.sub(r"\((?:r|tm)\)|[®™]", " ", name.casefold()[:_LONGEST])
    inner = re.search(r"\[([^\]]+)\]", plain)  # as lspci writes it: GA100 [A100 SXM4 80GB]
    plain = inner[1] if inner else plain
    plain = re.sub(r"([0-9]) +(gi?b?)\b", r"\1\2", plain)
    plain = re.sub(r"\b(gaudi|trainium|v) +([0-9])", r"\1\2", plain)
    plain = re.sub(r"\bsku\b.*", "", re.sub(r"\bv5e?[ -]?lite\b", "v5e", plain))
    plain = re.sub(r"\btpu[ -]?v?7x?\b", "tpu v7x", plain)
    plain = re.sub(r"\b(sxm[24-6]?|mi[0-9]{3}[ax])(?=[0-9]{2,3}gb)", r"\1 ", plain)
    words = {_SYNONYMS.get(word, word) for word in re.findall(r"[a-z0-9]+", plain)}
    words = {"sxm" if re.fullmatch(r"sxm[24-6]", word) else word for word in words}
    sizes = {int(found[1]) for word in words if (found := _MEMORY.fullmatch(word))}
    memories = {_HOST_MEMORY.get(size, size) if "gh200" in words else size for size in sizes}
    kinds = frozenset(word for word in words if re.fullmatch(r"hbm[0-9]?e?", word))
    others = {word for word in words - _NOISE - _FORMS if not (_MEMORY.fullmatch(word) or _IGNORED.fullmatch(word))}
    return _Words(frozenset(others), frozenset(words & _FORMS), frozenset(memories), kinds)


@cache
def _chips() -> tuple[tuple[frozenset[str], CatalogAccelerator], ...]:
    """The words of a name that part the rows of the catalog, without form and memory."""
    return tuple((_words_of(entry.name).chip, entry) for entry in accelerators().values())


def _forms(entry: CatalogAccelerator) -> Iterator[str]:
    """The forms that a name of the entry may say."""
    own = _words_of(entry.name).forms
    if own:
        yield from own
        if "sxm" not in own:
            yield "pcie"
    elif entry.scale_up.get("technology") in {"xgmi", "gaudi-roce"}:
        yield "oam"
    else:
        yield "sxm" if entry.scale_up else "pcie"


def _fits(entry: CatalogAccelerator, words: _Words, memory_bytes: float | None) -> bool:
    kind = _MEMORY_KINDS.get(entry.name)
    if kind and words.kinds & {"hbm2", "hbm2e", "hbm3", "hbm3e"} and kind not in words.kinds:
        return False
    sizes = [size * 1e9 for size in words.memories] + ([] if memory_bytes is None else [memory_bytes])
    return words.forms <= set(_forms(entry)) and all(fits_memory(entry, size) for size in sizes)


def _is_decided(entry: CatalogAccelerator, words: _Words, memory_bytes: float | None, *, driver: bool) -> bool:
    """Whether a name says everything that parts the entry from other products, in the catalog or not."""
    own, sizes = _words_of(entry.name).forms, bool(words.memories) or memory_bytes is not None
    if words.chip & _SEVERAL_MEMORIES and not sizes:
        return False
    if not own or own & words.forms or words.chip & _ONE_FORM:
        return True
    if driver and own & {_DRIVERS_FORM.get(chip) for chip in words.chip}:
        return True
    return sizes and words.kinds == {_MEMORY_KINDS.get(entry.name)}
