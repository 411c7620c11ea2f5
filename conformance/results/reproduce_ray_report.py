"""Shows, without the suite, from which checkpoint Ray Train continues after the loss of a worker.

Run it with RAY_TRAIN_V2_ENABLED=1: `python reproduce_ray_report.py DIRECTORY`. Two workers report a checkpoint, see the
call return, work for so many seconds, and are killed; then the restarted workers print the checkpoint that they got.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

SECONDS = (0.1, 0.5, 5.0)
"""From the return of the second report to the end of the worker."""


def loop(settings: dict[str, str]) -> None:
    """Report twice, and die in the first attempt."""
    found = ray.train.get_checkpoint()
    if found:
        Path(settings["told"]).write_text(Path(found.path).name)
        return
    for step in (10, 20):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state").write_text(str(step))
            is_first = ray.train.get_context().get_world_rank() == 0
            checkpoint = Checkpoint.from_directory(directory) if is_first else None
            ray.train.report({"step": step}, checkpoint=checkpoint, checkpoint_dir_name=f"step_{step}")
        time.sleep(float(settings["seconds"]) if step == 20 else 5.0)
    os.kill(os.getpid(), signal.SIGKILL)


def main(directory: str) -> None:
    """Train once for each time."""
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    for seconds in SECONDS:
        told = Path(directory).resolve() / f"told-{seconds}"
        TorchTrainer(
            loop,
            train_loop_config={"told": str(told), "seconds": str(seconds)},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name=f"run-{seconds}", storage_path=directory, failure_config=FailureConfig(max_failures=1)
            ),
        ).fit()
        print(f"killed {seconds} s after step_20 was reported: resumes from {told.read_text()}")  # noqa: T201
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
