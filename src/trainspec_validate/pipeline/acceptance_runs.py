"""Finds the streams of training runs among gathered files, and judges an acceptance with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from trainspec_validate.checking.selection import Selection
from trainspec_validate.model.finding import Finding, Report, Unjudged
from trainspec_validate.pipeline.acceptance_notes import STRAGGLER
from trainspec_validate.pipeline.detect import detect
from trainspec_validate.pipeline.files import File
from trainspec_validate.pipeline.inputs import Given
from trainspec_validate.pipeline.validation import PartialInputError, Terms, examine
from trainspec_validate.system.boundary import InputError, open_regular
from trainspec_validate.telemetry.formats.format import FORMATS, StreamFormat

_OF_THE_MACHINE = (
    STRAGGLER,
    "TS-TEL-028",  # devices that report less than others
    "TS-TEL-050",  # clocks of hosts
    "TS-TEL-068",  # memory of devices, and the next three: as the profile has it
    "TS-TEL-080",
    "TS-TEL-081",
    "TS-TEL-083",
    "TS-TEL-085",  # errors of devices
    "TS-TEL-087",
)
"""Checks of streams that say something of the machine. All others judge the program and how it reports."""
_OF_RECORDS = ("TS-TEL-001", "TS-TEL-015")
"""Checks of records and values that cannot be read, so that the former miss something."""
_PIECE_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class RunStream:
    """A stream of a training run."""

    path: Path
    name: str
    """Below the directory of the nodes."""
    digest: str
    """SHA-256 of the file, in hexadecimal digits."""
    is_console: bool
    """Whether it is what a program prints, which may hold the outputs of tools too."""


def run_stream(path: Path, root: Path) -> RunStream | None:
    """A file below a directory of nodes as the stream of a training run, by its content; None for every other file.

    One moment, such as the answer of an exporter, is no run, and neither are errors and states of devices.
    """
    try:
        found = detect(File(path, path.as_posix(), root.as_posix()))
        known = FORMATS.get(found.format) if found.kind == "stream" else None
        if known is None or not _is_of_training(known):
            return None
        return RunStream(path, path.relative_to(root).as_posix(), _digest(path), known.is_console)
    except (InputError, OSError):
        return None  # whoever reads the file says why it cannot be read


def _is_of_training(known: StreamFormat) -> bool:
    return not known.snapshot and not known.is_of_devices


def _digest(path: Path) -> str:
    found = sha256()
    with open_regular(path) as file:
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()


def judged(document: Given, requirements: tuple[str, ...], runs: Sequence[RunStream]) -> tuple[Report, tuple[str, ...]]:
    """The report on a profile with its nodes by these requirements, and on streams by what they show of the machine.

    Returns:
        The report, with a finding for each straggler, and why streams could not be read. Streams with records that
        cannot be read are among what is not judged.
    """
    streams = [stream.path.as_posix() for stream in runs]
    of_runs = (*_OF_THE_MACHINE, *_OF_RECORDS) if streams else ()
    terms = Terms(Selection(select=(*requirements, *of_runs)), given=(document,), merges=False)
    failures: tuple[str, ...] = ()
    try:
        report = examine(streams, terms)
    except PartialInputError as error:
        report, failures = error.report, tuple(_below(str(one), runs) for one in error.args)
    findings = tuple(one for one in report.findings if one.requirement not in _OF_RECORDS)
    others = [one for one in report.findings if one.requirement in _OF_RECORDS]
    unjudged = (*report.unjudged, *_of_records(others), *_without_stragglers(report))
    return replace(report, findings=findings, unjudged=unjudged), failures


def _below(failure: str, runs: Sequence[RunStream]) -> str:
    """Why a stream could not be read, with its name below the directory of the nodes."""
    mine = next((one for one in runs if failure.startswith(f"{one.path.as_posix()}:")), None)
    return failure if mine is None else mine.name + failure.removeprefix(mine.path.as_posix())


def _of_records(findings: Sequence[Finding]) -> Iterator[Unjudged]:
    """The streams with records or values that cannot be read."""
    for path in dict.fromkeys(finding.path for finding in findings):
        first, *more = [finding for finding in findings if finding.path == path]
        others = f", and {len(more)} more" if more else ""
        reason = f"has records that are not read: {first.message}{others}"
        yield Unjudged(path, reason, "`trainspec-validate` shows them", _OF_THE_MACHINE)


def _without_stragglers(report: Report) -> Iterator[Unjudged]:
    """The runs in which no straggler can be named, unless that is said with other requirements."""
    said = {one.path for one in report.unjudged if STRAGGLER in one.requirements}
    for run in report.coverage:
        reason = dict(run.not_judged).get(STRAGGLER)
        if reason is not None and said.isdisjoint(run.files):
            remedy = "let each rank report its step time"
            yield Unjudged(run.files[0], f"names no straggler: {reason}", remedy, (STRAGGLER,))
