"""Judges what a run wrote, for a program: its streams and checkpoints, against the documents of the job."""

from __future__ import annotations

import os

from trainspec_validate.checking.selection import Selection
from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.inputs import Input, sorted_out
from trainspec_validate.pipeline.validation import Progress, Terms, examine
from trainspec_validate.system.boundary import InputError

_OF_A_RUN = {"MetricStream", "Checkpoint"}


def judge_run(
    run: str | os.PathLike[str],
    *documents: Input,
    selection: Selection | None = None,
    num_workers: int | None = None,
    reads_values: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Judge the streams and checkpoints of a run, as `trainspec-validate` does. Nothing is written.

    Args:
        run: directory that the run writes to, or one file of it.
        documents: cluster profile, training plan and checkpoint policy of the job; without them requirements that
            compare a run with its documents are not judged, which the report says.
        selection: requirements to judge; all of them without it.
        num_workers: processes that read large streams; as many as there are processors without it.
        reads_values: whether values of tensors in checkpoints are read too.
        progress: called with the number of files that were read, and of all files.

    Returns:
        The findings, and as `coverage` what the streams hold: ranks, steps of time, metrics that are absent.

    Raises:
        PartialInputError: some of the files cannot be read; it carries the report on the others.
        InputError: none can be read, or there is no stream and no checkpoint.
        TypeError: a document is none of `Input`.
    """
    paths, given = sorted_out([run, *documents])
    terms = Terms(
        selection or Selection(), given=given, num_workers=num_workers, values=reads_values, progress=progress
    )
    report = examine(paths, terms)
    if not any(entry.kind in _OF_A_RUN for entry in report.documents):
        raise InputError(f"{os.fspath(run)}: nothing to judge: no stream and no checkpoint")
    return report
