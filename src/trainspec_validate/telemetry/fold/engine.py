"""Reads all files of a run and folds them into one view, whatever the order of the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.blanks import is_blank
from trainspec_validate.system.boundary import TogetherUnreadableError
from trainspec_validate.system.budget import OverLimitError
from trainspec_validate.telemetry.decode.batch import Batch, in_order, join
from trainspec_validate.telemetry.decode.reader import batches, have_order
from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.decode.run_file import NATIVE, RunFile, Stretch, check_facts
from trainspec_validate.telemetry.fold.build import Circumstances, view_of
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.formats.detection import detect, detect_beyond
from trainspec_validate.telemetry.formats.format import FORMATS, holds_record
from trainspec_validate.telemetry.formats.items import INDEX, Given, Loss
from trainspec_validate.telemetry.formats.named_runs import run_named
from trainspec_validate.telemetry.formats.native import MAX_LINE_BYTES, read_line
from trainspec_validate.telemetry.formats.panel_columns import PANEL, runs_of
from trainspec_validate.telemetry.formats.source import HEAD_BYTES, SourceError, head_of, is_compressed, pieces_of
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.view.event_log import weight
from trainspec_validate.telemetry.view.run_view import RunView, StreamFile

AT_ONCE_BYTES = 32_000_000
"""A run up to this size is read as a whole and put in order before it is folded."""


_LEFT = frozenset({"rank", "device", "unread"})
"""Kinds of losses that are lines with values of a step, and devices without any value."""
_MOST_AT_ONCE = 4_000_000
"""Records and values that are held at once, however well they were compressed."""
_EVENT_WEIGHT = 20
"""Records that take as much as an event of a usual size."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a run."""

    num_workers: int | None = None
    """Processes; None takes as many as there are processors for large runs."""
    engine: str = "local"
    """`local`, or `spark` for the Spark session of this process."""
    is_live: bool = False
    now_us: int | None = None
    watched_until_us: Mapping[int, int] = field(default_factory=dict)
    """Up to when each file of a run that is followed would have shown more records, by its own clock."""


def run_file(number: int, path: Path, name: str) -> RunFile:
    """Format by the first bytes of a file.

    Raises:
        SourceError: the file cannot be read.
    """
    size = path.stat().st_size
    start = head_of(path)
    if b"\n" not in start and b'"head"' in start:
        start = head_of(path, MAX_LINE_BYTES + 2)
    found = detect(start)
    if (found is None or found.is_of_engine) and len(start) >= HEAD_BYTES:
        found = detect_beyond(pieces_of(path), found)
    if found is not None and found.name == "parquet":
        from trainspec_validate.telemetry.decode.arrow import first_head  # noqa: PLC0415
        from trainspec_validate.telemetry.formats.parquet import text_bytes  # noqa: PLC0415

        head = first_head(path)
        return RunFile(number, path, name, found.name, size, head, least_text_bytes=text_bytes(path))
    head = _head(start)
    if found is None and not head and not holds_record(start):
        if is_blank(start):
            raise SourceError("the file is blank, and holds no record" if size else "the file is empty")
        raise SourceError("this is no stream of a known format: " + ", ".join(FORMATS))
    kind = NATIVE if head or found is None else found.name
    run = None if head else run_named(start, kind, path)
    return RunFile(number, path, name, kind, size, head, run, is_compressed=is_compressed(path))


def of_each_run(file: RunFile) -> list[RunFile]:
    """The file once for each run in it: a chart that several runs share, else the file as it is."""
    if file.format != PANEL:
        return [file]
    runs = runs_of(head_of(file.path))
    return [replace(file, number=file.number + place, given=Given(run=run)) for place, run in enumerate(runs)]


def _head(start: bytes) -> Head | None:
    line = start.partition(b"\n")[0].removesuffix(b"\r")
    record = read_line(line) if b'"head"' in line else None
    return record if isinstance(record, Head) else None


def read_run(files: Sequence[RunFile], options: Options | None = None) -> RunView:
    """View for checks of the run that these files hold.

    Raises:
        UnreadableError: a file cannot be read to its end, or passes a limit.
        TogetherUnreadableError: the run passes a limit, or cannot be folded by the engine.
    """
    options = options or Options()
    try:
        digest = digest_of(files, options)
        for file in files:
            facts = digest.facts(file.number)
            with file.reading(facts):
                check_facts(facts)
    except OverLimitError as error:
        raise TogetherUnreadableError(str(error), "leave some of it out") from error
    return view_of(digest, circumstances(files, digest, options))


def digest_of(files: Sequence[RunFile], options: Options) -> Digest:
    """The digest of a run."""
    if options.engine == "spark":
        from trainspec_validate.telemetry.fold.spark import spark_digest  # noqa: PLC0415

        return spark_digest(files, options.num_workers)
    if sum(file.text_bytes for file in files) <= AT_ONCE_BYTES:
        digest = _digest_at_once(files)
        if digest is not None:
            return digest
    from trainspec_validate.telemetry.fold.large import large_digest  # noqa: PLC0415

    return large_digest(files, options.num_workers)


def _digest_at_once(files: Sequence[RunFile]) -> Digest | None:
    """The digest of a small run; None for one that turns out to be large."""
    jit.compile_for(sum(file.text_bytes for file in files))
    digest = Digest()
    digest.names.know(file.head for file in files)
    found: list[Batch] = []
    size = 0
    for batch in (batch for file in files for batch in batches(Stretch(file), digest.names, digest.facts(file.number))):
        found.append(batch)
        size += batch.num_records + batch.num_samples + _EVENT_WEIGHT * sum(weight(event) for _, event in batch.events)
        if size > _MOST_AT_ONCE:
            return None
    digest.add(in_order(join(found), by_time=not have_order(files)))
    return digest


def circumstances(files: Sequence[RunFile], digest: Digest, options: Options) -> Circumstances:
    """Facts of a run that the caller has in addition to its records."""
    return Circumstances(
        files=tuple(_stream_files(files, digest, options)),
        is_live=options.is_live,
        snapshot=bool(files) and all(FORMATS[file.format].snapshot for file in files),
        has_order=have_order(files),
        now_us=options.now_us,
        watched_until_us=options.watched_until_us,
    )


def _lost(facts: FileFacts, *, is_incident: bool = False) -> list[Loss]:
    losses = facts.losses.entries if facts.losses else ()
    return [loss for loss in losses if (loss.reason == "incident") == is_incident]


def _stream_files(files: Iterable[RunFile], digest: Digest, options: Options) -> Iterator[StreamFile]:
    for file in files:
        facts = digest.facts(file.number)
        yield StreamFile(
            path=file.name,
            format=file.format,
            num_bytes=file.num_bytes,
            num_records=facts.num_records,
            is_open=options.is_live or facts.tail is not None,
            has_head=bool(facts.heads),
            starts_with_head=file.head is not None,
            tail_bytes=facts.tail[1] if facts.tail else 0,
            tail_offset=facts.tail[0] if facts.tail else -1,
            clock=facts.losses.clock if facts.losses else "utc",
            losses=tuple(f"{loss.message} ({loss.num:,})" for loss in _lost(facts)),
            left_out=tuple(f"{loss.message} ({loss.num:,})" for loss in _lost(facts) if loss.reason in _LEFT),
            unread=tuple((loss.offset, loss.message) for loss in _lost(facts) if loss.reason == "unread"),
            is_index=any(loss.message.startswith(INDEX) for loss in _lost(facts)),
            unread_names=facts.losses.unread_names if facts.losses else (),
            incidents=tuple(
                f"{loss.message} ({loss.num:,} times)" if loss.num > 1 else loss.message
                for loss in _lost(facts, is_incident=True)
            ),
            end=facts.losses.end if facts.losses else None,
        )
