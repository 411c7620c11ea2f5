"""Names the compressed files that would be read as streams or logs if they were unpacked, for a search."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path
from typing import Final

from trainspec_validate.pipeline.claims import may_be_text
from trainspec_validate.pipeline.data_sets import is_data_set, is_of_no_run_text
from trainspec_validate.pipeline.detect import format_of_start
from trainspec_validate.pipeline.files import is_candidate, is_document_name, is_stream_name
from trainspec_validate.pipeline.layers import NotFollowedError, innermost
from trainspec_validate.pipeline.run_texts import is_list_of_steps, looks_like_log
from trainspec_validate.pipeline.unpacked import begin_file
from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.budget import OverLimitError
from trainspec_validate.system.packings import is_packed, unpacked_name

UNREAD_PACKING: Final = "and is compressed in a way that is not read"
UNREAD_STREAM: Final = f"has the name of a stream, {UNREAD_PACKING}"
UNREAD_LOG: Final = f"has the name of a log, {UNREAD_PACKING}"
_STATE_NAME: Final = "trainer_state.json"
_LOG: Final = ".log"
_DAMAGE: Final = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def packed_stream_reason(file: Path) -> str:
    """Why a compressed file is left out that a search takes under its name without the ends of compression.

    Empty for a file that is read as it is, and for one of another program: what a stream or a log is under its plain
    name. Where the content cannot be unpacked here, the name decides; many programs compress JSON and YAML.
    """
    stem = unpacked_name(file.name)
    if not is_packed(file.name) or is_candidate(file.name) or not is_candidate(stem):
        return ""
    start = _unpacked_start(file)
    by_name = UNREAD_STREAM if is_stream_name(stem) or stem.lower() == _STATE_NAME else UNREAD_LOG
    if start is None:
        return "" if is_document_name(stem) and by_name == UNREAD_LOG else by_name
    if not start:
        return ""
    if title := format_of_start(stem, start):
        return f"holds a stream ({title}), {UNREAD_PACKING}"
    if is_document_name(stem):
        return f"looks like a list of steps, {UNREAD_PACKING}" if is_list_of_steps(start) else ""
    if looks_like_log(start):
        return f"looks like a training log, {UNREAD_PACKING}"
    if is_stream_name(stem):
        return "" if is_data_set(start) else by_name
    return by_name if stem.lower().endswith(_LOG) and not is_of_no_run_text(start) else ""


def _unpacked_start(file: Path) -> bytes | None:
    """First bytes below all layers of compression; empty of a plain text, None where it cannot be unpacked here."""
    from trainspec_validate.telemetry.formats.source import SourceError, head_bytes  # noqa: PLC0415 - start-up

    try:
        with open_regular(file) as opened:
            begin_file(file.stat().st_size)
            below = innermost(opened, file.name)
            start = head_bytes(below.stream)
    except (SourceError, OverLimitError, NotFollowedError, *_DAMAGE):
        return None
    if below.num_layers:
        return start
    return b"" if may_be_text(start) else None
