"""The only place that turns a ranking into the documents of one of its choices."""

from __future__ import annotations

from trainspec_validate.commented import as_text
from trainspec_validate.planner import plan_text
from trainspec_validate.planner.explain import reasons
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import Names, policy_figures
from trainspec_validate.planner.search import Ranking, Scored
from trainspec_validate.starter import checkpoint

PLAN_FILE, POLICY_FILE = "plan.yaml", "checkpoint.yaml"


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
