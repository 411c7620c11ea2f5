"""Help texts of `trainspec-record` in the form that the other programs give theirs.

The recorder has no dependency, so its command line is `argparse`; its help reads like that of the programs that use
click: `Usage:` first, then what the command does, then commands and options with one sentence each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from trainspec_record import printing

_WIDTH = 100
_TITLES = {"positional arguments": "Commands", "options": "Options"}


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Lays help out as click does."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=_WIDTH)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Begin with `Usage:`, whoever asks."""
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)

    def start_section(self, heading: str | None) -> None:
        """Name a section of the help."""
        super().start_section(_TITLES.get(heading or "", heading))

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):
            return "".join(map(super()._format_action, action._get_subactions()))
        return super()._format_action(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class Parser(argparse.ArgumentParser):
    """A parser that helps and refuses as the other programs do."""

    def __init__(self, **options: object) -> None:
        super().__init__(formatter_class=Formatter, add_help=False, allow_abbrev=False, **options)  # type: ignore[arg-type]
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def _print_message(self, message: str, file: object = None) -> None:
        if message and file is sys.stdout:
            printing.emit(message)
        elif message:
            printing.tell_lines(message)

    def error(self, message: str) -> None:  # type: ignore[override]
        """Say what is wrong with a command line, and leave with 2."""
        hint = f"Try '{self.prog} --help' for help."
        told = printing.printable(message)
        self.exit(2, f"{self.format_usage()}{hint}\n\nError: {told}\n")
