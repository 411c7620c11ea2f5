"""Writes the starter of a cluster profile."""

from __future__ import annotations

import math

from trainspec_validate.documents.commented import body, figure, head
from trainspec_validate.model.catalog import links
from trainspec_validate.performance.costs import reliability
from trainspec_validate.planner.starter.machines import assumed, missing_figures
from trainspec_validate.planner.starter.sizing import FAILURES, Sizes

NAME = "my-cluster"
SPARE_SECONDS = 60
REPAIR_SECONDS = 86400.0
Lines = list[tuple[str, str]]


def document(sizes: Sizes) -> str:
    """A cluster of equal nodes with customary network and storage."""
    build, known = sizes.build, sizes.accelerator
    total = sizes.num_nodes * build.num_per_node
    lines: Lines = [
        ("metadata:", ""),
        (f"  name: {NAME}", "replace"),
        (f"num_nodes: {sizes.num_nodes}", "chosen"),
        (f"num_accelerators: {total}", "derived: nodes times accelerators of a node"),
        ("node_groups:", ""),
        ("  - name: compute", "replace"),
        (f"    num_nodes: {sizes.num_nodes}", "chosen"),
        (f"    num_accelerators_per_node: {build.num_per_node}", "replace"),
        *_accelerator(sizes),
    ]
    lines += [*_host(sizes), *_scale_up(sizes), *_network(sizes), *_storage(sizes), *_rest(sizes)]
    return head("ClusterProfile", f"{sizes.num_nodes} nodes of {build.num_per_node} {known.title}.") + body(lines)


def _accelerator(sizes: Sizes) -> Lines:
    known, missing = sizes.accelerator, missing_figures(sizes.accelerator)
    lines: Lines = [("    accelerator:", "")]
    if "model" in missing:
        lines.append((f"      model: {known.name}", "fill in: the name of its maker and product"))
    else:
        lines.append((f"      model: {known.name}", f"chosen: {known.title}"))
    if "memory_bytes" in missing:
        lines.append(("      # memory_bytes:", "fill in: total that the device reports, 80 GiB is 85.9e9"))
    else:
        lines.append((f"      memory_bytes: {figure(known.memory_bytes)}", "catalog"))
    if "memory_bandwidth_bytes_per_second" in missing:
        lines.append(("      # memory_bandwidth_bytes_per_second:", "fill in: of one, 2 TB/s is 2e12"))
    lines.append(("      peak_rates:" if known.peak_flops_per_second else "      # peak_rates:", ""))
    for number_format, rate in known.peak_flops_per_second.items():
        lines.append((f"        - {{format: {number_format}, flops_per_second: {figure(rate)}}}", "catalog: dense"))
    if "peak_rates" in missing:
        text = f"      #   - {{format: {sizes.build.format}, flops_per_second: }}"
        lines.append((text, "fill in: dense rate of one, 300 TFLOP/s is 300e12"))
    if known.power_watts:
        lines.append((f"      power_watts: {figure(known.power_watts)}", "catalog"))
    if sizes.build.num_ranks > 1:
        lines.append((f"      num_ranks_per_accelerator: {sizes.build.num_ranks}", "catalog: one rank on each die"))
    return lines


def _host(sizes: Sizes) -> Lines:
    build = sizes.build
    devices = build.num_per_node * assumed(sizes.accelerator).memory_bytes
    lines: Lines = [
        ("    host:", ""),
        ("      num_sockets: 2", "replace"),
        ("      num_numa_nodes: 2", "replace"),
        (f"      num_cores: {12 * build.num_per_node}", "replace"),
        (f"      memory_bytes: {figure(max(64e9, 2 * devices))}", "replace"),
    ]
    if build.host_link:
        lines.append((f"    host_link: {build.host_link}", "replace"))
    return lines


def _scale_up(sizes: Sizes) -> Lines:
    known = sizes.accelerator
    if not known.scale_up:
        return []
    technology, generation = known.scale_up["technology"], known.scale_up["generation"]
    lines: Lines = [
        ("    scale_up:", ""),
        (f"      technology: {technology}", "catalog"),
        (f'      generation: "{generation}"', "catalog"),
        (f"      topology: {sizes.build.topology}", "replace"),
        (f"      domain_num_accelerators: {sizes.domain}", "replace"),
    ]
    if sizes.used != sizes.domain:
        lines.append((f"      used_num_accelerators: {sizes.used}", "derived: divides the nodes evenly"))
    if sizes.build.topology == "torus":
        extents = torus(sizes.domain, 2 if sizes.domain <= 256 and generation in {"v5e", "v6e", "3"} else 3)
        lines.append((f"      dimensions: [{', '.join(map(str, extents))}]", "replace"))
        ends = ", ".join("true" if extent > 2 else "false" for extent in extents)
        lines.append((f"      wraparound: [{ends}]", "replace"))
    row = links().scale_up.get((technology, generation))
    if row is not None:
        one_node = sizes.domain <= sizes.build.num_per_node
        rate = (one_node and row.node_bandwidth_bytes_per_second) or row.bandwidth_bytes_per_second
        lines.append((f"      bandwidth_bytes_per_second: {figure(rate)}", "catalog: one way, all links together"))
    return lines


def torus(size: int, num_axes: int) -> list[int]:
    """Extents that multiply to a size, as equal as its divisors allow, smallest first."""
    extents: list[int] = []
    for axis in range(num_axes, 1, -1):
        root = round(size ** (1 / axis))
        extent = max(divisor for divisor in range(1, root + 1) if size % divisor == 0)
        extents.append(extent)
        size //= extent
    return sorted([*extents, size])


def _network(sizes: Sizes) -> Lines:
    if sizes.num_nodes == 1:
        return []
    build, network = sizes.build, sizes.build.network
    gigabits = float(network["rate"]) * 8 / 1e9
    served = max(1, build.num_per_node // build.num_nics)
    lines: Lines = [
        ("    nics:", ""),
        ("      - name: rail", "replace"),
        ("        role: compute", ""),
        ("        fabric: backend", ""),
        (f"        num_per_node: {build.num_nics}", "replace"),
        (f"        technology: {network['technology']}", "replace"),
    ]
    if build.num_nics > build.num_per_node:
        each = build.num_nics // build.num_per_node
        lines.append((f"        num_per_accelerator: {each}", "derived: NICs of a node over its accelerators"))
    if "generation" in network:
        lines.append((f'        generation: "{network["generation"]}"', "replace"))
    return [
        *lines,
        (f"        rate_bytes_per_second: {network['rate']}", f"replace: that is {gigabits:.4g} Gb/s, one way"),
        (f"        num_accelerators_served: {served}", "derived: accelerators that share one NIC"),
        ("fabrics:", ""),
        ("  - name: backend", ""),
        (f"    transport: {network['transport']}", "replace"),
        ("    topology: fat-tree", "replace, and describe the switch layers under tiers"),
    ]


def _storage(sizes: Sizes) -> Lines:
    rate = figure(sizes.storage_bytes_per_second)
    num_copies = 100 if sizes.num_nodes <= 4096 else 250  # more nodes fail more often, and save more often
    capacity = figure(_round_up(max(num_copies * sizes.checkpoint_bytes, 1000 * sizes.storage_bytes_per_second)))
    return [
        ("storage_targets:", ""),
        ("  - name: shared-files", ""),
        ("    kind: parallel-file-system", "replace"),
        ("    scope: cluster", ""),
        (f"    write_bandwidth_bytes_per_second: {rate}", "replace: of the whole target"),
        (f"    read_bandwidth_bytes_per_second: {rate}", "replace: of the whole target"),
        (f"    capacity_bytes: {capacity}", "replace"),
        ("    atomic_rename: true", "replace"),
        ("    failure_domain: cluster", ""),
    ]


def _rest(sizes: Sizes) -> Lines:
    return [
        ("reliability:", ""),
        (f"  failures_per_1000_node_days: {FAILURES}", "replace: published for 2048 nodes, arXiv:2410.21680"),
        ("  source: default", "replace by measured, with num_failures and node_days"),
        (f"  num_spare_nodes: {_num_spares(sizes)}", "derived: enough in 99 of 100 repair times"),
        (f"  replacement_seconds: {figure(REPAIR_SECONDS)}", "replace"),
        (f"  spare_start_seconds: {SPARE_SECONDS}", "replace"),
        ("clock:", ""),
        ("  discipline: ntp", "replace"),
        ("  max_offset_seconds: 0.001", "replace"),
        ("software:", ""),
        (f"  collective_library: {{name: {sizes.build.library}}}", "replace: add the exact version"),
    ]


def _num_spares(sizes: Sizes) -> int:
    return max(1, reliability.spare_nodes(sizes.num_nodes, FAILURES, REPAIR_SECONDS, 0.99))


def _round_up(value: float) -> float:
    power = 10 ** math.floor(math.log10(value))
    return float(math.ceil(value / power) * power)
