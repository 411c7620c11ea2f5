"""Runs the recorder's command as `python -m trainspec_record`."""

from __future__ import annotations

import sys

from trainspec_record.command import main

if __name__ == "__main__":
    sys.exit(main())
