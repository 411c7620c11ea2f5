"""Draws: shapes, words and plots with logarithmic axes, as SVG that is the same every time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = ("#1f4fa3", "#a3361f", "#2b6b2b", "#6b3fa0", "#6b5200")
"""Each has a contrast of 5 to 1 and more on white."""
LINE_PIXELS = 15
INK, GREY = "#212121", "#c9c9c9"


@dataclass(slots=True)
class Drawing:
    """A picture of a size in pixels, with a title and a description for those who do not see it."""

    width: int
    height: int
    title: str
    description: str
    parts: list[str] = field(default_factory=list)

    def line(self, start: tuple[float, float], end: tuple[float, float], colour: str = INK, extra: str = "") -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{extra}/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """A line with a head at its end."""
        self.line(start, end, INK, ' stroke-width="1.5" marker-end="url(#head)"')

    def box(self, corner: tuple[float, float], size: tuple[float, float], words: Sequence[str]) -> None:
        """A rectangle with lines of words in its middle, the first of them bold."""
        (x, y), (width, height) = corner, size
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" fill="#eef2fb" '
            f'stroke="{COLOURS[0]}"/>'
        )
        for number, line in enumerate(words):
            below = y + height / 2 + (number - (len(words) - 1) / 2) * 16 + 4
            self.words((x + width / 2, below), line, anchor="middle", bold=number == 0)

    def words(
        self, place: tuple[float, float], text: str, *, anchor: str = "start", colour: str = INK, bold: bool = False
    ) -> None:
        """A line of text."""
        weight = ' font-weight="700"' if bold else ""
        self.parts.append(
            f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>'
            f"{escape(text, quote=False)}</text>"
        )

    def curve(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A line through points."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')

    def text(self) -> str:
        """The whole file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" aria-labelledby="title description" font-family="sans-serif" '
            'font-size="13">'
        )
        yield f'<title id="title">{escape(self.title)}</title>'
        yield f'<desc id="description">{escape(self.description)}</desc>'
        yield '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        yield ' orient="auto">'
        yield f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>'
        yield f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        yield from self.parts
        yield "</svg>"


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values along one side of a plot, with the marks that are written."""

    label: str
    low: float
    high: float
    marks: Sequence[tuple[float, str]]
    logarithmic: bool = True

    def share(self, value: float) -> float:
        """Position of a value along the axis, from 0 to 1."""
        if not self.logarithmic:
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True, slots=True)
class Plot:
    """Two axes within a drawing."""

    drawing: Drawing
    across: Axis
    up: Axis
    margin: tuple[float, float, float, float] = (20, 150, 50, 80)
    """Above, to the right, below, to the left."""

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Position of a pair of values in the drawing."""
        above, right, below, left = self.margin
        width = self.drawing.width - left - right
        height = self.drawing.height - above - below
        return left + self.across.share(x) * width, above + (1 - self.up.share(y)) * height

    def frame(self) -> None:
        """Draw the axes with their marks and labels."""
        for value, word in self.across.marks:
            foot = self.place(value, self.up.low)
            self.drawing.line(foot, self.place(value, self.up.high), GREY)
            self.drawing.words((foot[0], foot[1] + 18), word, anchor="middle")
        for value, word in self.up.marks:
            side = self.place(self.across.low, value)
            self.drawing.line(side, self.place(self.across.high, value), GREY)
            self.drawing.words((side[0] - 8, side[1] + 4), word, anchor="end")
        middle = (self.place(self.across.low, self.up.low)[0] + self.place(self.across.high, self.up.low)[0]) / 2
        self.drawing.words((middle, self.drawing.height - 10), self.across.label, anchor="middle", bold=True)
        self.drawing.words((8, 14), self.up.label, bold=True)

    def curves(self, named: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Draw a line through each list of pairs, with its name at its end; names keep clear of each other."""
        drawn = [([self.place(x, y) for x, y in points], name) for name, points in named.items()]
        colours = dict(zip(named, COLOURS, strict=False))
        below = -math.inf
        for places, name in sorted(drawn, key=lambda each: each[0][-1][1]):
            self.drawing.curve(places, colours[name])
            below = max(places[-1][1] + 4, below + LINE_PIXELS)
            self.drawing.words((places[-1][0] + 6, below), name, colour=colours[name])
