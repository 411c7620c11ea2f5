"""Text of a stream in, what its reader gives out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainspec_validate.documents.types.stream import Event, Head, Sample, encode_record
from trainspec_validate.telemetry.formats import FORMATS, Given, Item, Losses, Record, Refusal, detect, pieces, read
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import rejoined

SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES") or Path(__file__).parents[3] / "shared" / "samples")


class Result:
    """What a reader gave, sorted by kind."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.records: list[Record] = [e for _, e in items if isinstance(e, Head | Sample | Event)]
        self.heads = [e for e in self.records if isinstance(e, Head)]
        self.samples = [e for e in self.records if isinstance(e, Sample)]
        self.events = [e for e in self.records if isinstance(e, Event)]
        self.refusals = [e for _, e in items if isinstance(e, Refusal)]
        losses = items[-1][1]
        assert isinstance(losses, Losses)
        self.losses = losses

    @property
    def lost(self) -> dict[tuple[str, str], int]:
        """How often each thing was lost, by reason and name."""
        return {(loss.reason, loss.what): loss.num for loss in self.losses.entries}

    def values(self, key: str) -> list[Any]:
        """Values of a key in the order of samples."""
        return [sample.m[key] for sample in self.samples if key in sample.m]


def read_bytes(content: bytes, name: str | None = None, given: Given | None = None) -> Result:
    """Read a whole file; its records are sound, and numbered without a gap."""
    found = FORMATS[name] if name else detect(content)
    assert found, "no format fits"
    items = list(read(pieces(rejoined(content, rejoined(b"", _nothing())), found), "a/file.log", found, given))
    result = Result(items)
    if found.name != "metric-stream":
        assert_sound(result)
    return result


def read_text(text: str, name: str | None = None, **given: Any) -> Result:
    """Read a text as a whole file."""
    return read_bytes(text.encode(), name, Given(**given))


def _nothing() -> Any:
    import io

    return io.BytesIO()


def assert_sound(result: Result) -> None:
    """Every record is one by the schema, a head comes first, and numbers count up for each emitter and attempt."""
    for record in result.records:
        assert read_line(encode_record(record)) == record
    assert not result.records or isinstance(result.records[0], Head)
    assert result.losses.num_records == len(result.records)
    assert result.losses.num_refusals == len(result.refusals)
    if result.losses.sequenced:
        return
    last: dict[tuple[str | None, int | None], int] = {}
    for record in (*result.records,):
        if not isinstance(record, Head):
            place = (record.emitter, record.att)
            assert record.seq == last.get(place, -1) + 1
            last[place] = record.seq
