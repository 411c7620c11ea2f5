"""Reads streams of other formats as records of the specification, and writes records in them."""

from __future__ import annotations

from trainspec_validate.telemetry.formats.detection import detect
from trainspec_validate.telemetry.formats.format import FORMATS, StreamFormat
from trainspec_validate.telemetry.formats.items import Clock, Given, Item, Loss, Losses, Record, Refusal
from trainspec_validate.telemetry.formats.read import pieces, read, records
from trainspec_validate.telemetry.formats.source import (
    HEAD_BYTES,
    SourceError,
    head_bytes,
    lines_of,
    opened,
    uncompressed,
)
from trainspec_validate.telemetry.formats.transcript import ORIGIN, UNKNOWN_RUN

__all__ = [
    "FORMATS",
    "HEAD_BYTES",
    "ORIGIN",
    "UNKNOWN_RUN",
    "Clock",
    "Given",
    "Item",
    "Loss",
    "Losses",
    "Record",
    "Refusal",
    "SourceError",
    "StreamFormat",
    "detect",
    "head_bytes",
    "lines_of",
    "opened",
    "pieces",
    "read",
    "records",
    "uncompressed",
]
