"""Reads the table of `dcgmi diag`: which checks failed, on which GPUs, and which have a result that says neither."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts

_MAX_LINE = 1_000
_MAX_CHECKS = 1_024
_MAX_ROWS = 16
_MAX_TEXT = 300
_HEAD = re.compile(r"^\|\s*Diagnostic\s*\|\s*Result\s*\|", re.MULTILINE)
_BORDER = re.compile(r"\+-+\+-+\+")
_SECTION = re.compile(r"[|+]-{3,8} +(?P<name>[A-Za-z][A-Za-z ]{0,40}?) +-+")
_ABOUT = re.compile(r".*(?: Version| Detected)")
"""Rows of the section Metadata, which older tables print without its name."""
_DETAIL = re.compile(r"(?:Warning|Error|Info)\b.*")
_OF_DEVICE = re.compile(r"[A-Za-z]{2,12} ?[0-9]{0,4}: (?P<word>[A-Za-z]{2,12}\b.*)")
"""The result of one device below a check of DCGM 4: `GPU5: Fail`."""
_OF_SOME = re.compile(r"(?P<word>Pass|Fail|Warn|Skip) - [A-Za-z]{2,12}s?: [0-9, ]{1,200}", re.IGNORECASE)
"""The result of some devices below that of others, as DCGM 2 and 3 print it: `Fail - GPU: 3`."""
_PASS = re.compile(r"pass(?: - .*)?", re.IGNORECASE)
_SUCCESS = re.compile(r"^Successfully ran ", re.MULTILINE)
_ERROR = re.compile(r"^(Error: [^\n]{1,160})", re.MULTILINE)
_FAILURE = re.compile(
    r"^(Error: (?:Diagnostic c(?:an|ould)|Unable to complete diagnostic|Unable to connect to host engine)[^\n]{0,160}"
    r"|Aborting the iterative runs of the diagnostic due to failure[^\n]{0,160})",
    re.MULTILINE,
)
"""Printed in the place of a table, or after those of iterations. Source: NVIDIA/DCGM, dcgmi/Diag.cpp."""


@dataclass(slots=True)
class _Check:
    """A check of the table."""

    name: str
    results: list[str]
    """Its result, then those of single devices or of some of them."""
    section: str = ""
    """The heading above it, such as Stress."""
    details: list[str] = field(default_factory=list)
    """What its warnings and errors say."""


def is_table(text: str) -> bool:
    """Whether a text has the head of a table of results, or what the program prints in its place."""
    return bool(_HEAD.search(text) or _FAILURE.search(text))


def read(text: str) -> Facts:
    """The checks that failed, and results that are not judged: neither passed nor failed, or none of the program.

    The program prints `Pass`, `Fail`, `Warn` and `Skip`, in the first column of results or for each device.
    Source: NVIDIA/DCGM, dcgmi/Diag.cpp.

    Raises:
        ForeignFormatError: the table has no end, so that a part of the output is lost.
    """
    failed = [f"dcgmi diag: {found.rstrip()}" for found in _FAILURE.findall(text)]
    if not _HEAD.search(text):
        return {"failed_checks": failed[:_MAX_ROWS]}
    rows = [line.rstrip() for line in text.split("\n") if line.startswith(("|", "+"))]
    if not _BORDER.fullmatch(rows[-1][:_MAX_LINE]):
        raise ForeignFormatError("is cut off: the table of results has no end", help="copy the whole output")
    checks = list(_checks(rows))
    failed += [told for check in checks if (told := _failed(check))]
    unread = [f"{check.name}: {result}" for check in checks for result in check.results if _is_open(result)]
    if not checks:
        unread.append("dcgmi diag: no check has a result")
    if not _SUCCESS.search(text):
        error = _ERROR.search(text)
        unread.append(error[1] if error else "dcgmi diag: no line says that it ran")
    return {
        "failed_checks": list(dict.fromkeys(failed))[:_MAX_CHECKS],
        "unread": list(dict.fromkeys(unread)),
        "ran": list(dict.fromkeys(_ran(checks))),
    }


def _ran(checks: list[_Check]) -> Iterator[str]:
    """The diagnostics as a test, with each section in which a check ran: level 1 has no more than Deployment."""
    for check in checks:
        if any(_is_failure(result) or _PASS.fullmatch(_word(result)) for result in check.results):
            yield "diagnostics"
            if check.section:
                yield f"diagnostics: {check.section}"


def _checks(rows: list[str]) -> Iterator[_Check]:
    """Each check, with the rows below it."""
    check: _Check | None = None
    in_section, in_detail = "", False
    for line in rows:
        if section := _SECTION.match(line):
            in_section = section["name"]
            continue
        name, _, rest = line[1:_MAX_LINE].partition("|")
        name, result = name.strip(" -|"), rest.rpartition("|")[0].strip()
        if not line.startswith("|") or result == "Result" or in_section == "Metadata" or _ABOUT.fullmatch(name):
            continue
        if name and not _DETAIL.fullmatch(name):
            if check is not None:
                yield check
            check, in_detail = _Check(name[:_MAX_TEXT], [result], in_section), False
        elif check is not None and not name and (_OF_SOME.fullmatch(result) or _is_of_device(result)):
            check.results.append(result)
        elif check is not None and (name or in_detail):
            in_detail = True
            if name:
                check.details.append(result)
            else:
                check.details[-1] = f"{check.details[-1]} {result}"[:_MAX_TEXT]
        elif check is not None and result:
            check.results.append(result)
    if check is not None:
        yield check


def _is_of_device(result: str) -> bool:
    return len(result) < 40 and bool(_OF_DEVICE.fullmatch(result))


def _word(result: str) -> str:
    """The result itself, without the device that it is of."""
    own = _OF_DEVICE.fullmatch(result)
    return own["word"] if own else result


def _is_failure(result: str) -> bool:
    return _word(result).lower().startswith("fail")


def _is_open(result: str) -> bool:
    return not _is_failure(result) and not _PASS.fullmatch(_word(result))


def _failed(check: _Check) -> str | None:
    """What failed, in the words of the table; None where nothing did."""
    bad = [result for result in check.results if _is_failure(result)]
    if not bad:
        return None
    has_device = len(bad) > 1 or "GPU" in bad[0]
    return f"{check.name}: {', '.join(bad[:_MAX_ROWS] if has_device else [*bad, *check.details[:_MAX_ROWS]])}"
