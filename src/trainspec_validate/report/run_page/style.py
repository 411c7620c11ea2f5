"""Decides how a run page looks: on light and dark screens, and in print."""

from __future__ import annotations

from pathlib import Path

DEFINITIONS = (
    '<svg width="0" height="0" aria-hidden="true" class="definitions"><defs>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatching" d="M0 0V6"></path></pattern></defs></svg>'
)
# Okabe and Ito's colours, which people with any colour vision tell apart, darkened or lightened for contrast.
STYLE = Path(__file__).with_name("style.css").read_text("utf-8").replace("\n", "")
"""The style sheet."""
