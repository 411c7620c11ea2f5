"""Draws the badge of a report: the level that was reached, and the version of the specification."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.report.excerpt import cells
from trainspec_validate.system.neutral import printable

COLOURS = {None: "#b3261e", "described": "#5f6b7a", "observable": "#00639b", "recoverable": "#146c2e"}
EFFICIENT_COLOUR = "#0b5345"
_CELL_WIDTH, _PADDING, _HEIGHT = 6.7, 7, 20


def render(report: ConformanceReport) -> str:
    """An SVG of one line that needs no font but those that are there."""
    left = f"TrainSpec {printable(report.specification_version)}"
    right: str = report.level or "not conformant"
    if report.stack.modifications:
        right += ", modified"
    colour = COLOURS.get(report.level, EFFICIENT_COLOUR)
    first, second = (cells(text) * _CELL_WIDTH + 2 * _PADDING for text in (left, right))
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": f"{first + second:.0f}",
            "height": str(_HEIGHT),
            "role": "img",
            "aria-label": f"{left}: {right}",
        },
    )
    ET.SubElement(root, "title").text = f"{left}: {right}"
    for start, width, fill, text in ((0.0, first, "#444", left), (first, second, colour, right)):
        box = {"x": f"{start:.1f}", "width": f"{width:.1f}", "height": str(_HEIGHT), "fill": fill}
        ET.SubElement(root, "rect", box)
        place = {"x": f"{start + width / 2:.1f}", "y": "14", "fill": "#fff", "text-anchor": "middle"}
        font = {"font-family": "Verdana,DejaVu Sans,sans-serif", "font-size": "11"}
        ET.SubElement(root, "text", place | font).text = text
    return ET.tostring(root, encoding="unicode") + "\n"
