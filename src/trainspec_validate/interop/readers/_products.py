"""Writes what the accelerators of a node are and how many packages they make up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainspec_validate.interop.readers._accelerators import Match, vendor_of
from trainspec_validate.interop.readers._draft import Draft, shown


def count_accelerators(draft: Draft, num_devices: int, num_dies: int = 1) -> None:
    """Writes the number of packages that `num_devices` devices make up."""
    key = "num_accelerators_per_node"
    if num_devices == 0:
        draft.group_unknown(key, reason="the source shows no accelerator")
    elif num_devices % num_dies:
        draft.group_unknown(key, reason=f"{num_devices} devices are no whole number of packages of {num_dies} dies")
        draft.remark(f"{num_devices} devices do not make up packages of {num_dies} dies each")
    elif num_dies > 1:
        how = f"{num_devices} devices, {num_dies} of them on each package"
        draft.group(key, value=num_devices // num_dies, how=how)
        draft.group("accelerator", "num_ranks_per_accelerator", value=num_dies, how="one rank on each device")
    else:
        draft.group(key, value=num_devices)


def accelerator_model(
    draft: Draft,
    matches: Sequence[Match | None],
    how: str,
    identities: Collection[tuple[str | None, str | None]] = (),
) -> int:
    """Writes model and maker when every device is the same product; returns the dies of one package.

    `identities` are the PCI vendors and devices that were matched, where that is what was seen.
    """
    models = sorted({match.model if match else "" for match in matches})
    match = matches[0] if matches else None
    if len(models) != 1 or match is None:
        reason = "the devices are not all of one known product" if any(models) else "the source names no product"
        known = [f"{vendor}:{device}" for vendor, device in identities if vendor and device]
        if known and not any(models):
            reason = f"the catalog has no product for the PCI identifier {shown(sorted(known))}"
        makers = {vendor_of(vendor) for vendor, _ in identities}
        if len(makers) == 1 and None not in makers:
            draft.group("accelerator", "vendor", value=makers.pop(), how="PCI vendor identifier")
        draft.group_unknown("accelerator", "model", reason=f"{reason}; see the vendor's own tool")
        if len(models) > 1:
            draft.remark(f"accelerators differ within the node: {', '.join(name or 'unnamed' for name in models)}")
        return 1
    if match.alternatives:
        reason = f"the name {match.model} leaves open which it is of {', '.join(match.alternatives)}"
        draft.group_unknown("accelerator", "model", reason=reason)
        return 1
    draft.group("accelerator", "model", value=match.model, how=how)
    if match.entry is None:
        for key in ("memory_bytes", "memory_bandwidth_bytes_per_second", "peak_rates"):
            draft.group_unknown("accelerator", key, reason="the catalog does not have this product; see its data sheet")
    if match.vendor is not None:
        draft.group("accelerator", "vendor", value=match.vendor, how="the maker of the product")
    return match.entry.num_dies if match.entry else 1
