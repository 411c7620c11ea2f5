"""The interface by which a training script writes a metric stream."""

from __future__ import annotations

import os

from trainspec_record.silent import NO_RUN, SilentRun

TYPE_CHECKING = False  # as in `typing`, which would be loaded before a program can say what an interrupt does
if TYPE_CHECKING:
    from typing import Any

    from trainspec_record.recording import Run

__all__ = ["run"]


def run(**settings: Any) -> Run | SilentRun:
    """Record this attempt of a run, where `TRAINSPEC_RUN` says so; else give an object whose calls do nothing.

    `TRAINSPEC_RUN` is the directory of the run, which is named as its last part; with a slash at the end it is a
    directory of runs, and the run is named by the launcher. Settings are those of `trainspec_record.settings.Settings`.

        with trainspec_record.run(flops_per_token=4.2e11, peak_flops=989e12) as run:
            for number in range(num_steps):
                with run.step(number):
                    run.log(loss=train(), tokens=4_194_304, samples=512, learning_rate=rate(number))
    """
    if not os.environ.get("TRAINSPEC_RUN"):
        return NO_RUN
    from trainspec_record.begin import begin  # noqa: PLC0415 - nothing is loaded where nothing is recorded

    return begin(settings)
