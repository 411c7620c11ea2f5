"""Numbers codes in the order in which they first appear, and sorts numbers."""

from __future__ import annotations

from typing import Any


def first_slot(codes: Any, width: int, mask: int) -> int:
    """Where to begin to look for a code of several numbers."""
    value = 0
    for part in range(width):
        value ^= (codes[part] + part) * (0x9E3779B1 + 0x3C6EF372 * part)
    return (value ^ (value >> 31) ^ (value >> 17)) & mask


def is_code(known: Any, codes: Any, width: int) -> bool:
    """Whether two codes are equal."""
    other = 0
    for part in range(width):  # to the end: where two differ is hard to foresee, and a wrong guess costs more
        other |= known[part] ^ codes[part]
    return other == 0


def number(codes: Any, known: Any, slots: Any, following: Any, num: int, start: int, numbers: Any) -> Any:
    """Fill in the numbers of codes from one on; returns how many are done and how many codes are known.

    A code is a row of whole numbers. It stops early where `known` is full. `following` holds the number that came after
    each number the last time: records come again and again in the same order.
    """
    mask, width = len(slots) - 1, codes.shape[1]
    last = numbers[start - 1] if start > 0 else 0
    for i in range(start, len(codes)):
        found = following[last]
        if found >= num or not is_code(known[found], codes[i], width):
            place = first_slot(codes[i], width, mask)
            while slots[place] != 0 and not is_code(known[slots[place] - 1], codes[i], width):
                place = (place + 1) & mask
            if slots[place] == 0:
                if num >= len(known):
                    return i, num
                for part in range(width):
                    known[num, part] = codes[i, part]
                num += 1
                slots[place] = num
            found = slots[place] - 1
            following[last] = found
        numbers[i] = found
        last = found
    return len(codes), num


def register(known: Any, slots: Any, num: int) -> None:
    """Enter the first codes into empty slots."""
    mask, width = len(slots) - 1, known.shape[1]
    for i in range(num):
        place = first_slot(known[i], width, mask)
        while slots[place] != 0:
            place = (place + 1) & mask
        slots[place] = i + 1


def group(numbers: Any, places: Any, order: Any) -> None:
    """Put indices in the order of their numbers; `places` are the first place of each number, and are used up."""
    for i in range(len(numbers)):
        place = places[numbers[i]]
        order[place] = i
        places[numbers[i]] = place + 1
