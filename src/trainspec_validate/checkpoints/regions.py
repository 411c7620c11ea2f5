"""Reads the header of a file of VELOC: the memory regions that it holds, and their sizes."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from trainspec_validate.checkpoints.limits import REGIONS
from trainspec_validate.checkpoints.opening import open_file

# https://github.com/ECP-VeloC/VELOC/blob/ee94fc10/src/common/command.hpp, stem: name, rank and version
NAME = re.compile(r"^(?P<name>[A-Za-z0-9_.]+)-(?P<rank>[0-9]{1,9})-(?P<version>[0-9]{1,9})\.dat$")
# src/common/ckpt_util.cpp, read_header: a count, then a number and a size of each region
_COUNT_BYTES = 8
_REGION = struct.Struct("<iQ")


def wanted_bytes(path: Path) -> int | None:
    """Bytes that the header of a file asks for; None where the file has no such header."""
    try:
        with open_file(path) as file:
            start = file.read(_COUNT_BYTES)
            count = int.from_bytes(start, "little") if len(start) == _COUNT_BYTES else 0
            if not 1 <= count <= REGIONS.most:
                return None
            header = file.read(count * _REGION.size)
    except OSError:
        return None
    if len(header) < count * _REGION.size:
        return None
    regions = list(_REGION.iter_unpack(header))
    if len({number for number, _ in regions}) < count:
        return None
    return _COUNT_BYTES + len(header) + sum(int(size) for _, size in regions)


def is_whole(path: Path) -> bool:
    """Whether a file has the name of VELOC's, and exactly the bytes that its header asks for."""
    try:
        return NAME.match(path.name) is not None and wanted_bytes(path) == path.lstat().st_size
    except OSError:
        return False
