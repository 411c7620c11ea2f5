"""The only place that takes the values out of wide tables, row by row."""

from __future__ import annotations

import math
from typing import Any


def gather(table: Any, keys: Any, records: Any, out_keys: Any, out_values: Any) -> int:
    """Put every number of a table into the arrays, with its row and key; returns how many there are.

    The table has a row for each key and a column for each record; not a number stands for no value.
    """
    num_keys, num_records = table.shape
    num = 0
    for record in range(num_records):
        for place in range(num_keys):
            value = table[place, record]
            if not math.isnan(value):
                records[num], out_keys[num], out_values[num] = record, keys[place], value
                num += 1
    return num
