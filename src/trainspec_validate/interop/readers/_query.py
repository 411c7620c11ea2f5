"""Writes devices that a vendor's tool lists into a draft: product, memory, power and slot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers import _pci
from trainspec_validate.interop.readers._accelerators import Match, by_product
from trainspec_validate.interop.readers._counted import Counted
from trainspec_validate.interop.readers._draft import COUNT, MAX_DEVICES, Draft, as_name, plain_float, plain_int
from trainspec_validate.interop.readers._node import Device, Node, describe
from trainspec_validate.interop.readers._products import accelerator_model

_FACTORS = {"": 1.0, "B": 1.0, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*(|B|KiB|MiB|GiB|TiB)\s*", re.ASCII)
_ABSENT = re.compile(
    r"\W*(?:n/?a|not (?:supported|available|found|active)|none|unknown|insufficient permissions|"
    r"requested functionality has been deprecated)?\W*",
    re.IGNORECASE,
)
"""What tools print in the place of a value that a device does not have, or that they may not read."""
_MAX_SHOWN = 60
_WATTS = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,4})?)\s*W?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listed:
    """One device as a tool lists it; None is not stated."""

    product: str | None = None
    memory_bytes: float | None = None
    power_watts: float | None = None
    default_power_watts: float | None = None
    link_generation: int | None = None
    link_num_lanes: int | None = None
    numa_node: int | None = None
    line: int | None = None
    name: str | None = None
    """Identifier of the device in the list."""
    partitioned: bool | None = None
    """Whether it is divided into instances or partitions."""
    unread: tuple[str, ...] = ()
    """Values that the tool states and that cannot be, such as `memory NaN MiB`."""

    def measured(  # noqa: PLR0913 (the figures that a tool can print of a device)
        self,
        *,
        memory: str | None = None,
        memory_unit: str = "B",
        power: str | None = None,
        default_power: str | None = None,
        generation: str | None = None,
        lanes: str | None = None,
    ) -> Listed:
        """The device with its figures, as the tool prints them; the generation as a number or as a link speed."""
        found = replace(
            self,
            memory_bytes=size(memory, memory_unit) or None,
            power_watts=watts(power),
            default_power_watts=watts(default_power),
            link_generation=plain_int(generation, 1, 10) or _pci.generation(generation),
            link_num_lanes=_pci.lanes(lanes),
        )
        values = {
            "memory": (memory, found.memory_bytes),
            "power limit": (power, found.power_watts),
            "default power limit": (default_power, found.default_power_watts),
            "link generation": (generation, found.link_generation),
            "link width": (lanes, found.link_num_lanes),
        }
        return replace(found, unread=unread(values))


def unread(values: Mapping[str, tuple[str | None, object]]) -> tuple[str, ...]:
    """Stated values of which nothing was read: by name, the text and what was read of it.

    >>> unread({"memory": ("NaN MiB", None), "power": ("[N/A]", None), "lanes": ("16", 16), "clock": ("0 MHz", 0.0)})
    ('memory NaN MiB', 'clock 0 MHz')
    """
    stated = ((name, text) for name, (text, value) in values.items() if text is not None and not value)
    return tuple(f"{name} {text.strip()[:_MAX_SHOWN]}" for name, text in stated if not _ABSENT.fullmatch(text[:200]))


def start(text: ForeignText) -> str:
    """As much of a text as its format is recognised by."""
    return text.text[:65_536]


def size(text: str | None, default_unit: str = "B") -> float | None:
    """Bytes of a size such as `81559 MiB`; `default_unit` where it has none.

    >>> size("80 GiB"), size("[N/A]")
    (85899345920.0, None)
    """
    found = _SIZE.fullmatch(text or "")
    if not found:
        return None
    return float(found[1]) * _FACTORS[found[2] or default_unit]


def watts(text: str | None) -> float | None:
    """Watts of a power such as `700.00 W`; None for `[N/A]` and what no board draws.

    >>> watts("700.00 W"), watts("N/A")
    (700.0, None)
    """
    found = _WATTS.fullmatch(text or "")
    return plain_float(found[1], 10, 50_000) if found else None


def write(draft: Draft, devices: Sequence[Listed], *, missing: str, counted: Counted | None = None) -> None:
    """Writes what devices share; `missing` says where the rest is found, `counted` which rows are devices.

    Raises:
        ForeignFormatError: there are more devices than a node can have.
    """
    if len(devices) > MAX_DEVICES:
        raise ForeignFormatError(f"lists {len(devices):,} devices", help=f"at most {MAX_DEVICES:,} are read")
    matches = [by_product(one.product, one.memory_bytes) if one.product else None for one in devices]
    shown = devices[0].product if devices else None
    memory = devices[0].memory_bytes if devices else None
    how = f"the product {shown}" if memory is None else f"the product {shown} with {memory:.0f} bytes as reported"
    num_dies = accelerator_model(draft, matches, how[:300]) if devices else 1
    firsts = range(len(devices)) if counted is None else counted.firsts
    accelerators = [devices[position] for position in firsts]
    for one in accelerators:
        for value in one.unread:
            draft.unread(value, one.line, about=one.name)
    _one_by_one(draft, accelerators, [matches[position] for position in firsts])
    node = Node(tuple(_device(k, one) for k, one in enumerate(accelerators)), ())
    draft.group_unknown("nics", reason="the tool lists accelerators alone")
    for key in ("generation", "num_lanes"):
        if all(one.link_generation is None and one.link_num_lanes is None for one in devices):
            draft.group_unknown("host_link", key, reason=missing)
    describe(draft, node, num_dies=num_dies)
    if counted is not None:
        _count(draft, counted, devices[0].line if devices else None)
    in_catalog = bool(matches) and all(match is not None and match.entry is not None for match in matches)
    _memory(draft, devices, in_catalog=in_catalog, missing=missing)
    _power(draft, devices, missing=missing, num_dies=num_dies)
    for key in ("host", "scale_up"):
        draft.group_unknown(key, reason=missing)


def _device(position: int, one: Listed) -> Device:
    return Device(
        f"accelerator-{position}",
        named=False,
        numa_node=one.numa_node,
        link_generation=one.link_generation,
        link_num_lanes=one.link_num_lanes,
        line=one.line,
    )


def _one_by_one(draft: Draft, devices: Sequence[Listed], matches: Sequence[Match | None]) -> None:
    """States product, memory and mode of each device, in which they may differ."""
    for k, (one, match) in enumerate(zip(devices, matches, strict=True)):
        model = match.model if match is not None else None
        draft.device(k, name=one.name, model=model, memory_bytes=one.memory_bytes, partitioned=one.partitioned)


def _count(draft: Draft, counted: Counted, line: int | None) -> None:
    """States how rows became devices, or that their number is open."""
    if counted.remark:
        draft.remark(counted.remark, line, pointer=COUNT)
    if counted.num_devices is None:
        draft.uncount(counted.remark)
    elif counted.how is not None:
        draft.remark(counted.how, line)


def _memory(draft: Draft, devices: Sequence[Listed], *, in_catalog: bool, missing: str) -> None:
    """States the memory of a product of its own; the catalog has that of the others in the maker's rounding."""
    if in_catalog:
        draft.group_unknown("accelerator", "memory_bytes", reason="left to the catalog, which has the maker's figure")
        return
    sizes = {one.memory_bytes for one in devices}
    known = [value for value in sizes if value is not None and 1e8 <= value <= 1e14]
    if len(sizes) == 1 and known:
        draft.group("accelerator", "memory_bytes", value=float(known[0]), how="as reported, in bytes")
    else:
        draft.group_unknown("accelerator", "memory_bytes", reason=missing)
        if len(known) > 1:
            draft.remark(
                f"accelerators differ in memory: {', '.join(f'{value / 1e9:.1f} GB' for value in sorted(known))}"
            )


def _power(draft: Draft, devices: Sequence[Listed], *, missing: str, num_dies: int) -> None:
    defaults, limits = {one.default_power_watts for one in devices}, {one.power_watts for one in devices}
    known = sorted(value for value in limits if value is not None)
    if len(known) > 1:
        draft.remark(f"accelerators differ in power limit: {', '.join(f'{value:g} W' for value in known[:8])}")
    if known and None not in limits and num_dies == 1:
        how = "the power limit that is set" if len(known) == 1 else "the lowest of the power limits that are set"
        default = next(iter(defaults)) if len(defaults) == 1 else None
        if default is not None and known[0] < default:
            draft.group("accelerator", "power_cap_watts", value=known[0], how=f"{how}, below the default")
            draft.group("accelerator", "power_watts", value=default, how="the default power limit")
        else:
            draft.group("accelerator", "power_watts", value=known[0], how=how)
    else:
        draft.group_unknown("accelerator", "power_watts", reason=missing)


def software(draft: Draft, key: str, name: str, version: str | None) -> None:
    """States a version of software where the tool prints one."""
    if version is not None and re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,63}", version.strip(), re.ASCII):
        draft.fact(("software", key), {"name": as_name(name, "software"), "version": version.strip()})
