"""Defines what a check produces: places, findings, verdicts and the report that carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Pointer = tuple[str | int, ...]
"""A path of keys and list indices from the document root; the empty tuple is the document itself."""

_MOST_NAMED = 5


class Severity(StrEnum):
    """How much a finding weighs: as its requirement's level says, and a warning where the node group decides."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the lightest; higher weighs more."""
        return _SEVERITY_ORDER.index(self)


_SEVERITY_ORDER = (Severity.NOTE, Severity.WARNING, Severity.ERROR)


class Verdict(StrEnum):
    """Result of one requirement for one set of documents. Nothing seen is never a pass."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    WARN = "warn"
    NOT_APPLICABLE = "not-applicable"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"
    ERROR = "error"


def verdict_of(severity: Severity, num_findings: int) -> Verdict:
    """The verdict on a requirement that was judged, by the heaviest severity of its findings."""
    if not num_findings:
        return Verdict.PASS
    return Verdict.FAIL if severity is Severity.ERROR else Verdict.WARN


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of text: lines and columns count from 1, columns in code points, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that the reader of a finding wants to see, with a few words on why."""

    message: str
    path: str
    pointer: Pointer
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a finding on a stream: the series, the time it spans, how often it was seen, and some values."""

    series: str = ""
    """Name of the series, `name{key=value}`; empty where the finding is not about one."""
    subjects: str = ""
    """Ranks, hosts or devices that it was seen on, in words, such as `ranks 0-3, 7`."""
    first_time_us: int | None = None
    """First time that it was seen, in microseconds since 1970 UTC."""
    last_time_us: int | None = None
    """Last time that it was seen."""
    count: int = 1
    """How often it was seen."""
    samples: tuple[str, ...] = ()
    """Some of the values, in words."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated requirement at one place: what is wrong, where, what would be right, and a link to the why."""

    requirement: str
    """Permanent id, for example `TS-PAR-001`."""
    name: str
    """Readable name, for example `world-size`; accepted wherever the id is."""
    severity: Severity
    message: str
    """Fault, with the numbers; one sentence, no full stop, starts in lower case unless a name leads."""
    path: str
    """The file as the user named it, with forward slashes; `<stdin>` for standard input."""
    pointer: Pointer = ()
    points_at_key: bool = False
    """True when the finding is about the key itself, for example an unknown one."""
    span: Span | None = None
    """None when the place has no text (a file that cannot be read)."""
    help: str = ""
    """Remedy, with the number; empty when the message says it all."""
    url: str = ""
    related: tuple[Related, ...] = ()
    evidence: Evidence | None = None
    """For findings on streams."""
    source_line: str = ""
    """Text of the line for an excerpt, where the file is too large to be kept."""


Origin = Literal["given", "referenced", "named", "only", "namesake", "naming", "unnamed", "stranded"]
"""Why a file was judged.

The user named it, a document refers to the file or to the name in it, it is the only one of its kind that a document
without a reference can be for, it has the name of one, it refers to one, it has no reference and can only be for one,
or it refers to one that its tree has not.
"""


class SuppressionKind(StrEnum):
    """Which of the three ways silenced a finding."""

    INLINE = "inline"
    WAIVER = "waiver"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A finding that was silenced, by what, and the reason that was given."""

    finding: Finding
    kind: SuppressionKind
    reason: str


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """One file that was judged: its kind and name, and the text that excerpts are cut from."""

    path: str
    kind: str
    name: str
    text: str = field(repr=False, default="")
    origin: Origin = "given"


Cause = Literal["absent", "uncovered"]
"""Why something was not judged.

The input lacks what the user can give, or no formula or figure of this tool and its catalog covers what the input has.
"""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Requirements that were not judged on a document, for one reason."""

    path: str
    reason: str
    """Absent document or key, as it follows the name of the file: `names cluster 'c-1', which was not given`."""
    help: str
    requirements: tuple[str, ...]
    """Their ids, sorted; empty where nothing of the file was judged, or nothing from the place on."""
    pointer: Pointer = ()
    span: Span | None = None
    recorded: str = ""
    """The baseline that records it; empty where it is new."""
    cause: Cause = "absent"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Requirements that one option or setting leaves out of a run, whatever the input holds."""

    option: Literal["ignore", "select", "profile"]
    words: tuple[str, ...]
    """Text of the selection: ids and chapters, or the name of the profile."""
    settings: str
    """The settings file that says so; empty for the command line or a program."""
    requirements: tuple[str, ...]
    """Their ids, sorted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one requirement over all documents, with the reason when it was not judged."""

    requirement: str
    verdict: Verdict
    num_findings: int = 0
    reason: str = ""
    absent: tuple[str, ...] = ()
    """Kinds of documents that were not given, without which a stream or checkpoint was not judged by it."""


@dataclass(frozen=True, slots=True)
class CutRecord:
    """The last record of a file, which was not judged because its line has no end."""

    path: str
    line: int
    offset_bytes: int
    """Bytes of the uncompressed text before it."""
    num_bytes: int

    @property
    def place(self) -> str:
        """Where it begins, in words.

        >>> CutRecord("run.jsonl", 3, 1245, 104).place
        'line 3 (byte 1,245)'
        """
        return f"line {self.line:,} (byte {self.offset_bytes:,})"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Part of the data to be judged that the streams of a run hold; reported even when nothing is wrong."""

    run: str
    files: tuple[str, ...]
    num_bytes: int
    num_records: int
    num_samples: int
    first_time_us: int
    """Microseconds since 1970 UTC; -1 where there is no record, or the source states no times."""
    last_time_us: int
    covered_seconds: float
    """Time from the first to the last record without the time between attempts; 0 where no times are stated."""
    num_attempts: int
    metrics_seen: tuple[str, ...]
    metrics_absent: tuple[str, ...]
    """Required, and neither seen nor declared unsupported."""
    metrics_unsupported: tuple[str, ...]
    num_ranks_seen: int
    num_ranks_expected: int | None
    """None where nothing says how many there are."""
    num_devices_seen: int
    num_devices_expected: int | None
    num_hosts_seen: int
    not_judged: tuple[tuple[str, str], ...] = ()
    """Requirements that were not judged, each with the reason."""
    cut_records: tuple[CutRecord, ...] = ()
    num_metrics_required: int = 0
    """Metrics that every run requires."""
    num_metrics_reported: int = 0
    """Required metrics that have a value."""
    num_checks: int = 0
    """Requirements on streams that were selected."""
    num_checks_judged: int = 0
    lacks: tuple[str, ...] = ()
    """Why the streams are no complete account of a run, such as `no completed step`; empty where nothing says so."""
    incidents: tuple[str, ...] = ()
    """Faults of the run by its own streams, such as a fault or the status `failed`."""
    notes: tuple[str, ...] = ()
    """Parts of files of other programs that were left out: values without a name in the catalog, ranks, devices."""

    @property
    def seconds(self) -> float:
        """From the first to the last record; without the time between attempts where no start is stated."""
        if self.first_time_us < 0:
            return self.covered_seconds
        return (self.last_time_us - self.first_time_us) / 1e6


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of the checks on inputs of one kind."""

    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    documents: tuple[DocumentSummary, ...] = ()
    """Inputs that were judged."""
    coverage: tuple[Coverage, ...] = ()
    failures: tuple[str, ...] = ()
    """Inputs that could not be read."""
    unjudged: tuple[Unjudged, ...] = ()
    """Requirements that were not judged for lack of documents."""

    def __add__(self, other: CheckResult) -> CheckResult:
        return CheckResult(
            self.findings + other.findings,
            self.outcomes + other.outcomes,
            self.documents + other.documents,
            self.coverage + other.coverage,
            self.failures + other.failures,
            self.unjudged + other.unjudged,
        )

    @property
    def paths(self) -> frozenset[str]:
        """The files and directories that were judged."""
        return frozenset(document.path for document in self.documents)


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Files that a search found and left out on purpose, which leaves nothing unjudged."""

    reason: str
    paths: tuple[str, ...]
    words: tuple[str, ...] = ()
    """The patterns that exclude them; empty where their content shows that they are no input."""
    settings: str = ""
    """The settings file that has the patterns; empty where the command line does."""

    def __str__(self) -> str:
        """How many, and by what, or the first of them.

        >>> str(PassedOver("is excluded", ("tests/a.yaml",), ("tests",), "trainspec.toml"))
        '1 file excluded by exclude tests in trainspec.toml'
        >>> str(PassedOver("is a data set in JSON Lines", ("a.jsonl", "b.jsonl")))
        '2 files passed over: a.jsonl, b.jsonl: each is a data set in JSON Lines'
        """
        number = f"{len(self.paths):,} file{'' if len(self.paths) == 1 else 's'}"
        words = _first_of(self.words)
        if not words:
            each = ": each" if len(self.paths) > 1 else ""
            return f"{number} passed over: {_first_of(self.paths)}{each} {self.reason}"
        by = f"exclude {words} in {self.settings}" if self.settings else f"--exclude {words}"
        return f"{number} excluded by {by}"


def _first_of(words: tuple[str, ...]) -> str:
    more = f" and {len(words) - _MOST_NAMED:,} more" if len(words) > _MOST_NAMED else ""
    return f"{', '.join(words[:_MOST_NAMED])}{more}"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one run found; the only argument of a reporter."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...] = ()
    documents: tuple[DocumentSummary, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    specification_version: str = ""
    tool_version: str = ""
    coverage: tuple[Coverage, ...] = ()
    """One for each run whose streams were judged."""
    unjudged: tuple[Unjudged, ...] = ()
    """Requirements that a complete input would have had judged."""
    settings: str = ""
    """The settings file that was in force; empty where there was none."""
    left_out: tuple[LeftOut, ...] = ()
    """Requirements that were not to be judged."""
    passed_over: tuple[PassedOver, ...] = ()
    """Files that were excluded, and data sets."""
    never_fails: bool = False
    """Whether the settings file keeps every finding from failing the run."""

    def at_or_above(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings that weigh at least `severity`."""
        return tuple(f for f in self.findings if f.severity.rank >= severity.rank)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By file, then line and column, then requirement: the order in which a person fixes a file."""

    def key(finding: Finding) -> tuple[str, Span, str, str]:
        return (finding.path, finding.span or Span(0, 0, 0, 0), finding.requirement, finding.message)

    return tuple(sorted(findings, key=key))
