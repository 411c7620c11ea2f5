"""Turns a ranking into the documents of one of its choices."""

from __future__ import annotations

from trainspec_validate.documents.commented import as_text
from trainspec_validate.model.units import number, seconds
from trainspec_validate.planner import plan_text
from trainspec_validate.planner.explain import reasons
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import Names, num_steps, planned_seconds, policy_figures
from trainspec_validate.planner.search import Ranking, Scored
from trainspec_validate.planner.starter import checkpoint

PLAN_FILE, POLICY_FILE = "plan.yaml", "checkpoint.yaml"
MOST_STEPS, MOST_SECONDS = 10**8, 1e9
"""What `job.num_steps` and `job.planned_seconds` of a plan can state."""


def too_long(request: Request, scored: Scored) -> str | None:
    """Why documents cannot state the length of a job, and what to change; None where they can."""
    steps, time = num_steps(request), planned_seconds(request, scored)
    if steps <= MOST_STEPS and time <= MOST_SECONDS:
        return None
    job = f"{number(request.num_tokens)} tokens are {number(steps)} steps of {seconds(scored.seconds)}"
    most = f"a plan states {number(MOST_STEPS)} steps and {number(MOST_SECONDS // 86400)} days at most"
    return f"{job}; {most}: use fewer --tokens, or more --global-sequences or --num-ranks"


def documents(request: Request, ranking: Ranking, scored: Scored, cluster_reference: str) -> dict[str, str]:
    """Text of the plan and of its checkpoint policy, by file name.

    The reference to the profile is given as YAML writes it on one line, for example `{file: cluster.yaml}`.
    """
    name = f"{request.model.name}-on-{request.cluster.metadata.name}"[:120]
    names = Names(
        plan=name,
        policy=f"{name}-policy",
        cluster_reference=cluster_reference,
        plan_reference=f"{{file: {PLAN_FILE}, name: {as_text(name)}}}",
    )
    figures = policy_figures(request, scored, names)
    return {
        PLAN_FILE: plan_text.document(request, scored, names, reasons(ranking, scored), figures.blocking_seconds),
        POLICY_FILE: checkpoint.document(figures),
    }
