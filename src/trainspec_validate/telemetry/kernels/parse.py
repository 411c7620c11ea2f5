"""The only place that reads records of the common form out of bytes: it takes only what it can prove to be right.

What it does not take is read by `lines`, which then also says what is wrong: names that were not seen before, texts
with escapes, attributes, histograms, numbers of very many digits, and everything that is no record.
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
    is_entry,
    line_end,
    text_end,
)

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
_TEXT = np.zeros((len(FIELDS), 16), np.uint8)
_LENGTH = np.array([len(name) for name in FIELDS], np.int64)
_DIGITS = np.array([_NUMBERS.get(name, 0) for name in FIELDS], np.int64)
for _row, _name in enumerate(FIELDS):
    _TEXT[_row, : len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_NUM_FIELDS = len(FIELDS)
_K, _TIME, _SEQ, _M = 0, 1, 2, 3
_OWED = (1 << _K) | (1 << _TIME) | (1 << _SEQ) | (1 << _M)


def is_field(text: Any, begin: int, field: int) -> bool:
    """Whether the bytes are the name of a field."""
    for place in range(_LENGTH[field]):
        if text[begin + place] != _TEXT[field, place]:
            return False
    return True


def field_of(text: Any, begin: int, length: int) -> int:
    """Number of a field by its name; -1 for one that is not of the common form."""
    for field in range(len(_LENGTH)):
        if _LENGTH[field] == length and is_field(text, begin, field):
            return field
    return -1


def set_field(record: Any, field: int, value: int) -> None:
    """Put a value into its place in the record."""
    if field == 1:
        record["time_us"] = value
    elif field == 2:
        record["seq"] = value
    elif field == 4:
        record["att"] = value
    elif field == 5:
        record["step"] = value
    elif field == 6:
        record["rank"] = value
    elif field == 7:
        record["emitter"] = value
    elif field == 8:
        record["host"] = value
    elif field == 9:
        record["device"] = value
    elif field == 10:
        record["run"] = value
    elif field == 11:
        record["start_us"] = value
    elif field == 12:
        record["observed_us"] = value


def clear(record: Any) -> None:
    """Nothing is known of a record."""
    record["is_read"], record["num"] = 0, 0
    record["time_us"], record["seq"], record["att"], record["step"], record["rank"] = -1, -1, -1, -1, -1
    record["emitter"], record["host"], record["device"], record["run"] = -1, -1, -1, -1
    record["start_us"], record["observed_us"] = -1, -1


def is_within(record: Any) -> bool:
    """Whether all numbers of a record are within the bounds of the schema."""
    if record["time_us"] > MOST_TIME or record["start_us"] > MOST_TIME or record["observed_us"] > MOST_TIME:
        return False
    return bool(record["att"] <= MOST_ATTEMPT)


def parse(
    text: Any,
    size: int,
    keys: Table,
    names: Table,
    stamps: Any,
    hints: Any,
    run: int,
    records: Any,
    out_keys: Any,
    out_values: Any,
    order_hints: Any,
) -> Any:
    """Read the lines of a block; returns the number of records and of values, and the place behind the last line read.

    It stops early where the arrays are full. It is one long loop that takes everything out of its tuples first: a
    compiled loop counts the users of an array at each access.
    """
    key_arena, key_starts, key_lengths, key_slots, key_numbers = keys
    arena, starts, lengths, slots, numbers = names
    line, num_records, num = 0, 0, 0
    while line < size and num_records < len(records) and num + MOST_VALUES <= len(out_keys):
        record = records[num_records]
        clear(record)
        record["start"], record["first"] = line, num
        stamp = num_records + 1
        num_records += 1
        place = after_blanks(text, line)
        is_good, is_done, seen, field, found = text[place] == 123, False, 0, -1, num
        place = after_blanks(text, place + 1)
        while is_good and not is_done:
            if text[place] != 34:
                is_good = False
                break
            begin = place + 1
            field = (field + 1) % _NUM_FIELDS
            quote = begin + _LENGTH[field]
            if text[quote] != 34 or not is_field(text, begin, field):
                quote = text_end(text, begin)
                field = field_of(text, begin, quote - begin) if quote >= 0 else -1
            place = after_colon(text, quote) if field >= 0 else -1
            if place < 0 or (seen >> field) & 1 == 1:
                is_good = False
                break
            seen |= 1 << field
            if field == _M:
                is_good = text[place] == 123
                place = after_blanks(text, place + 1)
                is_last = text[place] == 125
                if is_last:
                    place += 1
                while is_good and not is_last:
                    order, begin = found - num, place + 1
                    if text[place] != 34 or order >= MOST_VALUES:
                        is_good = False
                        break
                    entry = order_hints[order]
                    quote = begin + key_lengths[entry] if entry >= 0 else 0
                    if (
                        entry < 0
                        or text[quote] != 34
                        or not is_entry(key_arena, key_starts[entry], text, begin, key_lengths[entry])
                    ):
                        quote = text_end(text, begin)
                        if quote < 0:
                            is_good = False
                            break
                        entry = find_entry(key_arena, key_starts, key_lengths, key_slots, text, begin, quote)
                        if entry < 0:
                            is_good = False
                            break
                        order_hints[order] = entry
                    key = key_numbers[entry]
                    if stamps[key] == stamp:
                        is_good = False
                        break
                    stamps[key] = stamp
                    place = after_colon(text, quote)
                    if place < 0:
                        is_good = False
                        break
                    value, place = read_number(text, place)
                    if place < 0:
                        is_good = False
                        break
                    out_keys[found], out_values[found] = key, value
                    found += 1
                    place, is_last = after_value(text, place)
                    is_good = place >= 0
            elif _DIGITS[field] > 0:
                whole, place = read_whole(text, place, _DIGITS[field])
                is_good = place >= 0
                set_field(record, field, whole)
            elif text[place] != 34:
                is_good = False
            elif field == _K:
                is_good = text[place + 1] == 109 and text[place + 2] == 34
                place += 3
            else:
                begin, entry = place + 1, hints[field]
                quote = begin + lengths[entry] if entry >= 0 else 0
                if entry < 0 or text[quote] != 34 or not is_entry(arena, starts[entry], text, begin, lengths[entry]):
                    quote = text_end(text, begin)
                    entry = find_entry(arena, starts, lengths, slots, text, begin, quote) if quote >= 0 else -1
                is_good = entry >= 0
                if is_good:
                    hints[field] = entry
                    set_field(record, field, numbers[entry])
                place = quote + 1
            if is_good:
                place, is_done = after_value(text, place)
                is_good = place >= 0
        place = after_blanks(text, place) if is_good and is_done else line
        is_good = is_good and is_done and is_end(text, place, size) and seen & _OWED == _OWED
        end = line_end(text, place, size)
        record["end"] = end
        if is_good and end - line <= MOST_BYTES and is_within(record) and (record["run"] < 0 or record["run"] == run):
            record["is_read"], record["num"] = 1, found - num
            num = found
        line = end + 1
    return num_records, num, line
