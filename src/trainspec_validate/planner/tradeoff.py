"""Draws the trade-off between step time and memory."""

from __future__ import annotations

from html import escape

from trainspec_validate.model.units import bytes_, seconds
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.search import Ranking, Scored

_WIDTH, _HEIGHT, _MARGIN = 720.0, 420.0, 64.0
_TICKS = 5
_STYLE = "font-family: sans-serif; font-size: 12px"


def drawing(request: Request, ranking: Ranking) -> str:
    """A self-contained SVG: a point for the best choice of every value of every dimension, the best ones numbered."""
    numbered = list(ranking.plans)
    others = {scored.choice.key: scored for scored in ranking.alternatives.values()}
    points = list({**others, **{scored.choice.key: scored for scored in numbered}}.values())
    low, high = 0.0, max(request.goal.machine.memory_bytes, *(point.memory.allocator for point in points))
    fast = min(point.outlook.step.seconds for point in points)
    slow = max(point.outlook.step.seconds for point in points)
    spread = slow - fast or fast

    def place(scored: Scored) -> tuple[float, float]:
        across = (scored.memory.allocator - low) / (high - low)
        up = (scored.outlook.step.seconds - fast) / spread
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    title = f"Step time against memory: {request.model.name} on {request.goal.num_ranks} ranks"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" style="{_STYLE}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="white"/>',
        f'<text x="{_MARGIN:g}" y="28" font-weight="bold">{escape(title)}</text>',
        *_axes(high, fast, spread),
        *_budget(request, high),
    ]
    for scored in points:
        x, y = place(scored)
        parts.append(_dot(x, y, 3, "#9aa5b1", scored))
    for rank, scored in enumerate(numbered, 1):
        x, y = place(scored)
        parts.append(_dot(x, y, 5, "#0b6e99", scored))
        parts.append(f'<text x="{x + 8:.1f}" y="{y - 4:.1f}">{rank}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _dot(x: float, y: float, radius: int, colour: str, scored: Scored) -> str:
    title = escape(_said(scored))
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"><title>{title}</title></circle>'


def _axes(high: float, fast: float, spread: float) -> list[str]:
    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    parts = [
        f'<path d="M {_MARGIN:g} {_MARGIN:g} V {bottom:g} H {right:g}" fill="none" stroke="black"/>',
        f'<text x="{right:g}" y="{_HEIGHT - 20:g}" text-anchor="end">memory that the fullest rank allocates</text>',
        f'<text x="{_MARGIN:g}" y="{_MARGIN - 12:g}">time of a step</text>',
    ]
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        x, y = _MARGIN + share * (_WIDTH - 2 * _MARGIN), bottom - share * (bottom - _MARGIN)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 18:g}" text-anchor="middle">{escape(bytes_(share * high))}</text>'
        )
        time = escape(seconds(fast + share * spread))
        parts.append(f'<text x="{_MARGIN - 6:g}" y="{y + 4:.1f}" text-anchor="end">{time}</text>')
    return parts


def _budget(request: Request, high: float) -> list[str]:
    x = _MARGIN + request.goal.memory_budget_bytes / high * (_WIDTH - 2 * _MARGIN)
    return [
        f'<path d="M {x:.1f} {_MARGIN:g} V {_HEIGHT - _MARGIN:g}" stroke="#b03a2e" stroke-dasharray="4 3"/>',
        f'<text x="{x - 6:.1f}" y="{_MARGIN + 12:g}" text-anchor="end" fill="#b03a2e">memory less reserve</text>',
    ]


def _said(scored: Scored) -> str:
    w = scored.choice.layout
    degrees = f"tensor {w.tensor}, context {w.context}, pipeline {w.pipeline}, data {w.data}"
    return f"{degrees}: {seconds(scored.outlook.step.seconds)}, {bytes_(scored.memory.allocator)}"
