"""Starts the installed programs: an interrupt ends them without a traceback, also while they are being loaded.

Nothing but the standard library is imported before that is so. Interrupts while a command runs are handled by
`trainspec_validate.system.process`.
"""

from __future__ import annotations

import os

try:
    import signal  # this alone takes milliseconds
except KeyboardInterrupt:
    os._exit(130)


def start(module: str) -> None:
    """Load the module of a program and call its `main`.

    The system ends the process by an interrupt outside of `terminal.run`, which a shell reports as exit code 130.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored, as by `nohup`
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from importlib import import_module  # noqa: PLC0415 - after the line above

    import_module(module).main()


def validate() -> None:
    """The program `trainspec-validate`."""
    start("trainspec_validate.cli.validate")


def toolbox() -> None:
    """The program `trainspec`."""
    start("trainspec_validate.cli.toolbox")
