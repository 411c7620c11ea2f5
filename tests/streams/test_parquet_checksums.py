"""A changed byte in a page of Parquet that has a checksum never passes in silence."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import together
from trainspec_validate.telemetry.formats import parquet
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import SourceError

pytest.importorskip("pyarrow")


def _told(path: Path) -> list[str]:
    return [str(item) for _, item in parquet.read(path)]


def test_a_flipped_bit_of_what_is_exported_is_seen_or_changes_nothing(tmp_path: Path) -> None:
    (text,) = together(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True)).streams).values()
    path = tmp_path / "run.parquet"
    parquet.write([record for line in text.splitlines() if (record := read_line(line))], path)
    content, whole = path.read_bytes(), _told(path)
    (num_footer_bytes,) = struct.unpack("<I", content[-8:-4])
    dice, refused = random.Random(7), 0
    for _ in range(80):
        changed = bytearray(content)
        changed[dice.randrange(4, len(content) - num_footer_bytes - 8)] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
        try:
            assert _told(path) == whole  # a bit of a header that no reader needs
        except SourceError:
            refused += 1
    assert refused > 60


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_checksums_of_other_writers_are_compared(version: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (text,) = together(make_run(Shape(num_nodes=1, devices_per_node=1, num_steps=20)).streams).values()
    path = tmp_path / "run.parquet"
    parquet.write([record for line in text.splitlines() if (record := read_line(line))], path)
    table = pq.read_table(path)
    options = {"compression": "none", "data_page_version": version, "write_page_checksum": True}
    pq.write_table(table, path, use_dictionary=False, **options)
    assert _told(path)
    content = bytearray(path.read_bytes())
    place = content.index(b"train.loss.mean") if b"train.loss.mean" in content[:-20_000] else len(content) // 3
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match="CRC checksum verification failed"):
        _told(path)
