"""Reads logs of the collective libraries NCCL and RCCL."""

from __future__ import annotations

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._collective_library import is_log, put_observation, watch
from trainspec_validate.interop.readers._collective_table import has_table
from trainspec_validate.interop.readers._sheet import Sheet

NAME = "collective-library-log"


def looks_like(text: ForeignText) -> bool:
    """Whether the text has lines of the library and no table of a benchmark; that reader takes both."""
    return is_log(text.text) and not has_table(text.text)


def read(text: ForeignText) -> Fragment:
    """One observation of the job. Format: the log that NCCL_DEBUG=INFO writes, NVIDIA/nccl@5067397c.

    A log is evidence and declares nothing, so it fills no other key.

    Raises:
        ForeignFormatError: no line of the text is one of the library.
    """
    seen = watch(text.text)
    if not seen.num_lines:
        raise ForeignFormatError("no line is one of NCCL or RCCL", None, "set NCCL_DEBUG=INFO and keep the whole log")
    sheet = Sheet()
    put_observation(sheet, seen, text.name)
    return sheet.fragment(NAME, text)


FORMATS = (Format(NAME, "log of NCCL or RCCL (NCCL_DEBUG=INFO)", "ClusterProfile", looks_like, read),)
