"""Lists the ends of names that compression and archives have, and says what a name is without them."""

from __future__ import annotations

import re
from typing import Final

PACKINGS: Final = (".gz", ".zst", ".bz2", ".xz", ".lzma", ".lz4", ".z", ".br", ".sz")
"""Ends of names of one compressed file, in lower case."""
ARCHIVES: Final = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tlz", ".tzst", ".zip", ".7z", ".rar")
"""Ends of names of archives that no compression follows, in lower case."""
_PACKED: Final = re.compile(rf"(?:{'|'.join(map(re.escape, PACKINGS))}|\.[0-9]{{1,3}})+$", re.IGNORECASE)


def is_packed(name: str) -> bool:
    """Whether the name is one of a compressed file."""
    return name.lower().endswith(PACKINGS)


def is_archive(name: str) -> bool:
    """Whether the name is one of an archive, compressed or not.

    >>> [is_archive(name) for name in ("a.tar.Z", "a.7z", "a.tar.xz", "plan.yaml.xz")]
    [True, True, True, False]
    """
    return unpacked_name(name).lower().endswith(ARCHIVES)


def unpacked_name(name: str) -> str:
    """The name without the ends that compression and the rotation of logs add.

    >>> [unpacked_name(name) for name in ("plan.yaml.bz2", "job.jsonl.2.gz", "plan.yaml")]
    ['plan.yaml', 'job.jsonl', 'plan.yaml']
    """
    return _PACKED.sub("", name)
