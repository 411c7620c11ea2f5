"""Draws the figures that chapters open with: boxes and arrows, and the bits of number formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from trainspec_site.svg import COLOURS, GREY, INK, Drawing
from trainspec_validate.model.catalog import accelerators

FORMATS = (("FP32", 8, 23), ("BF16", 8, 7), ("FP16", 5, 10), ("E5M2", 5, 2), ("E4M3", 4, 3), ("E2M1", 2, 1))
"""Bits of exponent and of fraction by number format; each has a bit of sign."""
BIT_PIXELS = 14
LEAST_DRAM_SECONDS = 0.001
"""Memory on the chip is read in less."""
TENSOR, PIPELINE, DATA = 4, 2, 2
"""Degrees of the plan whose ranks are drawn."""


def all_figures() -> dict[str, Drawing]:
    """Every figure of this module, by the name of its file."""
    drawn: Mapping[str, Callable[[], Drawing]] = {
        "cluster": cluster,
        "topology": topology,
        "ranks": ranks,
        "formats": formats,
        "batch": batch,
        "telemetry": telemetry,
        "energy": energy,
        "loading": loading,
        "conformance": conformance,
        "plausible": plausible,
    }
    return {f"{name}.svg": draw() for name, draw in drawn.items()}


def cluster() -> Drawing:
    """The parts of a node and what joins them."""
    drawing = Drawing(
        820, 250, "The parts of a cluster profile",
        "A node has a host with memory, accelerators and compute NICs. Host links join host, accelerators and NICs. "
        "Scale-up links join accelerators to a scale-up domain. NICs lead to a fabric, which joins nodes and storage.",
    )  # fmt: skip
    drawing.parts.append(f'<rect x="10" y="20" width="520" height="200" rx="8" fill="none" stroke="{GREY}"/>')
    drawing.words((24, 42), "node", bold=True)
    drawing.box((20, 90), (134, 60), ("host", "processor, memory"))
    drawing.box((210, 50), (150, 60), ("accelerator", "memory, peak rates"))
    drawing.box((210, 140), (150, 60), ("accelerator", "memory, peak rates"))
    drawing.box((404, 90), (114, 60), ("compute NIC", "rate, slot"))
    for y in (80, 170):
        drawing.line((154, 120), (210, y))
        drawing.line((360, y), (404, 120))
    drawing.line((285, 110), (285, 140), COLOURS[1], ' stroke-width="4"')
    drawing.words((295, 130), "scale-up link", colour=COLOURS[1])
    drawing.words((152, 78), "host link")
    drawing.box((590, 40), (200, 60), ("fabric", "tiers, oversubscription"))
    drawing.box((590, 150), (200, 60), ("storage target", "rates, space, survival"))
    drawing.line((518, 120), (590, 70))
    drawing.line((690, 100), (690, 150))
    return drawing


def topology() -> Drawing:
    """Tiers of a fabric above the nodes."""
    drawing = Drawing(
        820, 260, "Tiers of a fabric",
        "Nodes form scale-up domains. Their NICs lead to leaves, leaves to spines. Where the uplinks of a leaf carry "
        "less than its links down, the tier is oversubscribed. Messages are cheapest in a domain, then below one leaf.",
    )  # fmt: skip
    leaves = (60, 260, 460)
    for x in (160, 360):
        drawing.box((x, 20), (130, 44), ("spine",))
        for leaf in leaves:
            drawing.line((x + 65, 64), (leaf + 65, 110))
    for leaf in leaves:
        drawing.box((leaf, 110), (130, 44), ("leaf",))
        for node in (leaf - 10, leaf + 75):
            drawing.box((node, 200), (70, 44), ("node",))
            drawing.line((leaf + 65, 154), (node + 35, 200), INK, ' stroke-width="2"')
    rows = ((46, "tier 2: joins all leaves"), (92, "uplinks: oversubscription"), (136, "tier 1: joins some nodes"),
            (226, "scale-up domain"))  # fmt: skip
    for y, text in rows:
        drawing.words((630, y), text, colour=COLOURS[0])
    return drawing


def ranks() -> Drawing:
    """The ranks of a plan in the order of its dimensions."""
    count = TENSOR * PIPELINE * DATA
    drawing = Drawing(
        820, 230, "Ranks and parallelism dimensions",
        f"{count} ranks as TP {TENSOR}, DP {DATA} and PP {PIPELINE}, with the dimensions in this order from adjacent "
        f"ranks outwards. TP groups are neighbours, DP groups have the stride {TENSOR}, pipeline stages the stride "
        f"{TENSOR * DATA}.",
    )  # fmt: skip
    width = 44
    for rank in range(count):
        stage, group = divmod(rank, TENSOR * DATA)
        x, y = 150 + (rank % (TENSOR * DATA)) * width + (group // TENSOR) * 24, 50 + stage * 90
        drawing.box((x, y), (width - 6, 40), (str(rank),))
    for stage in range(PIPELINE):
        drawing.words((20, 75 + stage * 90), f"pipeline stage {stage}", bold=True)
        for group in range(DATA):
            x = 150 + group * (TENSOR * width + 24)
            drawing.line((x, 98 + stage * 90), (x + TENSOR * width - 6, 98 + stage * 90), COLOURS[1])
            drawing.words((x, 113 + stage * 90), "TP group", colour=COLOURS[1])
    drawing.words((150, 36), "data rank 0", bold=True)
    drawing.words((150 + TENSOR * width + 24, 36), "data rank 1", bold=True)
    words = (f"{TENSOR} x {DATA} x {PIPELINE} = {count} ranks", f"DP group of rank 0: 0, {TENSOR}",
             f"PP group of rank 0: 0, {TENSOR * DATA}")  # fmt: skip
    for number, line in enumerate(words):
        drawing.words((560, 75 + number * 24), line)
    return drawing


def formats() -> Drawing:
    """Sign, exponent and fraction of number formats, one square for each bit."""
    drawing = Drawing(
        820, 290, "Bits of number formats",
        "One bit of sign each. FP32 has 8 bits of exponent and 23 of fraction, BF16 8 and 7, FP16 5 and 10, E5M2 5 and "
        "2, E4M3 4 and 3, E2M1 2 and 1. Bits of exponent are range, bits of fraction are precision.",
    )  # fmt: skip
    for row, (name, exponent, fraction) in enumerate(FORMATS):
        y = 20 + row * 38
        drawing.words((20, y + 17), name, bold=True)
        colours = [COLOURS[4], *[COLOURS[1]] * exponent, *[COLOURS[0]] * fraction]
        for bit, colour in enumerate(colours):
            drawing.parts.append(
                f'<rect x="{90 + bit * BIT_PIXELS}" y="{y}" width="{BIT_PIXELS - 2}" height="24" fill="{colour}"/>'
            )
        step = f"next number after 1: 1 + 1/{2**fraction:,}"
        drawing.words((90 + len(colours) * BIT_PIXELS + 10, y + 17), step)
    for number, (word, colour) in enumerate((("sign", COLOURS[4]), ("exponent", COLOURS[1]), ("fraction", COLOURS[0]))):
        drawing.words((90 + number * 110, 274), word, colour=colour, bold=True)
    return drawing


def batch() -> Drawing:
    """How the batch of an optimizer step consists of micro-batches."""
    drawing = Drawing(
        820, 220, "The batch of an optimizer step",
        "Each data rank runs its accumulation steps one after another, each on a micro-batch. Gradients are averaged "
        "over all of them, and one optimizer step follows. The batch is data ranks times accumulation steps times "
        "the micro-batch.",
    )  # fmt: skip
    for rank in range(3):
        drawing.words((20, 52 + rank * 56), f"data rank {rank}", bold=True)
        for step in range(4):
            drawing.box((118 + step * 100, 28 + rank * 56), (96, 40), ("micro-batch",))
        drawing.arrow((515, 48 + rank * 56), (578, 104))
    drawing.box((580, 76), (100, 56), ("average", "gradients"))
    drawing.arrow((680, 104), (708, 104))
    drawing.box((710, 76), (100, 56), ("optimizer", "step"))
    drawing.words((120, 208), "accumulation steps, in time order: 3 x 4 x the micro-batch is the batch")
    return drawing


def telemetry() -> Drawing:
    """From the writers of a run to those who read it."""
    return _chain(
        "From writers to readers",
        "Each rank, node and controller of a run writes a stream: a header, then samples and events with sequence "
        "numbers. Agents deliver streams, and can lose or delay records. The validator compares them with the catalog, "
        "with each other and with the documents; dashboards and alerts read the same metrics.",
        (("writers", "ranks, nodes,", "controller"), ("streams", "header, samples,", "events"),
         ("delivery", "loss, delay,", "cardinality"), ("readers", "validator,", "dashboards, alerts")),
    )  # fmt: skip


def energy() -> Drawing:
    """The boundaries of an energy account, one inside the other."""
    drawing = Drawing(
        820, 250, "Boundaries of an energy account",
        "Devices are inside nodes, nodes with the network form the next boundary, and the facility adds cooling and "
        "conversion. An account names its boundary, since each one has another sum.",
    )  # fmt: skip
    words = ("facility: cooling, conversion (PUE)", "node-and-network: switches", "node: hosts, fans, NICs",
             "device")  # fmt: skip
    for level, text in enumerate(words):
        x, y = 20 + level * 60, 12 + level * 34
        drawing.parts.append(
            f'<rect x="{x}" y="{y}" width="{620 - level * 120}" height="{226 - level * 54}" rx="8" fill="none" '
            f'stroke="{COLOURS[level]}" stroke-width="2"/>'
        )
        drawing.words((x + 14, y + 22), text, colour=COLOURS[level], bold=True)
    drawing.words((660, 100), "energy = sum over")
    drawing.words((660, 120), "what is inside")
    return drawing


def plausible() -> Drawing:
    """The time to read all memory, of each accelerator of the catalog with DRAM, between the bounds of the annex."""
    drawing = Drawing(
        820, 190, "A plausible figure",
        "The time to read all memory, for each accelerator of the catalog with DRAM, is between 19 ms and 0.47 s. The "
        "bounds are 10 ms and 1 s. A slipped prefix moves a figure a thousand times, beyond a bound.",
    )  # fmt: skip

    def x(seconds: float) -> float:
        return 410 + 130 * math.log10(seconds / 0.1)

    low, high = x(0.01), x(1)
    drawing.parts.append(f'<rect x="{low:.1f}" y="60" width="{high - low:.1f}" height="50" fill="#eef2fb"/>')
    drawing.line((20, 110), (800, 110))
    for seconds, word in ((1e-4, "0.1 ms"), (1e-3, "1 ms"), (0.01, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"),
                          (100, "100 s")):  # fmt: skip
        drawing.line((x(seconds), 110), (x(seconds), 116))
        drawing.words((x(seconds), 134), word, anchor="middle")
    for row in accelerators().values():
        seconds = row.memory_bytes / (row.memory_bandwidth_bytes_per_second or math.inf)
        if seconds > LEAST_DRAM_SECONDS:
            drawing.line((x(seconds), 68), (x(seconds), 102), COLOURS[0])
    drawing.words((410, 50), "published accelerators: time to read all memory", anchor="middle", bold=True)
    drawing.arrow((x(0.04), 160), (x(0.04 / 1000), 160))
    drawing.words((x(0.04) + 8, 164), "one slipped prefix: 1,000 times")
    return drawing


def loading() -> Drawing:
    """Checks of a foreign checkpoint before it is loaded."""
    return _chain(
        "A checkpoint from elsewhere",
        "A checkpoint comes from a store that others can write to. It is read as data: names in pickles, paths and "
        "links, and sizes of metadata are checked. Only then does a loader see it.",
        (("checkpoint", "from a store of", "others"), ("read as data", "no import,", "no call"),
         ("three checks", "names, paths,", "sizes"), ("loader", "of the training", "stack")),
    )  # fmt: skip


def conformance() -> Drawing:
    """How the suite tests a stack."""
    return _chain(
        "How a stack is tested",
        "A descriptor says how a stack is launched. The suite launches it, injects a fault, and observes trace, "
        "streams and checkpoints. A report holds a verdict for each scenario, with the evidence it rests on.",
        (("descriptor", "commands, claims,", "capabilities"), ("suite", "launches and", "injects faults"),
         ("evidence", "trace, streams,", "checkpoints"), ("report", "verdicts and the", "level reached")),
    )  # fmt: skip


def _chain(title: str, description: str, boxes: Sequence[Sequence[str]]) -> Drawing:
    """Boxes from left to right, with an arrow from each to the next."""
    drawing = Drawing(820, 120, title, description)
    for number, words in enumerate(boxes):
        x = 16 + number * 204
        drawing.box((x, 20), (170, 76), words)
        if number:
            drawing.arrow((x - 34, 58), (x - 2, 58))
    return drawing
