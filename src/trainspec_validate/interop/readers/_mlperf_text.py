"""Parses the free texts of MLPerf system descriptions: amounts, accelerators, links, NICs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.model.catalog import links

_AMOUNT = re.compile(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,4})?)\s*(?P<unit>[KMGT]i?B?)", re.IGNORECASE)
_SCALES = {"M": 1e6, "G": 1e9, "T": 1e12, "MI": 2.0**20, "GI": 2.0**30, "TI": 2.0**40}

_VENDORS = (("nvidia", "nvidia"), ("amd", "amd"), ("intel", "intel"), ("tpu", "google"), ("h100", "nvidia"))


def memory_bytes(text: str) -> float | None:
    """Bytes of one amount such as `80 GB`, `81559 MiB`, `141G` or `2.25TiB`; None for anything more or else.

    >>> memory_bytes("81559 MiB"), memory_bytes("2 TB"), memory_bytes("2x 24 GB"), memory_bytes("2T GB")
    (85520809984.0, 2000000000000.0, None, None)
    """
    match = _AMOUNT.fullmatch(text.strip())
    scale = _SCALES.get(match["unit"].upper().removesuffix("B")) if match else None
    return float(match["number"]) * scale if match and scale else None


def vendor(text: str) -> str | None:
    """Maker of an accelerator as submitters write it.

    >>> vendor("AMD Instinct MI350X")
    'amd'
    """
    plain = text.casefold()
    return next((name for word, name in _VENDORS if word in plain), None)


@dataclass(frozen=True, slots=True)
class Interconnect:
    """Facts in a text about links between accelerators."""

    technology: str | None
    generation: str | None
    switched: bool
    rate_bytes_per_second: float | None
    """The figure as it is, whatever its direction."""
    num_links: int | None = None
    """Links of one accelerator."""


_TECHNOLOGIES = (("nvlink", "nvlink"), ("xgmi", "xgmi"), ("infinity fabric", "xgmi"), ("pcie", "pcie"))
_GENERATION = re.compile(r"nvlink (?:gen ?)?(?P<a>[0-9])(?:\.0)?\b|\b(?P<b>[0-9])(?:st|nd|rd|th)[- ]gen nvlink")
_LINKS = re.compile(r"\b(?P<count>[0-9]{1,2}) ?x (?:[0-9](?:st|nd|rd|th)[- ]gen )?nvlinks?\b(?! ?(?:bridge|switch))")
_RATE = re.compile(r"(?P<number>[0-9]{1,5}(?:\.[0-9]{1,3})?) ?(?P<unit>[gt])b ?/ ?s(?:ec)?\b")


def interconnect(text: str) -> Interconnect:
    """Technology, generation, figure and number of links of a text about scale-up links.

    >>> interconnect("18x NVLINK Gen4 900 GB/s + NVSWITCH Gen3")
    Interconnect(technology='nvlink', generation='4', switched=True, rate_bytes_per_second=900000000000.0, num_links=18)
    """
    plain = " ".join(text.casefold().split())[:300]
    technology = next((name for word, name in _TECHNOLOGIES if word in plain), None)
    generation = _GENERATION.search(plain) if technology == "nvlink" else None
    counts = {int(match["count"]) for match in _LINKS.finditer(plain)} - {0}
    rates = [float(m["number"]) * (1e9 if m["unit"] == "g" else 1e12) for m in _RATE.finditer(plain)]
    return Interconnect(
        technology,
        (generation["a"] or generation["b"]) if generation else None,
        "switch" in plain,
        rates[0] if len(rates) == 1 else None,
        counts.pop() if len(counts) == 1 else None,
    )


@dataclass(frozen=True, slots=True)
class NicText:
    """One kind of interface as a text describes it; None where it does not say."""

    text: str
    role: str | None
    num_per_node: int | None
    technology: str | None
    generation: str | None
    rate_bytes_per_second: float | None


_ROLE = re.compile(r"(?P<role>storage ?[&+] ?\w+|storage|compute|management)\s*:", re.IGNORECASE)
_COUNT = re.compile(r"\b(?P<count>[0-9]{1,3}) ?x\b", re.IGNORECASE)
_NIC_RATE = re.compile(r"\b(?P<number>[0-9]{1,4}) ?g(?:ig)?(?:b ?/ ?s(?:ec)?|bps|be|b|bit/s)\b", re.IGNORECASE)
_NIC_GENERATION = re.compile(r"\b(?P<name>xdr|ndr200|ndr|hdr100|hdr|edr|fdr)\b", re.IGNORECASE)
_MAX_PARTS = 12


def nics(text: str) -> list[NicText]:
    """The interfaces that a text lists, each with what is said of it.

    >>> [(n.role, n.num_per_node, n.technology, n.generation, n.rate_bytes_per_second)
    ...  for n in nics("Compute: 8x ConnectX-7 IB NDR 400Gb/s, Management: 100Gb/s Ethernet NIC")]
    [('compute', 8, 'infiniband', 'ndr', 50000000000.0), ('management', None, 'ethernet', None, 12500000000.0)]
    """
    return [_nic(part, role) for part, role in _nic_parts(text[:600])][:_MAX_PARTS]


def _nic_parts(text: str) -> Iterator[tuple[str, str | None]]:
    marks = list(_ROLE.finditer(text))
    if not marks:
        yield from ((part.strip(), None) for part in re.split(r"[,;+]", text) if part.strip())
        return
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        end = following.start() if following else len(text)
        yield text[mark.end() : end].strip(" ,;"), mark["role"].casefold()


def _nic(text: str, role: str | None) -> NicText:
    plain = text.casefold()
    # `BF3`, `IB` and `Ethernet` tell the link layer; a name that tells both ("100GbE InfiniBand") tells none.
    infiniband = bool(re.search(r"\bib\b|infiniband", plain))
    ethernet = bool(re.search(r"ethernet|gbe\b|roce", plain))
    counts, rates = _COUNT.findall(text), {int(number) for number in _NIC_RATE.findall(text)}
    generation = _NIC_GENERATION.search(text)
    technology = None if infiniband == ethernet else "infiniband" if infiniband else "ethernet"
    rate = next(iter(rates)) * 1e9 / 8 if len(rates) == 1 else None
    if rate is None and technology == "infiniband" and generation and not rates:
        rate = links().nic_rate_bytes_per_second.get((technology, generation["name"].casefold()))
    return NicText(
        text,
        role,
        int(counts[0]) if len(counts) == 1 and int(counts[0]) else None,
        technology,
        generation["name"].casefold() if generation else None,
        rate,
    )
