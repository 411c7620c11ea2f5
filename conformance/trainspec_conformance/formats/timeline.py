"""Draws the recovery path from a fault: each stage a bar on one scale of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from trainspec_validate.documents.types.conformance_report import Mark

WORDS = {
    "detected": "until detected",
    "decided": "until decided",
    "restored": "until restored",
    "first-step": "until the first step",
    "caught-up": "until caught up",
}
_LABELS_WIDTH, _BARS_WIDTH, _ROW_HEIGHT, _NUMBERS_WIDTH = 140, 440, 22, 80


def drawing(marks: Sequence[Mark]) -> ET.Element:
    """An SVG element: a row for each moment, with the seconds after the fault."""
    ordered = sorted(marks, key=lambda mark: mark.seconds)
    longest = max([mark.seconds for mark in ordered], default=0) or 1.0
    width, height = _LABELS_WIDTH + _BARS_WIDTH + _NUMBERS_WIDTH, _ROW_HEIGHT * len(ordered)
    told = ", ".join(f"{WORDS[mark.name]} {mark.seconds:.3f} s" for mark in ordered)
    box = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    svg = ET.Element("svg", {**box, "role": "img", "aria-label": f"Seconds after the fault: {told}"})
    before = 0.0
    for row, mark in enumerate(ordered):
        _row(svg, row * _ROW_HEIGHT, mark, before, longest)
        before = mark.seconds
    return svg


def _row(svg: ET.Element, top: int, mark: Mark, before: float, longest: float) -> None:
    start, end = (_LABELS_WIDTH + _BARS_WIDTH * seconds / longest for seconds in (before, mark.seconds))
    label = {"x": str(_LABELS_WIDTH - 8), "y": str(top + 15), "text-anchor": "end"}
    ET.SubElement(svg, "text", label).text = WORDS[mark.name]
    bar = {"x": f"{start:.1f}", "y": str(top + 4), "height": str(_ROW_HEIGHT - 8)}
    ET.SubElement(svg, "rect", {**bar, "width": f"{max(end - start, 2):.1f}", "class": f"bar {mark.name}"})
    number = {"x": f"{end + 8:.1f}", "y": str(top + 15)}
    ET.SubElement(svg, "text", number).text = f"{mark.seconds:.3f} s"
