"""Starts `trainspec-conformance`: an interrupt ends it without a traceback, also while it is being loaded."""

from __future__ import annotations

from trainspec_validate.cli.entry import start


def main() -> None:
    """Load the command and run it."""
    start("trainspec_conformance.cli")


if __name__ == "__main__":
    main()
