"""Finds lines of a console log in which a launcher, a scheduler or Python says that the program was ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_PROCESS, _HANG, _NODE = "fault class: process", "fault class: hang", "fault class: node"
_SIGNALLED: Final = rb"(?:Killed|Terminated|(?:Segmentation fault|Aborted|Bus error)(?: \(core dumped\))?)"
"""What a shell prints for a process that a signal ended."""
_CANCELLED: Final = rb"\*\*\* (?:JOB|STEP) [\w.+]{1,40} (?:ON [\w.\[\],-]{1,200} )?CANCELLED AT [\w:.-]{1,40}"
_FORMS: Final = (
    (_CANCELLED + rb" DUE TO NODE FAILURE[\w ]{0,60}", _NODE),
    (_CANCELLED + rb" DUE TO PREEMPTION[\w ]{0,60}", "attempt reason: preempted"),
    (_CANCELLED + rb" DUE TO TIME LIMIT[\w ]{0,60}", "attempt reason: time_limit"),
    (_CANCELLED + rb"[\w ]{0,60}", "attempt reason: operator"),
    (
        rb"srun: error: .{0,200}(?:Killed|Terminated|Out Of Memory|Segmentation fault|Exited with exit code [1-9]\d*)",
        _PROCESS,
    ),
    (rb"oom_kill event|oom-kill event", _PROCESS),
    (rb"exits with return code = -?[1-9]\d{0,2}", _PROCESS),
    (rb"ChildFailedError", _PROCESS),
    (rb"failed \(exitcode: -?[1-9]\d{0,2}\) local_rank: \d{1,6}", _PROCESS),
    (rb"Signal \d{1,2} \(SIG[A-Z]{2,8}\) received by PID \d{1,9}", _PROCESS),
    (rb"Received (?:Signals\.)?SIG(?:TERM|INT|HUP|QUIT|USR1)\b", ""),
    (rb"(?:(?<=\] )|(?<=:)|^)Received \d{1,2} death signal", ""),
    (rb"SignalException: Process \d{1,9} got signal: \d{1,2}", ""),
    (rb"\[(?:[\w ()-]{1,80} )?Rank \d{1,6}\] Watchdog caught collective operation timeout: \w[^\n]{0,100}", _HANG),
    (rb"(?<![\w.])(?:torch\.(?:cuda\.)?)?OutOfMemoryError: .{0,100}", _PROCESS),
    (rb"RuntimeError: (?:CUDA|NCCL|HIP) (?:out of memory|error)[^\n]{0,100}", ""),
    (rb"XlaRuntimeError: (?:RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED): [^\n]{0,100}", ""),
    (rb"torch\.distributed\.Dist(?:Backend|Network|Store)?Error[^\n]{0,100}", ""),
    (rb"^Fatal Python error: (?:Segmentation fault|Aborted|Bus error)", _PROCESS),
    (rb"^" + _SIGNALLED + rb"\s*$", _PROCESS),
    (rb": line \d{1,6}: {1,4}\d{1,9} " + _SIGNALLED + rb"(?= |$)", _PROCESS),
    (rb"^(?:\[?rank\s?\d{1,6}\]?: ?)?KeyboardInterrupt\s*$", "attempt reason: operator"),
)
"""Forms of Slurm (slurmstepd, srun), Bash, the launchers of DeepSpeed and PyTorch, PyTorch itself, JAX and Python, and
what each says in the terms of a stream; nothing where several causes print the same.

Sources: PrimeIntellect-ai/prime-rl, issue 1360; NVlabs/nvdiffrecmc, issue 21; open-mmlab/mmsegmentation, issue 3106;
hiyouga/LlamaFactory, issue 7396; OFA-Sys/OFA, issue 271; pytorch/pytorch, issue 118369.
"""
_SIGNS: Final = re.compile(
    rb"|".join(rb"(?P<form%d>%s)" % (number, form) for number, (form, _) in enumerate(_FORMS)), re.MULTILINE
)
_QUOTED: Final = re.compile(rb"\s*(?:[\"'`#>]|//)")
"""Begins a line that shows another one: a quotation, a comment, a text."""
_NEEDLES: Final = (
    *(b"CANCELLED", b"rror", b"oom", b"exits with", b"KeyboardI", b"SIG", b"death signal", b"got signal"),
    *(b"exitcode", b"Watchdog", b"Killed", b"Terminated", b"Segmentation", b"Aborted"),
)
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
        if found and found.lastgroup and not _QUOTED.match(raw):
            said, meaning = found[0].strip(), _FORMS[int(found.lastgroup.removeprefix("form"))][1]
            alike = _NUMBERS.sub(b"0", said)[:60].decode("ascii", "replace")
            words = f"the log says: {said[:160].decode('utf-8', 'replace')}{f' ({meaning})' if meaning else ''}"
            transcript.lose("incident", alike, words, offset)
