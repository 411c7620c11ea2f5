"""Declares the report of a conformance test: scenarios, verdicts, and the files of evidence."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import TIME, Count, Extensions, Name, Record, Seconds, Text
from trainspec_validate.documents.types.conformance import Claims, ConformanceLevel, StackDescriptor

Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
RequirementId = Annotated[str, Meta(pattern=r"^TS-[A-Z]{3}-[0-9]{3}$")]
Moment = Literal["detected", "decided", "restored", "first-step", "caught-up"]
Verdict = Literal["pass", "fail", "unsupported", "not-run", "error"]
Time = Annotated[str, Meta(pattern=TIME)]


class Evidence(Record, frozen=True, kw_only=True):
    """A file that verdicts rest on."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Path below the directory of the report."""
    size_bytes: Annotated[int, Meta(ge=0, le=2**60, extra_json_schema={"x-unit": "By"})]
    """Bytes of the file when the report was written."""
    sha256: Sha256
    """SHA-256 of the content, by which `verify` finds a changed file."""


class CheckVerdict(Record, frozen=True, kw_only=True):
    """Result of one check of one trial."""

    check: Name
    """Criterion of the scenario, such as `completes`."""
    passed: bool
    """Whether it holds."""
    messages: tuple[Text, ...] = ()
    """Fault that was found; of a check that holds, the part that was not judged."""
    places: tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...] = ()
    """Where it shows: lines of files of the trial, as `file:line`."""


class Mark(Record, frozen=True, kw_only=True):
    """A moment of the recovery path from a fault, in seconds after the fault."""

    name: Moment
    """Which moment."""
    seconds: Seconds
    """When it was."""


class MomentFigures(Record, frozen=True, kw_only=True):
    """How long one moment of the recovery path took, over all trials of a scenario.

    A quantile is there only where the number of trials bears it, and where so many trials have seen the moment: 5
    trials for the median, 29 for 90 %, 59 for 95 %.
    """

    name: Moment
    """Which moment."""
    num_trials: Count
    """Trials with a fault."""
    num_seen: Count
    """Those in which it came."""
    p50_seconds: Seconds | None = None
    """Within which half of the trials stay."""
    p90_seconds: Seconds | None = None
    """Within which 90 % of the trials stay."""
    p95_seconds: Seconds | None = None
    """Within which 95 % of the trials stay."""
    largest_seconds: Seconds
    """Longest that was seen."""


class TrialReport(Record, frozen=True, kw_only=True):
    """One trial of a scenario."""

    number: Count
    """First, second, and so on."""
    seed: Annotated[int, Meta(ge=0, le=2**62)]
    """Of the random choices of the suite."""
    seconds: Seconds
    """Time that it took."""
    directory: Text
    """Where its files are, below the directory of the report."""
    checks: tuple[CheckVerdict, ...]
    """All checks of the scenario."""
    marks: tuple[Mark, ...] = ()
    """Time line of the fault."""


class ScenarioReport(Record, frozen=True, kw_only=True):
    """One scenario."""

    scenario: Name
    """Scenario that was run, such as `kill-rank`."""
    requirement: RequirementId
    """Requirement that it tests."""
    tier: Literal["core", "extended"]
    """Which profile needs it."""
    level: Literal["observable", "recoverable", "efficient"]
    """Level of conformance that it belongs to."""
    num_ranks: Count | None = None
    """Most ranks that trained at once: the size at which the verdict holds. Reports of earlier versions lack it."""
    verdict: Verdict
    """`pass` only where every check of every trial holds."""
    reason: Text | None = None
    """Why it was not run, or what the stack lacks."""
    gap: Text | None = None
    """Reason under which it is declared that this does not pass; the verdict stays."""
    control: Text | None = None
    """Directory of the run without faults."""
    figures: tuple[MomentFigures, ...] = ()
    """How long the recovery path from the fault took."""
    trials: tuple[TrialReport, ...] = ()
    """Each trial that was run, in order."""


class Machine(Record, frozen=True, kw_only=True):
    """Where the suite ran."""

    system: Text
    """Operating system and version."""
    processor: Text
    """Model of the host processor, as the operating system names it."""
    num_processors: Count
    """Processors that the suite could use."""
    memory_bytes: Annotated[int, Meta(ge=0, le=2**60, extra_json_schema={"x-unit": "By"})]
    """Main memory of the host, in bytes."""
    accelerators: tuple[Text, ...] = ()
    """Devices, where there are any."""


class ReportNode(Record, frozen=True, kw_only=True):
    """A node that ranks could run on."""

    name: Name
    """Name of the node in `--node`, and in the tasks."""
    machine: Count
    """Number of its machine in this report: nodes with the same number are one machine under several names."""
    system: Text
    """Operating system and version."""
    num_processors: Count
    """Processors that the agent of the suite could use there."""
    memory_bytes: Annotated[int, Meta(ge=0, le=2**60, extra_json_schema={"x-unit": "By"})]
    """Main memory of the node, in bytes."""


class ConformanceReport(Record, frozen=True, kw_only=True, tag_field="kind", tag="ConformanceReport"):
    """Results of a conformance test of a stack; `trainspec-conformance verify` judges it again from its evidence."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    created: Time
    """When the suite ended, in UTC."""
    specification_version: Name
    """Specification version that the stack was judged by, such as `1.0-draft`."""
    requirements_sha256: Sha256
    """Digest of the index of requirements."""
    scenarios_sha256: Sha256
    """Digest of the scenarios that were chosen, in their order."""
    suite_version: Name
    """Version of `trainspec-conformance` that ran."""
    stack: StackDescriptor
    """The stack as it was described."""
    versions: dict[Annotated[str, Meta(min_length=1, max_length=200)], Text] = msgspec.field(default_factory=dict)
    """Components and versions, as the stack said itself."""
    machine: Machine
    """Where the suite ran."""
    nodes: tuple[ReportNode, ...] = ()
    """Nodes that the ranks ran on, in the order of the ranks; none where they ran on the machine of the suite."""
    command: tuple[Text, ...]
    """Command that does the same again."""
    claims: Claims
    """Claims that the stack was judged by."""
    documents: tuple[Text, ...] = ()
    """Copies of the documents of the stack, below the directory of the report."""
    document_errors: tuple[Text, ...] = ()
    """Faults in them, each as `file: id: message`; the level `described` needs documents without any."""
    level: ConformanceLevel | None = None
    """Highest level of which every scenario of the claimed profile passed, and of all levels below; None if none."""
    conformant: bool
    """Whether that is the level that the stack itself claims, or a higher one; for `described` nothing was run."""
    scenarios: tuple[ScenarioReport, ...]
    """All scenarios that were chosen."""
    evidence: tuple[Evidence, ...] = ()
    """Every file below the directory of the report that a verdict rests on."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Data of others, under reverse domain names."""
