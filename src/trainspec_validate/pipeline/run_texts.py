"""Says whether a text is a log or a list of the steps of a run, for a search that names what is not read."""

from __future__ import annotations

import codecs
import re
from typing import Final

from trainspec_validate.pipeline.run_tables import is_run_table

_WIDE: Final = "is text in UTF-16, as PowerShell redirects it, and UTF-8 is read; save it as UTF-8"
LOOKS_LIKE_LOG: Final = "looks like a training log, and is of no known format"
LOG_BY_CONTENT: Final = "looks like a training log under a name that is not searched"
LIST_OF_STEPS: Final = "looks like a list of the steps of a run in JSON, which is not read"
QUOTES_LOG: Final = "is a page or a program by its name, and holds lines of a training log"
REMEDIES: Final = {
    QUOTES_LOG: "give it a name that ends in .log",
    LOG_BY_CONTENT: "give it a name that ends in .log",
    LIST_OF_STEPS: "write each object on a line of a .jsonl file",
}
MOST_QUOTED: Final = 5
"""Lines of a log that a program or a page holds at most; the output of a job can begin with its program."""
_LOG_BYTES: Final = 65_536
_LOG_LINE: Final = re.compile(
    rb"^(?=[^\n]{0,1000}\b(?:step|iter|iteration|epoch)s?\b[\"']?[ :=#\[(]{0,4}\d)"
    rb"[^\n]{0,1000}\bloss\b[\"']?[ :=(]{1,4}-?(?:\d|nan)[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_OBJECT: Final = re.compile(rb"\{[^{}]{1,2000}\}")
_STEP: Final = re.compile(rb'"(?:global_?)?(?:step|iter|iteration|epoch)s?"\s{0,8}:\s{0,8}\d', re.IGNORECASE)
_LOSS: Final = re.compile(rb'"(?:\w{1,40}[_/])?loss"\s{0,8}:\s{0,8}(?:-?\d|-?inf|"?nan|null)', re.IGNORECASE)


def looks_like_log(start: bytes) -> bool:
    r"""Whether a text begins with lines of a training log: two or more with a step or an epoch, and a loss.

    >>> looks_like_log(b"iter 10 loss 2.5\niter 20 loss 2.4\n"), looks_like_log(b"the loss of step 5 fell\n")
    (True, False)
    """
    text = start[:_LOG_BYTES]
    return (b"\0" not in text and len(_LOG_LINE.findall(text)) > 1) or is_run_table(text)


def why_wide(start: bytes, *, is_named: bool) -> str:
    """Why a text that a program printed and that is in UTF-16, as PowerShell redirects it, is not read; else empty.

    >>> why_wide("iter 1: loss 2.5".encode("utf-16"), is_named=True)[:22], why_wide(b"iter 1", is_named=True)
    ('is text in UTF-16, as ', '')
    """
    if not start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ""
    from trainspec_validate.telemetry.formats.detection import detect  # noqa: PLC0415 - start-up

    text = start.decode("utf-16", "ignore").encode("utf-8", "ignore")
    return _WIDE if is_named or looks_like_log(text) or detect(text) else ""


def why_no_stream(start: bytes, least: int = 2) -> str:
    """Why a text under the name of a document, a program or a page is no stream, though a run wrote it; else empty."""
    return LOG_BY_CONTENT if is_log_throughout(start, least) else LIST_OF_STEPS if is_list_of_steps(start) else ""


def is_log_throughout(start: bytes, least: int = 2) -> bool:
    r"""Whether at least half of the lines at the start of a text, and so many of them, are those of a training log.

    A program, a page or a document quotes fewer.

    >>> is_log_throughout(b"iter 10 loss 2.5\niter 20 loss 2.4\n")
    True
    >>> is_log_throughout(b"# Results\n\nThe run prints\n\niter 10 loss 2.5\niter 20 loss 2.4\n\nand ends.\n")
    False
    """
    lines = [line for line in start[:_LOG_BYTES].split(b"\n") if line.strip()]
    num = 0 if b"\0" in start[:_LOG_BYTES] else sum(_LOG_LINE.match(line) is not None for line in lines)
    return num >= least and 2 * num >= len(lines)


def is_list_of_steps(start: bytes) -> bool:
    """Whether a text is a list in JSON of two or more objects with a step and a loss, whatever number that is.

    >>> is_list_of_steps(b'[{"step": 1, "loss": 2.5}, {"step": 2, "loss": NaN}]')
    True
    >>> is_list_of_steps(b'[{"step": 1, "title": "loss"}, {"step": 2, "title": "data"}]')
    False
    """
    if not start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return False
    objects = _OBJECT.findall(start[:_LOG_BYTES])
    return sum(bool(_STEP.search(one) and _LOSS.search(one)) for one in objects) > 1
