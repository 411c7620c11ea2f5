"""Finds lines of a console log in which a launcher, a scheduler or Python says that the program was ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trainspec_validate.telemetry.formats.cut_lines import NUM_BEFORE, is_cut
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.source import Unended

_PROCESS, _HANG, _NODE = "fault class: process", "fault class: hang", "fault class: node"
_LAUNCHED: Final = rb"(?:\[[\w ]{1,40}\]:? ?|\d{1,6}: ?|[\w.-]{1,64}: ){0,3}"
"""The host and the ranks that launchers write before a line."""
_START: Final = rb"^" + _LAUNCHED
_SIGNALLED: Final = rb"(?:Killed|Terminated|(?:[Ss]egmentation fault|Aborted|Bus error)(?: \(core dumped\))?)"
"""What a shell prints for a process that a signal ended."""
_CANCELLED: Final = rb"\*\*\* (?:JOB|STEP) [\w.+]{1,40} (?:ON [\w.\[\],-]{1,200} )?CANCELLED AT [\w:.-]{1,40}"
_FORMS: Final = (
    (_CANCELLED + rb" DUE TO NODE FAILURE[\w ]{0,60}", _NODE),
    (_CANCELLED + rb" DUE TO PREEMPTION[\w ]{0,60}", "attempt reason: preempted"),
    (_CANCELLED + rb" DUE TO TIME LIMIT[\w ]{0,60}", "attempt reason: time_limit"),
    (_CANCELLED + rb" DUE TO [\w ]{1,60}", ""),
    (_CANCELLED + rb"[\w ]{0,60}", "attempt reason: operator"),
    (
        rb"srun: error: .{0,200}(?:Killed|Terminated|Out Of Memory|Segmentation fault|Exited with exit code [1-9]\d*)",
        _PROCESS,
    ),
    (rb"oom_kill event|oom-kill event", _PROCESS),
    (rb"exits with return code = -?[1-9]\d{0,2}", _PROCESS),
    (rb"ChildFailedError(?!\()", _PROCESS),
    (rb"failed \(exitcode: -?[1-9]\d{0,2}\) local_rank: \d{1,6}", _PROCESS),
    (rb"Signal \d{1,2} \(SIG[A-Z]{2,8}\) received by PID \d{1,9}", _PROCESS),
    (rb"Received (?:Signals\.)?SIG(?:TERM|INT|HUP|QUIT|USR1)\b", ""),
    (rb"(?:(?<=\] )|(?<=:)|^)Received \d{1,2} death signal", ""),
    (rb"SignalException: Process \d{1,9} got signal: \d{1,2}", ""),
    (rb"\[(?:[\w ()-]{1,80} )?Rank \d{1,6}\] Watchdog caught collective operation timeout: \w[^\n]{0,100}", _HANG),
    (rb"(?<![\w.])(?:torch\.(?:cuda\.)?)?OutOfMemoryError: .{0,100}", _PROCESS),
    (rb"(?<![\"'])Current loss scale already at minimum - cannot decrease scale anymore", ""),
    (rb"RuntimeError: (?:CUDA|NCCL|HIP) (?:out of memory|error)[^\n]{0,100}", ""),
    (rb"XlaRuntimeError: (?:RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED): [^\n]{0,100}", ""),
    (rb"torch\.distributed\.Dist(?:Backend|Network|Store)?Error[^\n]{0,100}", ""),
    (_START + rb"terminate called after throwing an instance of '[\w:]{1,100}'", _PROCESS),
    (
        _START + rb"[\w./-]{1,100}: error: (?:unrecognized arguments|the following arguments are required)[^\n]{0,120}",
        "",
    ),
    (_START + rb"Fatal Python error: (?:Segmentation fault|Aborted|Bus error)", _PROCESS),
    (rb"(?:^|[\]\r])" + _SIGNALLED + rb"\s*$", _PROCESS),
    (
        rb"mpirun noticed that process rank \d{1,6} with PID \d{1,9} on node [^\n]{1,100} exited on signal [1-9]\d?",
        _PROCESS,
    ),
    (rb"mpirun detected that one or more processes exited with non-zero status", _PROCESS),
    (rb"Primary job +terminated normally, but \d{1,6} process(?:es)? returned", _PROCESS),
    (rb"MPI_ABORT was invoked on rank \d{1,9}", _PROCESS),
    (rb"^TERM_(?:MEM|SWAP)LIMIT: [^\n]{0,100}", _PROCESS),
    (rb"^TERM_(?:RUN|CPU)LIMIT: [^\n]{0,100}", "attempt reason: time_limit"),
    (rb"^TERM_OWNER: [^\n]{0,100}", "attempt reason: operator"),
    (rb"^Exited with exit code [1-9]\d{0,2}\.?\s*$", _PROCESS),
    (rb": line \d{1,6}: {1,4}\d{1,9} " + _SIGNALLED + rb"(?= |$)", _PROCESS),
    (_START + rb"(?:rank\s?\d{1,6}: ?)?KeyboardInterrupt\s*$", "attempt reason: operator"),
)
"""Forms of Slurm (slurmstepd, srun), LSF, Bash, MPI, the launchers of DeepSpeed and PyTorch, PyTorch, JAX and Python,
and what each says in the terms of a stream; nothing where several causes print the same. A shell says what ended a
program right behind its progress bar.

Sources: PrimeIntellect-ai/prime-rl, issue 1360; NVlabs/nvdiffrecmc, issue 21; open-mmlab/mmsegmentation, issue 3106;
hiyouga/LlamaFactory, issue 7396; OFA-Sys/OFA, issue 271; pytorch/pytorch, issue 118369; horovod/horovod, issue 469;
Henry1iu/TNT-Trajectory-Prediction, issue 33; open-mpi/ompi@v4.1.x:orte/tools/orterun/help-orterun.txt; IBM Spectrum
LSF, the termination reasons of bacct.
"""
_SIGNS: Final = re.compile(
    rb"|".join(rb"(?P<form%d>%s)" % (number, form) for number, (form, _) in enumerate(_FORMS)), re.MULTILINE
)
_QUOTED: Final = re.compile(rb"\s*(?:[\"'`#>]|//)")
"""Begins a line that shows another one: a quotation, a comment, a text."""
_NEEDLES: Final = (
    *(
        b"loss scale already",
        b"CANCELLED",
        b"rror",
        b"oom",
        b"exits with",
        b"KeyboardI",
        b"SIG",
        b"death signal",
        b"got signal",
    ),
    *(b"mpirun d", b"Primary job", b"MPI_ABORT", b"TERM_", b"Exited with"),
    *(b"exitcode", b"Watchdog", b"Killed", b"Terminated", b"egmentation", b"Aborted", b"terminate c", b"mpirun n"),
)
"""Parts of the signs: a line has one of them where it has a sign."""
_TRACEBACK, _FRAME = b"Traceback (most recent call last)", b'  File "'
_EXCEPTION: Final = re.compile(
    _LAUNCHED + rb"?[ \t]{0,8}"
    rb"(?P<said>(?:[A-Za-z_]\w{0,80}\.){0,12}(?:Exception|"
    rb"[A-Za-z_]\w{0,80}(?:Error|Exception|Exit|Expired|Timeout|Iteration|Interrupt))(?:: .{0,200}|\s*$))"
)
"""The last line of a traceback, behind what launchers wrote before it, or indented by one."""
_HANDLED: Final = re.compile(
    _LAUNCHED + rb"?(?:--- Logging error ---|Exception ignored (?:in|on|while)\b|[ \t]{0,40}(?:>>>|\.\.\.) )"
)
"""Begins a traceback of an exception that did not end its program, or of an example in a text."""
_UNINDENTED: Final = re.compile(rb"(?>" + _LAUNCHED + rb")\S")
_CHAINED: Final = re.compile(rb"\b(?:During handling of the above|The above exception was the direct cause)")
_ORIGINAL: Final = b"Original Traceback"
"""Begins what PyTorch shows of the exception of a worker, below the one that it raised for it."""
_MOST_AFTER: Final = 60
"""Lines after a sign of an end with which a log still ends: launchers report what came of it."""
_MOST_OF_MESSAGE: Final = 20_000
"""Lines of one message, which are no lines after it."""
_OF_MESSAGE: Final = re.compile(rb"(?>" + _LAUNCHED + rb")(?:\s|\Z|frame #\d|#\d{1,3} |\*{3} )")
"""A line that goes on with the message of an exception: indented, empty, or a frame of C++."""
_OPEN_MESSAGE: Final = re.compile(rb":\s*\Z|\b\d{1,6} (?:validation )?errors? (?:for|in|while)\b")
"""The first line of a message that a list follows, with or without indentation."""
_GOES_ON: Final = re.compile(
    rb"\d\d?:\d\d:\d\d|\b(?:INFO|DEBUG|WARN(?:ING)?)\b|\d%\||\b(?:it|s|samples|tokens)/(?:s|it)\b"
    rb"|\b(?i:epoch|steps?|iter(?:ation)?|loss|batch)\b[^A-Za-z\n]{0,12}\d|^\s{0,40}(?:```|~~~)"
)
"""A line of a program that goes on: a time, a level of a logger, a progress bar, a step. Or the end of an example."""
_REPORT: Final = re.compile(
    rb"(?i)(?P<place>\b(?:epoch|steps?|iter(?:ation)?s?)\b(?:\(\w{1,10}\))?[^A-Za-z\n]{0,40}\d|\d{1,9}/\d{1,9} \[)"
)
"""Where a program is, as it reports it: an epoch, a step, or the counts of a progress bar."""
_MEASURED: Final = re.compile(rb"(?i)loss|\blr\b|learning.rate|\beta\b|it/s|s/it|%\|")
_FEWEST_STEPS: Final = 2
"""Different later steps of a known program that show that it goes on: one row may be of a rank that ends later."""
_SHELL: Final = re.compile(rb"(?:^|: line \d{1,6}: {1,4}\d{1,9} |[\]\r])" + _SIGNALLED + rb"(?=\s|$)")
"""A process of the script of a job that a signal ended."""
_OVER: Final = re.compile(
    rb"(?i)\b(?:training|fine-?tuning)(?: run| job)?(?: is| was| has)?(?: been)? ?[:=]? ?"
    rb"(?:complete|finished|done|over\b|ended)"
    rb"|\b(?:finished|completed|done|end of) (?:with )?(?:the )?(?:training|fine-?tuning)\b|'train_runtime': "
)
"""Says that all training is over, where no epoch or step is named."""
_OF_PART: Final = re.compile(rb"(?i)\b(?:epoch|steps?|iter(?:ation)?s?|stage|phase|fold|round|batch)\b")
_OVERS: Final = (b"raining", b"RAINING", b"uning", b"'train_r")
"""Parts of those lines."""
_FEWEST_REPORTS: Final = 3
"""Different places in reports after a sign that show a program that goes on; ranks that end together report one."""
_OF_TRAINING: Final = re.compile(
    rb"torch|cuda|nccl|hccl|\bjax|tensorflow|deepspeed|megatron|slurm|srun|\brank|epoch|train"
    rb"|\bloss\b[\"']?[ :=(]{1,4}\d",
    re.IGNORECASE,
)
_JSON: Final = re.compile(rb'\s{0,64}\{\s{0,64}["}]')
_CONTROLS: Final = bytes({*range(32), 127} - {0, *b"\b\t\n\r\f\x1b"})
_MOST_CONTROLS: Final = 0.01
"""Share of control characters that a text has at most."""
_BYTES_AT_ONCE: Final = 16_384
END_BYTES: Final = 1_048_576
"""Bytes of the end of a text that show whether it has one: more than a message and the lines after it usually take."""
_OF_TESTS: Final = re.compile(
    rb"##\[(?:(?:end)?group|error|section)\]"
    rb"|^[ \t]{0,8}(?:\S{10,40}Z )?(?:=+ (?:FAILURES|ERRORS|short test summary)"
    rb"|FAILED \((?:failures|errors)=|(?:ERROR|FAIL): test|Ran \d{1,9} tests? in "
    rb"|(?:error: |\xc3\x97 )?(?:subprocess-exited-with-error|metadata-generation-failed))",
    re.MULTILINE,
)
"""Lines of test runners, of jobs of continuous integration and of installers, whose exceptions end no training."""
_OF_LOGGER: Final = re.compile(rb"\bwandb_(?:setup|init|run)\.py:\w{1,40}\(\)")
"""In each line of the log of the client of Weights & Biases, which ends when it can reach no server."""
_MOST_SHOWN: Final = 60
_BYTES_OF_A_LINE: Final = 64
"""What a line takes in memory even where it is empty."""
_BYTES_SEARCHED: Final = 512
_NUMBERS: Final = re.compile(rb"\d+")

_STOPPED: Final = re.compile(
    r"\(attempt reason: |SIG(?:TERM|INT|HUP|QUIT|USR1)\b|death signal|got signal: (?:1|2|3|10|15)$"
    r"|\bTerminated(?: \(|$)|exitcode: -15\b"
    r"|SystemExit(?:: (?:0|None))?$"
)
"""In the words of an end that was asked for: by an operator, a scheduler or the program itself."""

Line = tuple[int, bytes | Refusal]
Note = Callable[[str, str, int], None]
"""Takes an incident: what alike ones have in common, its words, and the place of its line."""
End = Callable[[int, str], None]
"""Takes the place and the words of the first of those incidents that a log ends with."""


def with_ends(lines: Iterable[Line], mark: bytes, note: Note, end: End) -> Iterator[Line]:
    """The lines without a last one that was cut; what they say of an end is noted as an incident.

    `mark` is that of a line which reports a step. Lines are searched many at a time, since most logs have no such line.
    """
    ends = _Ends(mark.strip(), note, end)
    before, waiting = list[tuple[int, bytes]](), list[tuple[int, bytes]]()
    num_bytes = 0
    try:
        for offset, raw in lines:
            if not isinstance(raw, Refusal):
                if isinstance(raw, Unended) and is_cut(raw, [line for _, line in [*before, *waiting][-NUM_BEFORE:]]):
                    shown = repr(raw[-_MOST_SHOWN:].decode("utf-8", "replace"))
                    note("cut", f"the log ends within a line, which is left out: {shown}", offset)
                    continue
                waiting.append((offset, raw))
                num_bytes += len(raw) + _BYTES_OF_A_LINE
                if num_bytes > _BYTES_AT_ONCE:
                    ends.take(waiting)
                    before, waiting, num_bytes = waiting[-NUM_BEFORE:], [], 0
            yield offset, raw
    finally:  # a file that is cut has an end that counts
        ends.take(waiting)
        ends.close()


def is_failure(words: str) -> bool:
    """Whether the words of an end say that the program failed, and not that it was stopped on purpose.

    >>> is_failure("the log ends with: KeyError: 'lr'"), is_failure("the log says: Received SIGTERM")
    (True, False)
    """
    return _STOPPED.search(words) is None


def is_printed(text: bytes) -> bool:
    """Whether a text is what a program printed: no JSON, and with few control characters.

    NUL does not count: a file system has it where it lost what was written.
    """
    if _JSON.match(text):
        return False
    num_controls = len(text) - len(text.translate(None, _CONTROLS))
    return num_controls <= _MOST_CONTROLS * (len(text) - text.count(b"\0"))


def says_end(text: bytes) -> bool:
    r"""Whether a text, to its end, says that a program of training was ended, or ended by an exception.

    >>> says_end(b"import torch\nTraceback (most recent call last):\n  File \"a.py\"\nKeyError: 'lr'\n")
    True
    >>> says_end(b"The job was Killed by torch.\n")
    False
    """
    if not any(needle in text[-END_BYTES:] for needle in (*_NEEDLES, _FRAME)):
        return False
    if not _OF_TRAINING.search(text) or _OF_LOGGER.search(text) or _OF_TESTS.search(text):
        return False
    ends = _Ends(b"", lambda *_: None, lambda *_: None)
    *lines, last = text[-END_BYTES:].split(b"\n")
    ends.take([*((0, line) for line in lines), (0, Unended(last))])
    return ends.has_end or ends.is_within


class _Ends:
    """What the lines so far say of an end."""

    def __init__(self, mark: bytes, note: Note, end: End) -> None:
        self._mark, self._note, self._end = mark, note, end
        self._is_within = False
        """Whether the lines are of a traceback, whose exception comes after them."""
        self._is_handled = False
        """Whether the program says that it goes on behind this traceback."""
        self._num_open = 0
        """Tracebacks of that kind whose exception is still to come."""
        self._num_handled = 0
        """Tracebacks still to come of which that is said: those of several ranks may be one within the other."""
        self._is_chained = False
        """Whether this traceback is of an exception that came of the one before."""
        self._before = b""
        self._exception: tuple[int, bytes] | None = None
        """Place and text of the first exception of those that the log may end with."""
        self._num_after = _MOST_AFTER + 1
        """Lines after the last sign of an end, without those of its message."""
        self._is_over = False
        """Whether the program has said that training is over, and has reported no step since."""
        self._trace = 0
        """Place of the traceback within which the lines are."""
        self._reports: set[bytes] = set()
        """Places that the program reports after the last sign of an end."""
        self._num_of_message = 0
        self._is_open = False
        """Whether the message is a list, whose items need no indentation."""
        self._first: tuple[int, str] | None = None
        """Place and words of the first sign of those that the log may end with."""

    @property
    def has_end(self) -> bool:
        """Whether the log ends with a sign, or with what followed from it."""
        return self._num_after <= _MOST_AFTER

    @property
    def is_within(self) -> bool:
        """Whether the lines end within a traceback, whose exception is cut off."""
        return self._is_within and (_TRACEBACK in self._before or _UNINDENTED.match(self._before) is None)

    def take(self, lines: list[tuple[int, bytes]]) -> None:
        """Take lines, in their order."""
        together = b"\n".join(raw for _, raw in lines)
        has_sign = any(needle in together for needle in _NEEDLES)
        self._note_over(lines, together)
        if has_sign or self._is_within or _FRAME in together or _TRACEBACK in together:
            for offset, raw in lines:
                self._line(offset, raw, has_sign=has_sign)
        else:
            self._num_handled = int(bool(lines) and _HANDLED.match(lines[-1][1]) is not None)
            self._passed([raw for _, raw in lines], together)

    def close(self) -> None:
        """Note the exception with which the log ends."""
        if self.is_within and not self.has_end:
            self._exception = self._first = None
            self._say(self._trace, b"a traceback, whose exception is cut off", "the log ends within ")
        elif not self.has_end:
            return
        if self._exception is not None:
            self._say(*self._exception, "the log ends with: ")
        if self._first is not None:
            self._end(*self._first)

    def _note_over(self, lines: list[tuple[int, bytes]], together: bytes) -> None:
        """Note that the program says that training is over; a step that it reports later says that it is not."""
        if not self._is_over and not any(part in together for part in _OVERS):
            return
        for _, raw in lines:
            if _OVER.search(raw[:_BYTES_SEARCHED]) and not _OF_PART.search(raw[:_BYTES_SEARCHED]):
                self._is_over = True
            elif self._is_over and (self._mark in raw if self._mark else any(_places([raw]))):
                self._is_over = False

    def _line(self, offset: int, raw: bytes, *, has_sign: bool) -> None:
        raw = raw.translate(None, b"\0") if b"\0" in raw else raw  # what a log lost has them in its place
        if has_sign and (found := self._sign(raw)) and found.lastgroup:
            meaning = _FORMS[int(found.lastgroup.removeprefix("form"))][1]
            if not self.has_end:
                self._exception = self._first = None
            self._say(offset, found[0].strip(b" \t\r:]"), "the log says: ", meaning)
            self._begin_end()
            self._is_open = self._is_within = False
        elif _HANDLED.match(raw):
            self._num_handled += 1
            self._passed([raw], raw)
        elif _TRACEBACK in raw:
            self._trace = self._trace if self._is_within else offset
            self._is_handled = self._num_handled > 0
            self._num_handled -= self._is_handled
            self._num_open = self._num_open + 1 if self._is_handled else 0
            self._is_chained = _ORIGINAL in raw or _CHAINED.search(self._before) is not None
            self._is_within = not self._is_handled
        elif _FRAME in raw and not self._is_handled:
            self._trace = self._trace if self._is_within else offset
            self._is_within = True
        elif found := _EXCEPTION.match(raw):
            self._raised(offset, found["said"].strip())
        else:
            self._num_handled = 0 if _UNINDENTED.match(raw) else self._num_handled
            self._passed([raw], raw)
        self._before = raw if raw.strip() and not isinstance(raw, Unended) else self._before

    def _sign(self, raw: bytes) -> re.Match[bytes] | None:
        """What a line says of an end."""
        if not any(needle in raw for needle in _NEEDLES) or _QUOTED.match(raw):
            return None
        found = _SIGNS.search(raw)
        return None if found and self._is_over and _SHELL.match(found[0]) else found

    def _raised(self, offset: int, said: bytes) -> None:
        """Take the exception of a traceback, which is the first line after its frames that names one."""
        if self._is_within and (self._exception is None or not self.has_end or self._is_chained):
            self._exception = offset, said
            self._first = self._first if self.has_end else None
        if self._is_within:
            self._begin_end()
            self._is_open = _OPEN_MESSAGE.search(said) is not None
        self._num_open = max(0, self._num_open - 1)
        self._is_within, self._is_handled = False, self._num_open > 0

    def _begin_end(self) -> None:
        self._num_after = self._num_of_message = 0
        self._reports.clear()

    def _passed(self, lines: list[bytes], text: bytes) -> None:
        """Lines after a sign, from which on the log continues where they are many, or report a step."""
        if not self._is_within and self.has_end and not self._mark:
            self._reports.update(_places(lines))
            if len(self._reports) >= _FEWEST_REPORTS:
                self._num_after = _MOST_AFTER + 1
        if not self._is_within and not (self._mark and self.has_end):  # the steps of a known program show it alone
            self._num_after += sum(not self._is_of_message(raw) for raw in lines) if self.has_end else len(lines)
        if self._mark and self.has_end and self._mark in text:
            self._reports.update(_step(raw) for raw in lines if self._mark in raw)
            if len(self._reports) >= _FEWEST_STEPS:
                self._num_after = _MOST_AFTER + 1

    def _is_of_message(self, raw: bytes) -> bool:
        """Whether a line belongs to the message of the exception or the sign before it."""
        is_its = self._num_of_message < _MOST_OF_MESSAGE and (self._is_open or _OF_MESSAGE.match(raw) is not None)
        if not is_its or _GOES_ON.search(raw[:_BYTES_SEARCHED]):
            self._is_open = False
            return False
        self._num_of_message += 1
        return True

    def _say(self, offset: int, said: bytes, words: str, meaning: str = "") -> None:
        alike = _NUMBERS.sub(b"0", said)[:60].decode("ascii", "replace")
        text = f"{words}{said[:160].decode('utf-8', 'replace')}{f' ({meaning})' if meaning else ''}"
        self._first = min(self._first, (offset, text)) if self._first else (offset, text)
        self._note(alike, text, offset)


def _step(raw: bytes) -> bytes:
    """The step that a line of a known program reports, as it is printed; all of the line where it is not found."""
    return _place(raw[:_BYTES_SEARCHED]) or raw[:_BYTES_SEARCHED]


def _places(lines: list[bytes]) -> Iterator[bytes]:
    """Where a program is by the lines that report it, with what it measures there."""
    for raw in lines:
        start = raw[:_BYTES_SEARCHED]
        if (place := _place(start)) and _MEASURED.search(start):
            yield place


def _place(start: bytes) -> bytes:
    """Where a program is, by each count in a line: its step says more than its epoch, which may come first."""
    return b" ".join(found["place"] for found in _REPORT.finditer(start))
