"""Follows a live run at the terminal: findings as they become true, until it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time_ns

from trainspec_validate.cli import terminal
from trainspec_validate.cli.request import Request, is_open, selection_of, threshold_of, words_of
from trainspec_validate.cli.settings import UNJUDGED
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.model.finding import CheckResult, Finding, Report
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.data_sets import DATA_SET
from trainspec_validate.pipeline.detect import NO_STREAM, Source, detect, search
from trainspec_validate.pipeline.overlooked import passed_by
from trainspec_validate.pipeline.streams import documents_beside, with_account
from trainspec_validate.report import render
from trainspec_validate.report.evidence import coverage_lines
from trainspec_validate.report.excerpt import Painter
from trainspec_validate.report.summary import summary_line
from trainspec_validate.report.unjudged import groups
from trainspec_validate.report.unjudged import line as line_of
from trainspec_validate.system.boundary import InputError
from trainspec_validate.system.neutral import printable
from trainspec_validate.telemetry.decode.run_file import NATIVE
from trainspec_validate.telemetry.follow import OTHER_FORMAT, Follower, why_not_followed

LOST_SECONDS = 60.0
"""How long another stream is waited for once every stream that was followed is gone."""
_LAST_SECONDS = 1.0
"""How long the last records of other emitters are waited for when the run has said that it ends."""
_MOST_NAMED = 5
_NO_STREAM = "no stream to follow yet"
_OURS = re.compile(r"(?:now|over|no longer|in the end|left out|not judged|error|note|coverage)\b", re.IGNORECASE)
"""Words by which a reader knows lines that are about no file."""


def follow(request: Request, interval_seconds: float) -> int:
    """Judge the streams below the paths again and again, and return the exit code once the run has ended.

    Raises:
        Failure: wrong use, or the documents next to the streams cannot be read.
    """
    index = load_index()
    selection = selection_of(request)
    wanted = [r for r in index.by_id.values() if r.check == "stream" and selection.takes(index, r.id)]
    _refuse_documents_alone(request.paths)
    try:
        beside = documents_beside(request.paths or (".",))
    except InputError as error:
        raise Failure.of(error) from error
    follower = Follower(wanted, index, beside)
    told = _Told(follower)
    lost_since: float | None = None
    has_ended_before = False
    try:
        while True:
            new, judgement = follower.look(_streams(request, told), time_ns() // 1_000)
            told.tell(new, judgement, follower.refused, request.paths or (".",))
            if follower.has_ended and (has_ended_before or not follower.is_growing):
                break
            if not follower.followed and request.paths and all(map(told.is_settled, request.paths)):
                terminal.tell("Error: no PATH can be followed")
                break
            has_ended_before = follower.has_ended
            lost_since = (lost_since or monotonic()) if told.is_lost(request.paths) else None
            if lost_since is not None and monotonic() - lost_since >= LOST_SECONDS:
                terminal.tell(f"Error: no stream is left to follow, and none came in {LOST_SECONDS:g} s")
                break
            sleep(min(interval_seconds, _LAST_SECONDS) if follower.has_ended else interval_seconds)
    except KeyboardInterrupt:  # a signal that ends the process is one too
        told.is_stopped = True
        with suppress(Failure):  # nothing was judged, which the code of the signal says
            told.end(request)
        raise
    return told.end(request)


@dataclass(slots=True)
class _Told:
    """What was told so far: findings, and files that cannot be read."""

    follower: Follower
    judgement: CheckResult | None = None
    refused: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Files that were found and are not followed, and why."""
    documents: dict[str, None] = field(default_factory=dict)
    """Names of documents that were found."""
    waits: dict[str, str] = field(default_factory=dict)
    """What the run waits for."""
    lines: set[str] = field(default_factory=set)
    """Findings as they were printed."""
    named: set[str] = field(default_factory=set)
    """Files of which it was said that they are left out."""
    seen: set[str] = field(default_factory=set)
    """Files that the last look left out; the first line of a new one may not have been written."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of files of other formats when they were first seen."""
    is_stopped: bool = False
    """Whether a signal ended the command, maybe in the middle of a look."""

    def tell(
        self,
        findings: list[Finding],
        judgement: CheckResult | None,
        refused: Mapping[str, str],
        paths: Sequence[str],
    ) -> None:
        """One line for each new finding and for each file that is refused, at once."""
        self.judgement = judgement or self.judgement
        self._print("", findings)
        for line in _lines(self.follower.withdrawn):
            self.lines.discard(line)
            terminal.emit(f"no longer: {line}\n")
        is_waited_for = self.judgement is None and not {*refused, *self.refused}.issuperset(paths)
        absent = {_NO_STREAM: f"looked for in {_places(paths)}"} if is_waited_for else {}
        self._tell_waits(absent or self.follower.waits)
        for name, reason in refused.items():
            self.refuse(name, reason)
        for name in sorted(self.seen & self.left_out.keys()):
            self._tell_left_out(name, self.left_out[name])
        self.seen = set(self.left_out)

    def _print(self, mark: str, findings: Sequence[Finding]) -> None:
        lines = [line for line in _lines(findings) if line not in self.lines]
        terminal.emit("".join(f"{mark}{line}\n" for line in lines))
        self.lines.update(lines)

    def _tell_left_out(self, name: str, reason: str) -> None:
        if name not in self.named:
            self.named.add(name)
            terminal.tell(f"left out: {name}: {reason}")

    def is_lost(self, paths: Sequence[str]) -> bool:
        """Whether nothing is left to follow, or the live run writes a log that cannot be followed."""
        follower = self.follower
        if follower.is_lost or (bool(paths) and self.refused.keys() >= set(paths)):
            return True
        return not follower.followed and not follower.headless and self._has_other_log()

    def _has_other_log(self) -> bool:
        """Whether a file of a format that cannot be followed has grown."""
        for name in (name for name, reason in self.left_out.items() if reason.startswith(OTHER_FORMAT)):
            with suppress(OSError):
                size = Path(name).stat().st_size
                if size > self.sizes.setdefault(name, size):
                    return True
        return False

    def is_settled(self, path: str) -> bool:
        """Whether a path is a file that cannot be followed, however long it is waited for."""
        return path in self.refused and Path(path).is_file()

    def _tell_waits(self, now: Mapping[str, str]) -> None:
        """One line when a run begins to wait for something, and one when that is over."""
        for what, details in now.items():
            if what not in self.waits:
                terminal.emit(printable(f"now: {what}, {details}") + "\n")
        for what in () if self.follower.has_ended else self.waits.keys() - now.keys():
            terminal.emit(printable(f"over: {what}") + "\n")
        self.waits = dict(now)

    def refuse(self, name: str, reason: str) -> None:
        """Tell once that a file cannot be judged, or not any further."""
        if name not in self.refused:
            self.refused[name] = reason
            terminal.tell(f"Error: {name}: {reason}")

    def end(self, request: Request) -> int:
        """Tell what the run covers and what was not judged, and give the exit code.

        Raises:
            Failure: nothing was judged.
        """
        for name, reason in self.follower.rewritten():
            self.follower.refused[name] = reason
            self.refuse(name, reason)
        unjudged = [*self._not_followed(request.paths or (".",)), *self._ends()]
        for line in unjudged:
            terminal.tell(line)
        unjudged += self.left_out
        if self.judgement is None:
            raise Failure("nothing was judged: no stream with a head came")
        report = self._report(self.judgement)
        self._print("in the end: ", report.findings)
        if not self.follower.has_ended:
            terminal.tell("the run has not ended; what may still come is judged as missing only without --follow")
        for coverage in report.coverage:
            terminal.emit("\n".join(printable(line) for line in coverage_lines(coverage)) + "\n")
        for entries in groups(report):
            terminal.emit(f"{_unforged(line_of(entries, Painter()))}\n")
        terminal.emit(f"{summary_line(report)}\n")
        if self.refused:
            return terminal.WRONG_USE
        words = words_of(request.fail_on)
        if (UNJUDGED in words and unjudged) or any(is_open(entry, words) for entry in report.unjudged):
            return terminal.FINDINGS
        threshold = threshold_of(request.fail_on)
        worst_rank = max((finding.severity.rank for finding in report.findings), default=-1)
        failed = threshold is not None and worst_rank >= threshold.rank
        return terminal.FINDINGS if failed else terminal.OK

    def _report(self, judgement: CheckResult) -> Report:
        """The last judgement as the command without --follow reports one."""
        files = [one.file for one in self.follower.followed.values()]
        run = next((file.head.run for file in files if file.head), "")
        result = with_account(files, run, judgement, {})
        return Report(
            findings=result.findings,
            documents=result.documents,
            outcomes=result.outcomes,
            coverage=result.coverage,
            unjudged=result.unjudged,
        )

    def _not_followed(self, paths: Sequence[str]) -> Iterator[str]:
        """What was found and left out; a place that could not be searched is an error."""
        for name, reason in sorted(self.left_out.items()):
            self._tell_left_out(name, reason)
        found = search(paths)
        for failure in found.failures:
            place, _, reason = str(failure).partition(": ")
            self.refuse(place, reason)
        documents = [path for path in self.documents if Path(path).exists()]
        if documents:
            yield f"left out: {_some(documents)}: documents are judged without --follow"
        if found.checkpoints:
            names = _some([group.root.as_posix() for group in found.checkpoints])
            yield f"left out: {names}: checkpoints are judged without --follow"
        for path, reason, _ in passed_by(paths, found, self.follower.followed):
            if path in self.left_out:
                continue
            before = self.follower.name_of(Path(path))
            words = f"was followed as {before} until it was renamed; what was written since is not judged"
            yield f"left out: {path}: it {words if before else reason}"

    def _ends(self) -> Iterator[str]:
        """The ends of files that were not judged, because their last lines have no end or came too late."""
        late = (
            "the command was stopped before it judged them" if self.is_stopped else "they came after the run had ended"
        )
        for name, offset, num_bytes, has_line_end in self.follower.unjudged_ends():
            reason = late if has_line_end else "no line end is there"
            yield f"not judged: {name}: the last {num_bytes:,} bytes, from byte {offset:,} on; {reason}"


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = render(Report(findings=tuple(findings)), "concise").splitlines()[: len(findings)] if findings else []
    return [_unforged(line) for line in lines]


def _unforged(line: str) -> str:
    """A line that does not begin like one of ours, whatever the name of its file is."""
    return f"./{line}" if _OURS.match(line) else line


def _places(paths: Sequence[str]) -> str:
    absent = [path for path in paths if not Path(path).exists()]
    return _some(paths) + (f"; {_some(absent)} does not exist yet" if len(absent) == 1 else "")


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _refuse_documents_alone(paths: Sequence[str]) -> None:
    """Refuse to wait where every path is a document, in which no stream can begin.

    Raises:
        Failure: no path is a stream, a directory, a pattern or absent as yet.
    """
    if paths and all(Path(path).is_file() for path in paths):
        try:
            kinds = {detect(file).kind for file in search(paths).files}
        except InputError:
            return  # the first look reports it
        if kinds == {"document"}:
            raise Failure(f"{', '.join(paths)}: --follow judges streams, and no PATH is one; name the stream too")


def _streams(request: Request, told: _Told) -> Iterator[Path]:
    for file in search(request.paths or (".",)).files:  # what is not there yet may come
        try:
            source = detect(file)
        except InputError as error:
            if file.path.exists():  # else it has just gone; one that was followed is told by its follower
                told.refuse(file.name, str(error).removeprefix(f"{file.name}: "))
            continue
        reason = _why_not_followed(source)
        if reason:
            told.left_out[file.name] = reason
            continue
        told.left_out.pop(file.name, None)  # its first line may just have come
        if source.kind == "stream":
            yield file.path
        elif source.kind == "document":
            told.documents[file.name] = None


def _why_not_followed(source: Source) -> str:
    """Why a file that was found is left out; empty for any other."""
    if source.unread in {NO_STREAM, DATA_SET}:
        return f"it {source.unread}"
    if source.kind == "stream" and source.file.found and source.format not in {"", NATIVE, "parquet"}:
        return why_not_followed(source.format)
    return ""
