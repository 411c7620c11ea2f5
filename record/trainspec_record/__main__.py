"""Starts `trainspec-record`: an interrupt ends it without a traceback, also while it is being loaded."""

from __future__ import annotations

import os
import sys

try:
    import signal  # this alone takes milliseconds
except KeyboardInterrupt:
    os._exit(130)


def main() -> int:
    """Load the command and run it; the exit code."""
    waiting = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored, as by `nohup`
    if waiting:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from trainspec_record.command import main as run  # noqa: PLC0415 - after the line above

    if waiting:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    finally:
        if waiting:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
