"""Searches a plan for the playground: a cluster profile and a model in, a plan and a policy as JSON out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from trainspec_validate.model.units import bytes_, number, percent, seconds
from trainspec_validate.pipeline.planning import PlannedJob, PlanSearch, plan
from trainspec_validate.system.boundary import InputError

FOLDER = Path("/playground")
CLUSTER, PLAN, POLICY = "cluster.yaml", "plan.yaml", "checkpoint.yaml"
EVERY = 25
"""Layouts between two reports of progress."""


def propose(asked: str, progress: Callable[[int, int], None] | None = None) -> str:
    """Search a plan for a JSON object of files, model and number of ranks; a JSON object with texts and words.

    An empty model is the model of the plan among the files, and 0 ranks are all of the node group.
    """
    given = json.loads(asked)
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for name in (CLUSTER, PLAN):
        if given["files"].get(name, "").strip():
            (FOLDER / name).write_text(given["files"][name], encoding="utf-8")
    os.chdir(FOLDER)

    def report(done: int, total: int) -> None:
        if progress is not None and done % EVERY == 0:
            progress(done, total)

    try:
        found = plan(Path(CLUSTER), given["model"] or Path(PLAN), num_ranks=given["num_ranks"] or None, progress=report)
    except InputError as error:
        return json.dumps({"files": {}, "words": "\n".join(map(str, error.args))})
    job = found.jobs[0]
    return json.dumps({"files": {PLAN: job.plan_text, POLICY: job.policy_text}, "words": _words(job, found)})


def _words(job: PlannedJob, found: PlanSearch) -> str:
    ranks = job.plan.parallelism.num_accelerators
    band = ""
    if job.low_step_seconds is not None and job.high_step_seconds is not None:
        band = f" ({seconds(job.low_step_seconds)} to {seconds(job.high_step_seconds)} in eight of ten measured jobs)"
    facts = (
        f"{number(found.num_layouts)} layouts on {number(ranks)} ranks were compared, {number(found.num_too_large)} do "
        f"not fit into memory. Predicted: {seconds(job.step_seconds)} for a step{band}, "
        f"{percent(job.model_flops_utilization)} MFU, {bytes_(job.memory_bytes)} on the fullest rank."
    )
    return " ".join([facts, *(f"Assumed {assumption}." for assumption in found.assumptions)])
