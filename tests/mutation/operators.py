"""Damages documents: each operator yields copies of a value with one thing wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Pointer = tuple[str | int, ...]

FREE = frozenset(
    {"description", "notes", "note", "sources", "source_note", "labels", "extensions", "reason", "citation"}
)
"""Keys whose values are for people: no program can tell a right sentence from a wrong one."""

REFERENCES = frozenset({"fabric", "storage", "group", "node_group", "fabric_tier", "source", "target", "leaf", "tier"})
"""Keys that hold the name of something else in the set."""


FREE_CHOICES: Mapping[tuple[str, str], str] = {
    ("scale by 1000", "job.seed"): "every number is a seed",
    ("swap units", "communication.bucket_bytes"): "a setting to tune: buckets of 12 and of 800 MB are both in use",
    ("swap units", "telemetry.device_interval_seconds"): "a cadence to choose; absurd ones are outside of the bounds",
    ("swap units", "telemetry.network_interval_seconds"): "as the line above",
    ("scale by 1000", "telemetry.network_interval_seconds"): "as the line above",
    ("break products", "parallelism.num_virtual_stages"): "more chunks are another schedule, as long as layers divide",
    ("break products", "management.num_per_node"): "no product contains interfaces for management",
}
"""Numbers that a person picks, by operator and place: another plausible pick makes another document, not a false one.

Damage to them is not judged, whether it would be noticed or not. Facts of a machine, a measurement or a run never
belong here: a false one makes the document false, even where nothing else in it says so.
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A damaged copy: by which operator, where, and what was done."""

    operator: str
    pointer: Pointer
    what: str
    data: Any


def leaves(value: Any, pointer: Pointer = ()) -> Iterator[tuple[Pointer, Any]]:
    """Every scalar outside of free text, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in FREE and not (key == "source" and isinstance(item, dict)) and key != "carbon_source":
                yield from leaves(item, (*pointer, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*pointer, index))
    else:
        yield pointer, value


def replaced(data: Any, pointer: Pointer, value: Any) -> Any:
    """A copy with another value at one place."""
    result = copy.copy(data)
    if len(pointer) == 1:
        result[pointer[0]] = value
    else:
        result[pointer[0]] = replaced(result[pointer[0]], pointer[1:], value)
    return result


def without(data: Any, pointer: Pointer) -> Any:
    """A copy that lacks one key or item."""
    result = copy.copy(data)
    if len(pointer) == 1:
        del result[pointer[0]]
    else:
        result[pointer[0]] = without(result[pointer[0]], pointer[1:])
    return result


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same_kind(value: float, factor: float) -> float:
    """The scaled number, whole where the original was whole and the result can be."""
    scaled = value * factor
    return int(scaled) if isinstance(value, int) and float(scaled).is_integer() else scaled


def delete(data: Any) -> Iterator[Mutant]:
    """Leaves out one key or one whole section."""
    for pointer in [*_keys(data)]:
        yield Mutant("delete", pointer, "left out", without(data, pointer))


def _keys(value: Any, pointer: Pointer = ()) -> Iterator[Pointer]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in FREE:
                yield (*pointer, key)
                yield from _keys(item, (*pointer, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _keys(item, (*pointer, index))


def retype(data: Any) -> Iterator[Mutant]:
    """Writes a number as text with a unit, a word as a number, a truth value as a word."""
    for pointer, value in leaves(data):
        if isinstance(value, bool):
            wrong: Any = "yes" if value else "no"
        elif is_number(value):
            wrong = f"{value:g} units"
        else:
            wrong = 7
        yield Mutant("retype", pointer, f"{value!r} as {wrong!r}", replaced(data, pointer, wrong))


def scale(data: Any) -> Iterator[Mutant]:
    """Slips a prefix: a thousand times too large or too small."""
    for pointer, value in leaves(data):
        if is_number(value) and value not in (0, 1):
            for factor in (1000, 0.001):
                wrong = same_kind(value, factor)
                yield Mutant("scale by 1000", pointer, f"{value:g} as {wrong:g}", replaced(data, pointer, wrong))


def swap_units(data: Any) -> Iterator[Mutant]:
    """Takes bits for bytes, milliseconds for seconds, kilowatts for watts, two-way rates for one-way."""
    for pointer, value in leaves(data):
        key = next((str(step) for step in reversed(pointer) if isinstance(step, str)), "")
        if not is_number(value) or value == 0:
            continue
        factors: tuple[float, ...] = ()
        if "bytes" in key:
            factors = (8, 1 / 8)
        if key in {"link_bandwidth_bytes_per_second", "bandwidth_bytes_per_second"}:
            factors = (*factors, 2)
        if "seconds" in key and "per_second" not in key:
            factors = (1000, 1 / 1000, 60, 1 / 60)
        if "watts" in key:
            factors = (1000, 1 / 1000)
        for factor in factors:
            wrong = value * factor
            yield Mutant("swap units", pointer, f"{value:g} as {wrong:g}", replaced(data, pointer, wrong))


_PRODUCT_KEYS = """
    num_nodes num_accelerators num_accelerators_per_node num_per_node num_links num_rails num_planes data
    tensor pipeline context expert num_virtual_stages global_sequences micro_sequences accumulation_steps
    global_tokens sequence_length num_layers hidden_size num_attention_heads vocabulary_size ffn_hidden_size
    num_parameters bytes_per_parameter size_bytes steps seconds step_seconds num_steps num_tokens num_experts
    num_failures node_days failures_per_1000_node_days state_bytes_per_parameter tokens_per_second num_ranks
    num_domains num_down_ports num_up_ports oversubscription domain_num_accelerators
"""
PRODUCT_KEYS = frozenset(_PRODUCT_KEYS.split())
"""Factors and results of the products that the specification states."""


def break_products(data: Any) -> Iterator[Mutant]:
    """Doubles one factor, or the result, of a product that the documents state."""
    for pointer, value in leaves(data):
        if is_number(value) and value and pointer[-1] in PRODUCT_KEYS:
            wrong = value * 2
            yield Mutant("break products", pointer, f"{value:g} as {wrong:g}", replaced(data, pointer, wrong))


def dangle(data: Any) -> Iterator[Mutant]:
    """Misspells a name that refers to something else."""
    for pointer, value in leaves(data):
        key = next((str(step) for step in reversed(pointer) if isinstance(step, str)), "")
        by_name = pointer[:1] in (("cluster",), ("plan",)) and key in {"name", "file"}
        in_list = key == "nic_names"
        if isinstance(value, str) and (key in REFERENCES or by_name or in_list) and pointer[0] != "reliability":
            wrong = value[:-1] + ("x" if value[-1] != "x" else "y")
            yield Mutant("dangling references", pointer, f"{value!r} as {wrong!r}", replaced(data, pointer, wrong))


OPERATORS: tuple[Callable[[Any], Iterator[Mutant]], ...] = (
    delete,
    retype,
    scale,
    swap_units,
    break_products,
    dangle,
)
