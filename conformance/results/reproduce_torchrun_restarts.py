"""Shows, without the suite, that torchrun counts faults with progress between them as a crash loop.

Run it: `torchrun --nproc-per-node=1 --max-restarts=3 reproduce_torchrun_restarts.py FILE`. Each attempt makes one
step of progress that lasts, and then fails; after four attempts torchrun ends with status 1, in the same words as for
a job that fails at the same step each time.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(path: str) -> None:
    """Make progress, and fail."""
    file = Path(path)
    done = int(file.read_text()) if file.exists() else 0
    file.write_text(str(done + 1))
    print(f"progress: {done + 1}")  # noqa: T201
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
