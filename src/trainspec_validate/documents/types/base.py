"""Defines what every document shares: the strict record, quantities with bounds, and references."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group of named fields; unknown keys are errors and values never change after reading."""


def _quantity(unit: str, low: float, high: float) -> Meta:
    return Meta(ge=low, le=high, extra_json_schema={"x-unit": unit})


# Bounds are physical plausibility, several times beyond anything built: they exist to catch a slipped prefix or unit.
Count = Annotated[int, Meta(ge=1, le=100_000_000)]
CountOrZero = Annotated[int, Meta(ge=0, le=100_000_000)]
SequenceCount = Annotated[int, Meta(ge=1, le=10_000_000_000)]
"""Sequences, or images, of a step: 131,072 accelerators with 8,192 each take 1.1e9."""
StepTokens = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
"""Tokens of a step: a job on 50,944 TPU v5e took 417e6 (AI-Hypercomputer/maxtext:MaxText/configs/v5e/README.md), and
131,072 accelerators with 1e6 each take 131e9."""
Degree = Annotated[int, Meta(ge=1, le=1_000_000)]
Parameters = Annotated[float, _quantity("1", 1e3, 1e16)]
Tokens = Annotated[float, _quantity("{token}", 0, 1e15)]
Bytes = Annotated[float, _quantity("By", 0, 1e21)]
MemoryBytes = Annotated[float, _quantity("By", 1e8, 1e14)]
StorageBytes = Annotated[float, _quantity("By", 1e8, 1e21)]
BytesPerSecond = Annotated[float, _quantity("By/s", 1e5, 1e18)]
LinkBytesPerSecond = Annotated[float, _quantity("By/s", 1e7, 5e13)]
FlopsPerSecond = Annotated[float, _quantity("{flop}/s", 1e9, 1e23)]
MeasuredBytesPerSecond = Annotated[float, _quantity("By/s", 0, 1e15)]
MeasuredFlopsPerSecond = Annotated[float, _quantity("{flop}/s", 0, 1e24)]
AcceleratorFlopsPerSecond = Annotated[float, _quantity("{flop}/s", 1e12, 5e17)]
Seconds = Annotated[float, _quantity("s", 0, 1e9)]
PositiveSeconds = Annotated[float, _quantity("s", 1e-9, 1e9)]
LatencySeconds = Annotated[float, _quantity("s", 1e-9, 0.1)]
Watts = Annotated[float, _quantity("W", 1, 1e11)]
Fraction = Annotated[float, _quantity("1", 0, 1)]
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
Text = Annotated[str, Meta(min_length=1, max_length=4000)]
KeyPath = Annotated[str, Meta(max_length=400, pattern=r"^[a-z][A-Za-z0-9_]*([.][A-Za-z0-9_-]+)*$")]
"""Keys from the root of a document, and numbers of list entries from 0, such as `node_groups.0.host.num_cores`."""
Extensions = dict[
    Annotated[str, Meta(pattern=r"^[a-z0-9]+(\.[a-z0-9-]+)+$", description="Reverse domain name of the owner.")],
    Any,
]


def _day(centuries: str) -> str:
    """A pattern of the days that the calendar has, leap years heeded, for a schema to refuse all others."""
    long = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    short = "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])"
    leap = f"(({centuries})(0[48]|[2468][048]|[13579][26])|2000)-02-29"
    return f"(({centuries})[0-9]{{2}}-({long}|{short})|{leap})"


DAY = f"^{_day('20')}$"
"""A day of this century, as YYYY-MM-DD."""
TIME = f"^{_day('19|20')}T([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)Z$"
"""A time in UTC, as YYYY-MM-DDThh:mm:ssZ; the clock of a machine that was never set begins in 1970."""


class Source(Record, frozen=True, kw_only=True):
    """Where a figure comes from, precise enough that another person finds it."""

    title: Text
    """Title of the page, paper, file or thread."""
    reference: Text
    """Address, DOI, arXiv id, or repository with commit and path."""
    accessed: Annotated[str, Meta(pattern=DAY)] | None = None
    """Day on which the figure was read, as YYYY-MM-DD."""
    note: Text | None = None
    """Facts that were taken from the source, and facts that were derived."""


class Metadata(Record, frozen=True, kw_only=True):
    """Identity of a document."""

    name: Name
    """Short unique name; other documents refer to it."""
    description: Text | None = None
    """Subject of this document, in a sentence or two."""
    labels: dict[Name, Text] = {}
    """Free key-value pairs for selection; they carry no meaning for the specification."""
    sources: tuple[Source, ...] = ()
    """Where the figures in this document come from."""


class Reference(Record, frozen=True, kw_only=True):
    """A pointer to another document, by file, by name, or both."""

    file: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    """Path relative to the directory of the referring document, with forward slashes."""
    name: Name | None = None
    """`metadata.name` of the other document."""


class SoftwareComponent(Record, frozen=True, kw_only=True):
    """A piece of software with the version that was used."""

    name: Name
    """Name as its makers write it, for example `nccl`."""
    version: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Exact version; a range or `latest` pins nothing."""
