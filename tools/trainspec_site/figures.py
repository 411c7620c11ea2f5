"""Draws the figures of the site, from the formulas and the chapters that the text rests on."""

from __future__ import annotations

import re
from pathlib import Path

import appendix_machines

from trainspec_site import chapter_figures, model_figures
from trainspec_site.svg import COLOURS, Axis, Drawing, Plot
from trainspec_validate.performance.costs import collectives, memory, reliability

MIB = 2**20
MARK_ROW = re.compile(
    r"^\|\s*(?P<mark>[a-z ]+?)\s*\|(?P<when>[^|]+)\|(?P<record>[^|]*)\|\s*(?P<phase>[^|]*?)\s*\|$", re.MULTILINE
)
NUM_RANKS = 128
MEAN_TIMES_SECONDS = ((3600, "1 h"), (6 * 3600, "6 h"), (24 * 3600, "24 h"))
BLOCKING_SECONDS, RECOVERY_SECONDS = 30, 600
DEGREES = tuple(2**exponent for exponent in range(11))


def figures(root: Path) -> dict[str, str]:
    """Text of each figure, by its file name."""
    recovery = (root / "spec" / "v1" / "11-recovery.md").read_text(encoding="utf-8")
    drawings = {
        "documents.svg": documents(),
        "objects.svg": model_figures.objects(),
        "run.svg": model_figures.run(),
        "recovery.svg": recovery_line(recovery),
        "collectives.svg": crossover(),
        "interval.svg": interval(),
        "sharding.svg": sharding(),
        **chapter_figures.all_figures(),
    }
    return {name: drawing.text() for name, drawing in drawings.items()}


def documents() -> Drawing:
    """Documents that describe a run, files that the run writes, and the references between them."""
    drawing = Drawing(
        760, 300, "The documents and how they refer to each other",
        "A training plan names a cluster profile. A checkpoint policy names both. A run is started from the plan; it "
        "writes metric streams and checkpoints with a manifest, which are judged against plan, policy and profile.",
    )  # fmt: skip
    size = (170, 56)
    corners = {"ClusterProfile": (20, 30), "TrainingPlan": (20, 120), "CheckpointPolicy": (20, 210)}
    words = {"ClusterProfile": "what a machine is", "TrainingPlan": "what a job does with it",
             "CheckpointPolicy": "how it saves and returns"}  # fmt: skip
    for kind, corner in corners.items():
        drawing.box(corner, size, (kind, words[kind]))
    for upper, lower in ((30, 120), (120, 210)):
        drawing.arrow((105, lower), (105, upper + 58))
    drawing.line((20, 238), (8, 238))
    drawing.line((8, 238), (8, 58))
    drawing.arrow((8, 58), (19, 58))
    drawing.box((300, 120), (160, 56), ("a run", "one or more attempts"))
    drawing.box((550, 60), size, ("MetricStream", "what the run reported"))
    drawing.box((550, 180), size, ("CheckpointManifest", "what it saved"))
    drawing.arrow((190, 148), (298, 148))
    drawing.arrow((460, 140), (548, 92))
    drawing.arrow((460, 156), (548, 204))
    drawing.words((205, 138), "is started from")
    drawing.words((450, 110), "writes")
    drawing.words((200, 284), "Streams and checkpoints are judged together with the documents that promised them.")
    return drawing


def recovery_line(chapter: str) -> Drawing:
    """The marks of a recovery in their order, as the table of the chapter has them."""
    rows = [row for row in MARK_ROW.finditer(chapter) if row["mark"] != "mark"]
    marks = [row["mark"] for row in rows]
    drawing = Drawing(
        960, 220, "The time line of a recovery",
        f"Seven marks in this order: {', '.join(marks)}. A phase of the recovery ends at each mark that names one.",
    )  # fmt: skip
    step = (drawing.width - 120) / (len(rows) - 1)
    drawing.line((40, 90), (drawing.width - 20, 90), extra=' stroke-width="2" marker-end="url(#head)"')
    begin = 60.0
    for number, row in enumerate(rows):
        x = 60 + number * step
        drawing.line((x, 78), (x, 102), COLOURS[0], ' stroke-width="3"')
        drawing.words((x, 62), row["mark"], anchor="middle", bold=True)
        record = re.search(r"`train\.([a-z_.]+)`", row["record"])
        drawing.words((x, 122 + 18 * (number % 2)), record[1] if record else "no record", anchor="middle")
        phase = row["phase"].strip().strip("`")
        if phase:
            drawing.line((begin + 4, 176), (x - 4, 176), COLOURS[1], ' stroke-width="4"')
            drawing.words(((begin + x) / 2, 196), phase, anchor="middle", colour=COLOURS[1])
        if phase or not number:
            begin = x
    drawing.words((12, 30), "marks, their records (below train.), and the phases of train.recovery.duration")
    return drawing


def crossover() -> Drawing:
    """Bus time of an all-reduce by message size for three algorithms on one machine."""
    drawing = Drawing(
        820, 420, "Ring, tree and hierarchical all-reduce by message size",
        f"Time of an all-reduce over {NUM_RANKS} ranks on nodes of eight with NVLink 4 and InfiniBand of 400 Gb/s. "
        "Trees are fastest for small messages. Rings take longer to start and are fastest for large ones.",
    )  # fmt: skip
    sizes = [MIB / 64 * 2 ** (number / 2) for number in range(45)]
    network = appendix_machines.switched(NUM_RANKS, "infiniband")
    names = ("ring", "tree", "hierarchical")
    curves = {
        name: [(each, collectives.estimate("all-reduce", each, network, name).seconds) for each in sizes]
        for name in names
    }
    across = Axis("message of a rank", sizes[0], sizes[-1], _sizes(sizes[0], sizes[-1]))
    low = min(seconds for points in curves.values() for _, seconds in points)
    up = Axis("seconds, logarithmic", low / 1.5, max(points[-1][1] for points in curves.values()) * 1.5,
              [(value, word) for value, word in _TIMES if low <= value < 0.5])  # fmt: skip
    plot = Plot(drawing, across, up)
    plot.frame()
    plot.curves(curves)
    return drawing


_TIMES = ((1e-5, "10 us"), (1e-4, "100 us"), (1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "100 ms"), (1.0, "1 s"))


def _sizes(low: float, high: float) -> list[tuple[float, str]]:
    named = [
        (2**14, "16 KiB"),
        (2**18, "256 KiB"),
        (2**22, "4 MiB"),
        (2**26, "64 MiB"),
        (2**30, "1 GiB"),
        (2**34, "16 GiB"),
    ]
    return [(value, word) for value, word in named if low <= value <= high]


def interval() -> Drawing:
    """Share of the time that makes lasting progress, by the interval between saves."""
    drawing = Drawing(
        820, 420, "Interval between saves against effective training time",
        f"Saves block {BLOCKING_SECONDS} s and a recovery takes {RECOVERY_SECONDS} s. Each curve, for one mean time "
        "between failures, is flat around its best interval and falls to both sides. A dot marks the computed one.",
    )  # fmt: skip
    seconds = [60 * 2 ** (number / 4) for number in range(37)]
    across = Axis("interval", seconds[0], seconds[-1],
                  ((60, "1 min"), (300, "5 min"), (1800, "30 min"), (7200, "2 h"), (28800, "8 h")))  # fmt: skip
    up = Axis("effective share of the time", 0.0, 1.0, [(n / 5, f"{n * 20} %") for n in range(6)], logarithmic=False)
    plot = Plot(drawing, across, up, (24, 170, 50, 80))
    plot.frame()
    curves: dict[str, list[tuple[float, float]]] = {}
    for (mean, word), colour in zip(MEAN_TIMES_SECONDS, COLOURS, strict=False):

        def share(each: float, mean: float = mean) -> float:
            return reliability.effective_training_time_ratio(each, BLOCKING_SECONDS, mean, RECOVERY_SECONDS)

        curves[f"a failure every {word}"] = [(each, share(each)) for each in seconds]
        best = reliability.recommended_interval(BLOCKING_SECONDS, mean)
        x, y = plot.place(best, share(best))
        drawing.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
    plot.curves(curves)
    return drawing


def sharding() -> Drawing:
    """Bytes of a parameter on one rank, by what the data ranks share out."""
    drawing = Drawing(
        820, 420, "Memory of a rank by sharding",
        "Bytes of one parameter with Adam, bf16 weights and fp32 gradients. With nothing sharded a rank holds 18. "
        "Sharding the optimizer comes down to 6, gradients too to 2, and weights too towards none as ranks are added.",
    )  # fmt: skip
    state = memory.model_state("bf16", "fp32", "fp32", "fp32")
    across = Axis("data ranks that share one copy", 1, DEGREES[-1], [(each, f"{each:,}") for each in DEGREES[::2]])
    up = Axis("bytes per parameter", 0.0, 20.0, [(n, str(n)) for n in range(0, 21, 4)], logarithmic=False)
    plot = Plot(drawing, across, up, (24, 190, 50, 60))
    plot.frame()
    words = ("nothing sharded", "optimizer", "and gradients", "and weights")
    curves = {
        f"ZeRO-{stage}: {word}": [(each, memory.sharded_bytes_per_parameter(state, stage, each)) for each in DEGREES]
        for stage, word in enumerate(words)
    }
    plot.curves(curves)
    return drawing


PAGE = """\
<!-- Generated by tools/trainspec_site/figures.py; never edited. To make it: make generate -->

# Figures

Curves are drawn by the code that the validator and the planner compute with. This page is informative.
"""
TEXTS = {
    "documents.svg": "Which document refers to which is specified in [documents](v1/01-documents.md).",
    "objects.svg": "The objects are introduced in the [model](v1/00-model.md).",
    "run.svg": "Steps, checkpoints and lost work are introduced in the [model](v1/00-model.md).",
    "recovery.svg": "The marks and their records are those of [recovery](v1/11-recovery.md).",
    "collectives.svg": "The formulas and the choices of libraries are under [collectives](reference/collectives.md).",
    "interval.svg": "The formulas are under [reliability](reference/reliability.md).",
    "sharding.svg": "The formulas are under [memory](reference/memory.md).",
    "cluster.svg": "The keys are those of the [cluster profile](v1/02-cluster.md).",
    "topology.svg": "Tiers are specified in [topology](v1/03-topology.md).",
    "ranks.svg": "The order is specified in [parallelism](v1/04-parallelism.md).",
    "formats.svg": "The content of each tensor of a plan is specified in [precision](v1/07-precision.md).",
    "batch.svg": "The identity is specified in [batch](v1/08-batch.md).",
    "telemetry.svg": "Streams are specified in [telemetry](v1/09-telemetry.md).",
    "energy.svg": "Boundaries are specified in [energy](v1/12-energy.md).",
    "loading.svg": "The checks are those of [security](v1/13-security.md).",
    "plausible.svg": "The bounds are those of [plausible figures](v1/15-plausible-clusters.md).",
    "conformance.svg": "Scenarios and verdicts are specified in [conformance](v1/14-conformance.md).",
}


def page(texts: dict[str, str]) -> str:
    """The page with all figures, each with its title and its description in words."""
    lines = [PAGE]
    for name, text in texts.items():
        title, words = (re.search(rf"<{tag} id=[^>]*>([^<]*)<", text) for tag in ("title", "desc"))
        if title is None or words is None:
            raise ValueError(f"{name} has no title or no description")
        lines += [f"## {title[1]}", "", f'<figure><img src="../figures/{name}" alt="{words[1]}"></figure>', ""]
        lines += [f"{words[1]} {TEXTS[name]}", ""]
    return "\n".join(lines)
