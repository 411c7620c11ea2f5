"""Finds lines of a console log in which a launcher, a scheduler or Python says that the program was ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_SIGNS: Final = re.compile(
    rb"(?P<said>"
    rb"\*\*\* (?:JOB|STEP) [\w.+]{1,40} (?:ON [\w.\[\],-]{1,200} )?CANCELLED AT [\w:.-]{1,40}[\w ]{0,60}"
    rb"|srun: error: .{0,200}(?:Killed|Out Of Memory|Exited with exit code [1-9]\d{0,2}|Segmentation fault)"
    rb"|oom_kill event|oom-kill event"
    rb"|exits with return code = -?[1-9]\d{0,2}"
    rb"|ChildFailedError"
    rb"|Received (?:Signals\.)?SIG(?:TERM|INT|HUP|QUIT|USR1)\b"
    rb"|(?<![\w.])(?:torch\.(?:cuda\.)?)?OutOfMemoryError: .{0,100}"
    rb"|RuntimeError: (?:CUDA|NCCL|HIP) (?:out of memory|error)[^\n]{0,100}"
    rb"|torch\.distributed\.Dist(?:Backend|Network|Store)?Error[^\n]{0,100}"
    rb"|^(?:\[?rank\s?\d{1,6}\]?: ?)?KeyboardInterrupt\s*$"
    rb")",
    re.MULTILINE,
)
"""Forms of Slurm (slurmstepd, srun), the launchers of DeepSpeed and PyTorch, PyTorch itself, and Python."""
_NEEDLES: Final = (b"CANCELLED", b"rror", b"oom", b"exits with", b"KeyboardI", b"SIG")
"""Parts of the signs: a line has one of them where it has a sign."""
_BYTES_AT_ONCE: Final = 16_384
_BYTES_OF_A_LINE: Final = 64
"""What a line takes in memory even where it is empty."""
_NUMBERS: Final = re.compile(rb"\d+")

Line = tuple[int, bytes | Refusal]


def with_ends(lines: Iterable[Line], transcript: Transcript) -> Iterator[Line]:
    """The lines as they are; what they say of an end is counted as an incident, alike ones together.

    Lines are searched many at a time, since most logs have no such line.
    """
    waiting: list[tuple[int, bytes]] = []
    num_bytes = 0
    try:
        for offset, raw in lines:
            if not isinstance(raw, Refusal):
                waiting.append((offset, raw))
                num_bytes += len(raw) + _BYTES_OF_A_LINE
                if num_bytes > _BYTES_AT_ONCE:
                    _note(waiting, transcript)
                    waiting, num_bytes = [], 0
            yield offset, raw
    finally:  # a file that is cut has an end that counts
        _note(waiting, transcript)


def _note(lines: list[tuple[int, bytes]], transcript: Transcript) -> None:
    together = b"\n".join(raw for _, raw in lines)
    if not any(needle in together for needle in _NEEDLES):
        return
    for offset, raw in lines:
        found = _SIGNS.search(raw) if any(needle in raw for needle in _NEEDLES) else None
        if found:
            said = found["said"].strip()
            alike = _NUMBERS.sub(b"0", said)[:60].decode("ascii", "replace")
            transcript.lose("incident", alike, f"the log says: {said[:160].decode('utf-8', 'replace')}", offset)
