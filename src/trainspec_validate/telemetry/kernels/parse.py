"""Reads records of the common form out of bytes, as far as it can prove them to be right.

Everything else is read by `lines`, which then also names the fault: names that were not seen before, texts with
escapes, attributes, histograms, numbers of very many digits, and everything that is no record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.telemetry.kernels.number import read_number, read_whole
from trainspec_validate.telemetry.kernels.texts import (
    Table,
    after_blanks,
    after_colon,
    after_value,
    find_entry,
    is_end,
    line_end,
    text_end,
)
from trainspec_validate.telemetry.kernels.words import BYTES, is_same

MOST_VALUES = 256
"""Values of one record."""
PAD = 1_024
"""Zero bytes behind the text, more than the longest name that is looked for, so that no read goes beyond the end."""
FIELDS = (
    "k",
    "time_us",
    "seq",
    "m",
    "att",
    "step",
    "rank",
    "emitter",
    "host",
    "device",
    "run",
    "start_us",
    "observed_us",
)
_NUMBERS = {"time_us": 16, "seq": 15, "att": 7, "step": 12, "rank": 8, "start_us": 16, "observed_us": 16}
MOST_BYTES = 1_000_000
"""Of a line, as in `lines`."""
MOST_TIME = 9_007_199_254_740_991
MOST_ATTEMPT = 1_000_000
RECORD = np.dtype(
    [
        *[("start", np.int64), ("end", np.int64), ("is_read", np.int64), ("first", np.int64), ("num", np.int64)],
        *[(name, np.int64) for name in FIELDS],
    ]
)
_LENGTH = np.array([len(name) for name in FIELDS], np.int64)
_DIGITS = np.array([_NUMBERS.get(name, 0) for name in FIELDS], np.int64)
_NAMES = np.array([f'{name}"'.encode() for name in FIELDS], "S16").view(np.uint64).reshape(-1, 2)
_MASKS = np.array([b"\xff" * (len(name) + 1) for name in FIELDS], "S16").view(np.uint64).reshape(-1, 2)
_K, _M = FIELDS.index("k"), FIELDS.index("m")
_OWED = sum(1 << FIELDS.index(name) for name in ("k", "time_us", "seq", "m"))
_START, _END, _IS_READ, _FIRST, _NUM, _FIELDS = range(6)
"""Places in a record as whole numbers; that of a field is its number behind the last of these."""
_TIME, _ATTEMPT, _RUN, _BEGUN, _OBSERVED = (
    _FIELDS + FIELDS.index(name) for name in ("time_us", "att", "run", "start_us", "observed_us")
)


def is_field(words: Any, begin: int, field: int) -> bool:
    """Whether the bytes are the name of a field and the quote that ends it."""
    if words[begin] & _MASKS[field, 0] != _NAMES[field, 0]:
        return False
    return bool(words[begin + BYTES] & _MASKS[field, 1] == _NAMES[field, 1])


def field_of(words: Any, begin: int) -> int:
    """Number of a field by its name; -1 for one that is not of the common form."""
    for field in range(len(_LENGTH)):
        if is_field(words, begin, field):
            return field
    return -1


def is_within(record: Any) -> bool:
    """Whether all numbers of a record are within the bounds of the schema."""
    if record[_TIME] > MOST_TIME or record[_BEGUN] > MOST_TIME or record[_OBSERVED] > MOST_TIME:
        return False
    return bool(record[_ATTEMPT] <= MOST_ATTEMPT)


def entry_of(text: Any, words: Any, begin: int, table: Table, before: int) -> int:
    """The entry of a table that begins at a place; -1 where it is none.

    Names follow each other as they did the last time: what followed `before` is tried first, then `before` itself.
    """
    guess = table.after[before + 1]
    if guess >= 0 and is_same(words, begin, table.words, table.starts[guess], table.lengths[guess]):
        entry: int = guess
        return entry
    if before >= 0 and is_same(words, begin, table.words, table.starts[before], table.lengths[before]):
        return before
    quote = text_end(text, begin)
    if quote < 0:
        return -1
    entry = find_entry(table, text, words, begin, quote + 1)
    if entry >= 0:
        table.after[before + 1] = entry
    return entry


def read_values(
    text: Any, words: Any, place: int, keys: Table, stamps: Any, stamp: int, out: tuple[Any, Any], record: Any
) -> int:
    """Read values by their names, and note how many there are; returns the place behind the brace that ends them.

    It is -1 for what is not of the common form, and for a key that comes twice.
    """
    if text[place] != 123:
        return -1
    out_keys, out_values = out
    place = after_blanks(text, place + 1)
    found, entry, is_last = record[_FIRST], -1, text[place] == 125
    if is_last:
        place += 1
    while not is_last:
        if text[place] != 34 or found - record[_FIRST] >= MOST_VALUES:
            return -1
        begin = place + 1
        entry = entry_of(text, words, begin, keys, entry)
        if entry < 0 or stamps[keys.numbers[entry]] == stamp:
            return -1
        key = keys.numbers[entry]
        stamps[key] = stamp
        place = after_colon(text, begin + keys.lengths[entry] - 1)
        if place < 0:
            return -1
        value, place = read_number(text, words, place)
        if place < 0:
            return -1
        out_keys[found], out_values[found] = key, value
        found += 1
        place, is_last = after_value(text, place)
        if place < 0:
            return -1
    record[_NUM] = found - record[_FIRST]
    return place


def read_field(text: Any, words: Any, place: int, field: int, names: Table, hints: Any, record: Any) -> int:
    """Read the value of a field into its record; returns the place behind it, -1 for what is not of the common form."""
    if _DIGITS[field] > 0:
        whole, place = read_whole(text, words, place, _DIGITS[field])
        record[_FIELDS + field] = whole
        return place
    if text[place] != 34:
        return -1
    if field == _K:
        return place + 3 if text[place + 1] == 109 and text[place + 2] == 34 else -1
    entry = entry_of(text, words, place + 1, names, hints[field])
    if entry < 0:
        return -1
    hints[field] = entry
    record[_FIELDS + field] = names.numbers[entry]
    end: int = place + 1 + names.lengths[entry]
    return end


def next_field(words: Any, begin: int, before: int, fields_after: Any) -> int:
    """Number of the field whose name begins at a place, behind another one; -1 for one that is not of the common form."""
    field: int = fields_after[before + 1]
    if not is_field(words, begin, field):
        field = field_of(words, begin)
        fields_after[before + 1] = max(field, 0)
    return field


def read_record(
    text: Any,
    words: Any,
    place: int,
    tables: tuple[Table, Table],
    stamps: Any,
    stamp: int,
    hints: tuple[Any, Any],
    record: Any,
    out: tuple[Any, Any],
) -> int:
    """Read a record whose first brace is at a place; returns the place behind it, -1 where it is not as it should be."""
    keys, names = tables
    last, fields_after = hints
    seen, field, is_done = 0, -1, False
    place = after_blanks(text, place + 1)
    while not is_done:
        if text[place] != 34:
            return -1
        field = next_field(words, place + 1, field, fields_after)
        if field < 0 or (seen >> field) & 1 == 1:
            return -1
        seen |= 1 << field
        place = after_colon(text, place + 1 + _LENGTH[field])
        if place >= 0 and field == _M:
            place = read_values(text, words, place, keys, stamps, stamp, out, record)
        elif place >= 0:
            place = read_field(text, words, place, field, names, last, record)
        if place < 0:
            return -1
        place, is_done = after_value(text, place)
        if place < 0:
            return -1
    return place if seen & _OWED == _OWED else -1


def parse(
    text: Any,
    words: Any,
    size: int,
    tables: tuple[Table, Table],
    stamps: Any,
    hints: tuple[Any, Any],
    run: int,
    records: Any,
    out: tuple[Any, Any],
) -> Any:
    """Read the lines of a block; returns the number of records and the place behind the last line read.

    It stops early where the arrays are full. `tables` are those of keys and of other names, `hints` the entry that each
    field had last and the field that last followed each, `out` the keys and the values. A record is a row of whole
    numbers.
    """
    line, num_records, num = 0, 0, 0
    while line < size and num_records < len(records) and num + MOST_VALUES <= len(out[0]):
        record = records[num_records]
        num_records += 1
        record[:] = -1
        record[_START], record[_IS_READ], record[_FIRST], record[_NUM] = line, 0, num, 0
        place = after_blanks(text, line)
        if text[place] == 123:
            place = read_record(text, words, place, tables, stamps, num_records, hints, record, out)
        else:
            place = -1
        is_good = place >= 0
        place = after_blanks(text, place) if is_good else line
        is_good = is_good and is_end(text, place, size)
        end = line_end(text, place, size)
        record[_END] = end
        if is_good and end - line <= MOST_BYTES and is_within(record) and (record[_RUN] < 0 or record[_RUN] == run):
            record[_IS_READ] = 1
            num += record[_NUM]
        else:
            record[_NUM] = 0
        line = end + 1
    return num_records, line
