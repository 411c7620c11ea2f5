"""Draws the figures of the page that introduces the model: its objects, and the steps of a run with one fault."""

from __future__ import annotations

from trainspec_site.svg import COLOURS, INK, Drawing

STEPS_BEFORE_FAULT, SAVED_STEPS, STEPS_AFTER = 7, (3, 6), (7, 8, 9, 10)


def objects() -> Drawing:
    """Cluster, job and what a run writes, each with its parts below."""
    drawing = Drawing(
        780, 330, "The objects of the model",
        "A cluster consists of nodes, and a node of accelerators. A job consists of attempts, an attempt of optimizer "
        "steps. An accelerator carries a rank, and ranks execute optimizer steps. A run writes streams of samples and "
        "events, and checkpoints with a manifest and files.",
    )  # fmt: skip
    size = (170, 56)
    columns = {
        20: (("cluster", "ClusterProfile"), ("node", "host, NICs, storage"), ("accelerator", "carries a rank")),
        300: (("job", "TrainingPlan, policy"), ("attempt", "one process group"), ("optimizer step", "all ranks")),
        580: (("run output", "of all attempts"), ("stream", "samples and events"),
              ("checkpoint", "manifest and files")),
    }  # fmt: skip
    for x, boxes in columns.items():
        for number, words in enumerate(boxes):
            drawing.box((x, 20 + number * 110), size, words)
    for x in (20, 300):
        for y in (76, 186):
            drawing.arrow((x + 85, y), (x + 85, y + 53))
            drawing.words((x + 93, y + 32), "consists of")
    drawing.arrow((190, 268), (298, 268))
    drawing.words((197, 258), "rank executes")
    drawing.arrow((300, 48), (192, 48))
    drawing.words((205, 38), "is placed on")
    drawing.arrow((470, 158), (578, 158))
    drawing.words((505, 148), "writes")
    drawing.arrow((470, 170), (578, 262))
    drawing.words((508, 232), "saves")
    drawing.line((665, 76), (665, 128))
    drawing.line((750, 48), (768, 48))
    drawing.line((768, 48), (768, 268))
    drawing.line((768, 268), (750, 268))
    return drawing


def run() -> Drawing:
    """A run of two attempts: saves, a fault, and the step that is executed again."""
    drawing = Drawing(
        860, 210, "A run with a fault",
        "Attempt 0 completes optimizer steps 1 to 7 and commits checkpoints of steps 3 and 6. A fault ends it. Attempt "
        "1 restores the checkpoint of step 6, executes step 7 again, which is lost work, and continues with step 8.",
    )  # fmt: skip
    width, left = 54, 30
    for step in range(1, STEPS_BEFORE_FAULT + 1):
        _step(drawing, left + (step - 1) * width, step, repeated=False)
        if step in SAVED_STEPS:
            drawing.arrow((left + step * width - 29, 104), (left + step * width - 29, 136))
            drawing.words((left + step * width - 29, 154), f"checkpoint {step}", anchor="middle", colour=COLOURS[2])
    fault = left + STEPS_BEFORE_FAULT * width + 12
    drawing.line((fault, 44), (fault, 122), COLOURS[1], ' stroke-width="3"')
    drawing.words((fault, 36), "fault", anchor="middle", colour=COLOURS[1], bold=True)
    begin = fault + 130
    drawing.line((fault, 114), (begin + 48, 114), COLOURS[1], ' stroke-width="2"')
    drawing.words(((fault + begin) / 2 + 10, 131), "recovery time", anchor="middle", colour=COLOURS[1])
    for number, step in enumerate(STEPS_AFTER):
        _step(drawing, begin + number * width, step, repeated=step <= STEPS_BEFORE_FAULT)
    restored = left + SAVED_STEPS[-1] * width - 29
    drawing.line((restored, 162), (restored, 180), COLOURS[2])
    drawing.line((restored, 180), (begin - 10, 180), COLOURS[2])
    drawing.arrow((begin - 10, 180), (begin - 10, 96))
    drawing.words(((restored + begin) / 2, 198), "restore", anchor="middle", colour=COLOURS[2])
    drawing.words((left, 36), "attempt 0", bold=True)
    drawing.words((begin, 36), "attempt 1", bold=True)
    drawing.words((begin, 54), "lost work", colour=COLOURS[1])
    return drawing


def _step(drawing: Drawing, x: float, number: int, *, repeated: bool) -> None:
    colour = COLOURS[1] if repeated else COLOURS[0]
    drawing.parts.append(
        f'<rect x="{x:.1f}" y="60.0" width="48.0" height="40.0" rx="4" fill="#ffffff" stroke="{colour}"/>'
    )
    drawing.words((x + 24, 85), str(number), anchor="middle", colour=colour if repeated else INK)
