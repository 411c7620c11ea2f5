"""Defines what a caller may ask of a reporter, besides the report itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class RuleText(Protocol):
    """Facts that a reporter may add about a requirement beyond its findings."""

    @property
    def name(self) -> str:
        """The readable name, for example `world-size`."""

    @property
    def title(self) -> str:
        """The heading of the requirement."""

    @property
    def statement(self) -> str:
        """The normative sentence."""

    @property
    def details(self) -> str:
        """Definitions and bounds of the statement, or nothing."""

    @property
    def why(self) -> str:
        """The reason for it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to write: every reporter takes all of it and uses what its format has room for."""

    color: bool = False
    hyperlinks: bool = False
    base: str = ""
    """Absolute directory with forward slashes; files below it are named relative to it in CI formats."""
    requirements: Mapping[str, RuleText] = field(default_factory=dict)
