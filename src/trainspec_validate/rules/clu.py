"""Checks totals, names and accelerators of a cluster profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import Accelerator
from trainspec_validate.model import units
from trainspec_validate.model.accelerator_names import accelerators_named
from trainspec_validate.model.catalog import CatalogAccelerator, accelerators
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import did_you_mean, meant
from trainspec_validate.performance.derived.cluster import listed, total, within
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, rule

_FIGURE_TOLERANCE = 0.1
_NOT_STATED = "not-stated"
"""Model of an accelerator that the sources of a published profile do not name."""
_NUM_FIGURES = 3
"""Figures of an accelerator that `_missing_figures` looks for."""
_MEMORY_TOLERANCE = 0.1
"""A product with more or less memory is another one: H100 was built with 64, 80 and 94 GB."""
_SMALLEST_DRAM = 8e9
_READ_SECONDS = (0.01, 1.0)
_MOST_TIMES_THE_LARGEST = 10
_NAMED_MEMORY = re.compile(r"(?<![0-9])(?<![0-9]\.)([0-9]{1,4})[ _-]?(?:gb|gib)(?![a-z/])", re.IGNORECASE)
_LEAST_OF_NAMED, _MOST_OF_NAMED = 1 / 9, 1.1
"""Share of the memory in a name: the smallest partition of a device has an eighth of it, and a GiB is 1.074 GB.

Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""
_POWER_SHARE = (0.4, 1.25)
_MEMORY_SHARE = (0.9, 1.08)
"""From the rounded figure of a data sheet to all memory of the package, before what its checks of errors take."""
_FLOPS_PER_BYTE = (1, 5000)
"""Operations of a 16-bit peak for each byte of memory bandwidth; a factor of nine outside what makers publish."""
_SIXTEEN_BITS = frozenset({"bf16", "fp16"})
_EIGHT_BITS = frozenset({"fp8", "fp8-e4m3", "fp8-e5m2", "mxfp8"})
_PEAK_RANGE: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("bf16", "fp16"), (0.9, 1.1)),
    **dict.fromkeys(_EIGHT_BITS, (0.99, 5)),
    **dict.fromkeys(("fp6", "mxfp6"), (0.99, 8)),
    **dict.fromkeys(("fp4", "mxfp4", "nvfp4"), (0.99, 16)),
    **dict.fromkeys(("tf32", "fp32", "fp64"), (0.0, 1.0)),
    "int8": (0.05, 5),
}
"""Least and greatest multiple of the 16-bit peak, per number format."""


@rule("TS-CLU-001")
def node_total(cluster: ClusterProfile) -> Iterator[Violation]:
    """The groups' nodes add up to the document's."""
    counted = sum(group.num_nodes for group in cluster.node_groups)
    if counted != cluster.num_nodes:
        yield Violation(
            at(cluster, "num_nodes"),
            f"the groups have {counted:,} nodes together, but num_nodes is {cluster.num_nodes:,}",
            f"set num_nodes to {counted}, or correct a group",
            related=tuple(
                (at(cluster, "node_groups", i, "num_nodes"), g.name) for i, g in enumerate(cluster.node_groups)
            ),
        )


@rule("TS-CLU-002")
def accelerator_total(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes times accelerators per node add up to the document's accelerators."""
    counted = sum(total(group) for group in cluster.node_groups)
    if counted == cluster.num_accelerators:
        return
    ranks = sum(total(group) * _num_parts(group.accelerator) for group in cluster.node_groups)
    told = f"set num_accelerators to {counted}, or correct a group"
    if cluster.num_accelerators == ranks:
        told = f"{ranks:,} counts dies or cores; set num_accelerators to the number of packages, {counted}"
    yield Violation(
        at(cluster, "num_accelerators"),
        f"the groups have {counted:,} accelerators together, but num_accelerators is {cluster.num_accelerators:,}",
        told,
        related=tuple(
            (at(cluster, "node_groups", i), f"{g.num_nodes:,} nodes x {g.num_accelerators_per_node}")
            for i, g in enumerate(cluster.node_groups)
        ),
    )


def _num_parts(accelerator: Accelerator) -> int:
    known = accelerators().get(accelerator.model)
    return max(accelerator.num_ranks_per_accelerator, known.num_dies if known else 1)


@rule("TS-CLU-003")
def cluster_names(cluster: ClusterProfile) -> Iterator[Violation]:
    """No two items of a list share a name."""
    for pointer, key, names in _named_lists(cluster):
        first: dict[str, int] = {}
        for position, name in enumerate(names):
            earlier = first.setdefault(name, position)
            if earlier != position:
                yield Violation(
                    at(cluster, *pointer, position, key),
                    f"{name!r} appears twice in {pointer[-1]}",
                    f"give each item a {key} of its own",
                    related=((at(cluster, *pointer, earlier, key), "first here"),),
                )


def _named_lists(cluster: ClusterProfile) -> Iterator[tuple[Pointer, str, Sequence[str]]]:
    yield ("node_groups",), "name", [group.name for group in cluster.node_groups]
    yield ("sites",), "name", [site.name for site in cluster.sites]
    yield ("fabrics",), "name", [fabric.name for fabric in cluster.fabrics]
    yield ("storage_targets",), "name", [target.name for target in cluster.storage_targets]
    for i, group in enumerate(cluster.node_groups):
        yield ("node_groups", i, "nics"), "name", [nic.name for nic in group.nics]
        formats = [peak.format for peak in group.accelerator.peak_rates]
        yield ("node_groups", i, "accelerator", "peak_rates"), "format", formats
    for i, fabric in enumerate(cluster.fabrics):
        yield ("fabrics", i, "tiers"), "name", [tier.name for tier in fabric.tiers]


@rule("TS-CLU-004")
def accelerator_model(cluster: ClusterProfile) -> Iterator[Violation]:
    """The model is in the catalog, or the document has the figures itself, or the name is unlike those there."""
    unresolved: Unresolved | None = None
    for i, group in enumerate(cluster.node_groups):
        accelerator = group.accelerator
        known = listed(group)
        place = ("node_groups", i, "accelerator")
        if known is None:
            missing = _missing_figures(accelerator)
            if not missing or (accelerator.model == _NOT_STATED and cluster.metadata.sources):
                continue
            near = _meant(accelerator)
            if near or accelerator.model == _NOT_STATED:
                yield Violation(
                    at(cluster, *place, "model"),
                    f"{accelerator.model!r} is not in the catalog, and its {' and '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} not given",
                    near or "give the figures, or a catalog name; name the publication in metadata.sources",
                )
                continue
            reason = f"does not give {' and '.join(missing)} of {accelerator.model}, which the catalog does not list"
            told = f"state accelerator.{' and accelerator.'.join(missing)}"
            unresolved = unresolved or Unresolved(at(cluster, *place, "model"), reason, told)
        elif accelerator.vendor is not None and accelerator.vendor.casefold() != known.vendor:
            yield Violation(
                at(cluster, *place, "vendor"),
                f"{accelerator.vendor!r} does not make the {known.title}",
                f"the catalog has {known.vendor!r}",
            )
    if unresolved is not None:
        raise unresolved


def _meant(accelerator: Accelerator) -> str:
    """The question whether a name of the catalog was meant; empty where none is near that has as much memory."""
    own = accelerator.memory_bytes
    alike = {
        name: entry
        for name, entry in accelerators().items()
        if own is None or abs(own - entry.memory_bytes) <= _MEMORY_TOLERANCE * entry.memory_bytes
    }
    near = " or ".join(entry.name for entry in accelerators_named(accelerator.model)[:3] if entry.name in alike)
    spelt = did_you_mean(accelerator.model, alike)
    return f"did you mean {near}?" if near else meant(accelerator.model, spelt) if spelt else ""


def _missing_figures(accelerator: Accelerator) -> list[str]:
    figures = {
        "memory_bytes": accelerator.memory_bytes,
        "memory_bandwidth_bytes_per_second": accelerator.memory_bandwidth_bytes_per_second,
        "peak_rates": accelerator.peak_rates or None,
    }
    return [name for name, value in figures.items() if value is None]


@rule("TS-CLU-005")
def accelerator_figures(cluster: ClusterProfile) -> Iterator[Violation]:
    """Own figures of a listed accelerator agree with the catalog; those of others have nothing to agree with."""
    judged = False
    unlisted: list[tuple[Pointer, str]] = []
    for i, group in enumerate(cluster.node_groups):
        known, own = listed(group), group.accelerator
        place = ("node_groups", i, "accelerator")
        if known is None:
            if len(_missing_figures(own)) < _NUM_FIGURES:
                unlisted.append(((*place, "model"), own.model))
            continue
        for key, value, wanted, low, high in _figures(own, known):
            if value is None or wanted is None:
                continue
            judged = True
            if not low * wanted <= value <= high * wanted:
                say = {"watts": units.watts, "bytes": units.bytes_}.get(key.rsplit("_", 1)[1], units.bytes_per_second)
                yield Violation(
                    at(cluster, *place, key),
                    f"{key} is {say(value)}, but the catalog has {say(wanted)} for {known.title}",
                    f"write {units.base(wanted)}, leave the key out, or give the accelerator a name of its own",
                )
        if known.num_dies > 1:
            judged = True
            yield from _dies(cluster, place, own, known)
    if unlisted:
        (where, model), *_ = unlisted
        reason = f"has {model!r}, which the catalog does not list: its figures are compared with nothing"
        raise Uncovered(
            at(cluster, *where), reason, "write the catalog name, where it is an accelerator of the catalog"
        )
    if not judged:
        raise NotApplicable("no own figure of an accelerator that the catalog lists")


@rule("TS-CLU-062")
def memory_read_time(cluster: ClusterProfile) -> Iterator[Violation]:
    """Memory, and memory over its bandwidth, of an accelerator that the catalog does not have is plausible."""
    judged, (low, high) = False, _READ_SECONDS
    most = _MOST_TIMES_THE_LARGEST * max(entry.memory_bytes for entry in accelerators().values())
    for i, group in enumerate(cluster.node_groups):
        own = group.accelerator
        size, rate = own.memory_bytes, own.memory_bandwidth_bytes_per_second
        if listed(group) is not None or size is None:
            continue
        if size > most:
            judged = True
            place = at(cluster, "node_groups", i, "accelerator", "memory_bytes")
            usual = f"up to {units.bytes_(most)} is plausible{units.slipped_prefix(size, most / 1000, most)}"
            yield Violation(place, f"{units.bytes_(size)} of memory for an accelerator", usual)
        named = [int(found) * 1e9 for found in _NAMED_MEMORY.findall(own.model) if int(found)]
        if named:
            judged = True
            if not _LEAST_OF_NAMED * min(named) <= size <= _MOST_OF_NAMED * max(named):
                yield Violation(
                    at(cluster, "node_groups", i, "accelerator", "memory_bytes"),
                    f"{units.bytes_(size)} of memory for {own.model!r}, whose name says {units.bytes_(named[0])}",
                    f"write the memory of a device, such as {units.base(named[0])}, or another name",
                )
        if rate is None or size < _SMALLEST_DRAM or size > most:
            continue
        judged = True
        if not low <= size / rate <= high:
            yield Violation(
                at(cluster, "node_groups", i, "accelerator", "memory_bandwidth_bytes_per_second"),
                f"{units.bytes_(size)} are read in {units.seconds(size / rate)} at {units.bytes_per_second(rate)}",
                f"{units.seconds(low)} to {units.seconds(high)} is plausible"
                f"{units.slipped_prefix(size, low * rate, high * rate).replace('; ', '; memory_bytes: ')}",
            )
    if not judged:
        raise NotApplicable("no accelerator outside the catalog states memory, and its bandwidth or a size in its name")


@rule("TS-CLU-070")
def peak_per_byte(cluster: ClusterProfile) -> Iterator[Violation]:
    """Peak rate over memory bandwidth is plausible where the catalog has no peak to compare with."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        known, own = listed(group), group.accelerator
        rate = own.memory_bandwidth_bytes_per_second or (known.memory_bandwidth_bytes_per_second if known else None)
        if rate is None or any(_listed_peak(known, name) for name in _SIXTEEN_BITS):
            continue
        peaks = list(enumerate(own.peak_rates))
        for j, peak in [(j, peak) for j, peak in peaks if peak.format in _SIXTEEN_BITS] or peaks:
            judged = True
            low, high = (share * bound for share, bound in zip(_PEAK_RANGE[peak.format], _FLOPS_PER_BYTE, strict=True))
            ratio = peak.flops_per_second / rate
            if not low <= ratio <= high:
                yield Violation(
                    at(cluster, "node_groups", i, "accelerator", "peak_rates", j, "flops_per_second"),
                    f"{peak.format} peak of {units.flops_per_second(peak.flops_per_second)} is "
                    f"{units.number(round(ratio, 2))} operations for each byte of memory bandwidth "
                    f"({units.bytes_per_second(rate)})",
                    f"{units.number(round(low, 2))} to {units.number(round(high, 1))} operations per byte are usual; "
                    "correct the unit of one of the two",
                )
    if not judged:
        raise NotApplicable("no peak rate and memory bandwidth of an accelerator whose 16-bit peak the catalog lacks")


def _dies(cluster: ClusterProfile, place: Pointer, own: Accelerator, known: CatalogAccelerator) -> Iterator[Violation]:
    ranks = own.num_ranks_per_accelerator
    if ranks % known.num_dies:
        key = ("model",) if ranks == 1 else ("num_ranks_per_accelerator",)
        yield Violation(
            at(cluster, *place, *key),
            f"{ranks} rank on each {known.title}, which shows as {known.num_dies} devices",
            f"write num_ranks_per_accelerator: {known.num_dies}; it is 1 where it is left out",
        )


def _figures(
    own: Accelerator, known: CatalogAccelerator
) -> Iterator[tuple[str, float | None, float | None, float, float]]:
    low, high = 1 - _FIGURE_TOLERANCE, 1 + _FIGURE_TOLERANCE
    yield "memory_bytes", own.memory_bytes, known.memory_bytes, *_MEMORY_SHARE
    key = "memory_bandwidth_bytes_per_second"
    yield key, own.memory_bandwidth_bytes_per_second, known.memory_bandwidth_bytes_per_second, low, high
    yield "power_watts", own.power_watts, known.power_watts, *_POWER_SHARE


@rule("TS-CLU-006")
def dense_peak(cluster: ClusterProfile) -> Iterator[Violation]:
    """Own peak rates of a listed accelerator are the catalog's dense ones."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        known = listed(group)
        for j, peak in enumerate(group.accelerator.peak_rates):
            wanted = _listed_peak(known, peak.format)
            if known is None or wanted is None:
                continue
            judged = True
            if within(peak.flops_per_second, wanted, _FIGURE_TOLERANCE):
                continue
            told = f"write {units.base(wanted)}"
            if within(peak.flops_per_second, 2 * wanted, _FIGURE_TOLERANCE):
                told += "; twice the dense rate is the figure for structured sparsity"
            yield Violation(
                at(cluster, "node_groups", i, "accelerator", "peak_rates", j, "flops_per_second"),
                f"{peak.format} peak is {units.flops_per_second(peak.flops_per_second)}, but "
                "the dense peak of "
                f"{known.title} is {units.flops_per_second(wanted)}",
                told,
            )
    if not judged:
        raise NotApplicable("no own peak rate of an accelerator and number format that the catalog lists")


def _listed_peak(known: CatalogAccelerator | None, name: str) -> float | None:
    """Dense peak that the catalog has for a number format; all eight-bit floats share one."""
    if known is None:
        return None
    return known.peak_flops_per_second.get("fp8" if name in _EIGHT_BITS else name)


@rule("TS-CLU-007")
def peak_order(cluster: ClusterProfile) -> Iterator[Violation]:
    """Peak rates of narrow and wide formats have a plausible relation to the 16-bit peak."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        own = {peak.format: peak.flops_per_second for peak in group.accelerator.peak_rates}
        known = listed(group)
        base = own.get("bf16") or own.get("fp16") or (known.peak_flops_per_second.get("bf16") if known else None)
        if base is None:
            continue
        for j, peak in enumerate(group.accelerator.peak_rates):
            judged = True
            low, high = _PEAK_RANGE[peak.format]
            ratio = peak.flops_per_second / base
            if not low <= ratio <= high:
                yield Violation(
                    at(cluster, "node_groups", i, "accelerator", "peak_rates", j, "flops_per_second"),
                    f"{peak.format} peak is {ratio:.3g} times the 16-bit peak of {units.flops_per_second(base)}",
                    f"between {units.base(low * base)} and {units.base(high * base)} is plausible",
                )
    if not judged:
        raise NotApplicable("no group has own peak rates and a 16-bit peak")
