"""Runs `minimal_torch.py`; a campaign of lm-resiliency, 0.2 or newer, carries out the gradient faults of its task."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import minimal_torch
from task import Fields, read_task

try:
    from lm_resiliency import FaultCampaign, enable_fault_injection
except ModuleNotFoundError:
    sys.stderr.write("this stack needs lm-resiliency: pip install 'lm-resiliency>=0.2'\n")
    raise SystemExit(2) from None

VALUES = {"nan-gradient": "nan", "inf-gradient": "inf"}
TARGETS = [("4", "weight"), ("4", "bias"), ("1", "weight"), ("1", "bias")]
"""Modules of the model and their parameters, one for each fault: a campaign refuses two that may meet on a target."""


def campaign(task: Fields) -> Any:
    """Take the gradient faults of an attempt out of a task, as a campaign; None where none is left."""
    job = task["job"]
    faults = [one for one in job["faults"] if one["kind"] in VALUES]
    job["faults"] = [one for one in job["faults"] if one not in faults]
    due = [one for one in faults if one["every_attempt"] or task["attempt"] == 0]
    incidents = [_incident(number, one, job) for number, one in enumerate(due)]
    if not incidents:
        return None
    return FaultCampaign.from_dict({"name": task["run"], "seed": job["seed"], "incidents": incidents})


def _incident(number: int, fault: Fields, job: Fields) -> Fields:
    """A skipped step does not advance the clock of a campaign, so its lifetime counts gradients and not steps."""
    module, parameter = TARGETS[number]
    parameters = {"operation": "set_value", "value": VALUES[fault["kind"]], "parameter": parameter}
    target = {"surface": "gradient", "rank": fault["rank"] % job["num_ranks"], "module_path": module}
    return {
        "incident_id": f"incident-{number}",
        "trigger": {"at": [fault["step"] + 1]},
        "lifetime": {"matching_calls": fault["num_steps"] * job["accumulation_steps"]},
        "retrigger": "every_attempt",
        "faults": [
            {"fault_id": fault["kind"], "type": "tensor_corruption", "target": target, "parameters": parameters}
        ],
    }


class Trainer(minimal_torch.Trainer):
    """One rank in one attempt, with a campaign from the restored step on."""

    def __init__(self, faults: Any, *others: Any) -> None:
        super().__init__(*others)
        self._campaign = faults

    def restore(self, checkpoint: Path | None) -> None:
        """Load a checkpoint or begin the run, and enable the campaign at the step that was reached."""
        super().restore(checkpoint)
        if self._campaign is not None:
            done = int(self._counts[0])
            enable_fault_injection(self._model, self._optimizer, campaign=self._campaign, completed_iterations=done)


def main(path: str, attempt: str | None = None, checkpoint: str | None = None) -> int:
    """Launch the job of a task; with the number of an attempt, train on one of its ranks."""
    if attempt is None:
        return minimal_torch.launch(path, partial(minimal_torch.start, program=__file__))
    task = read_task(path) | {"attempt": int(attempt)}
    minimal_torch.train(task, Path(checkpoint) if checkpoint else None, partial(Trainer, campaign(task)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
