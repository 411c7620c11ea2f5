"""Runs a step of an action: `python -I -B integrations/github STEP`. Inputs are variables, never arguments."""

from __future__ import annotations

import os
import sys

from job import ActionError, Job
from log import complain
from steps import STEPS


def main() -> int:
    """Run the step that is named; an exit code of 2 is a step that cannot be done."""
    try:
        if len(sys.argv) != 2 or sys.argv[1] not in STEPS:
            raise ActionError(f"name one step, and nothing else: {', '.join(STEPS)}; actions do so in action.yml")
        program, step = STEPS[sys.argv[1]]
        step(Job.of(os.environ, program.directory), program)
    except (ActionError, OSError, ValueError) as error:
        complain(str(error))
        return 2
    return 0


sys.exit(main())
