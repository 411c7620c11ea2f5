"""A plan for two processes on one node, as `trainspec export` writes it, and the launcher in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from .recorded import SOURCE

TORCHRUN = """#!/usr/bin/env bash
# Written by trainspec 0.1.0 from TrainingPlan small, ClusterProfile mine.
set -euo pipefail
exec torchrun \\
  --nnodes={nodes} \\
  --nproc-per-node=2 \\
  {meeting} \\
  --max-restarts=1 \\
  "$@"
"""
MEETING = '--node-rank="${NODE_RANK:?this node}" \\\n  --master-addr="${MASTER_ADDR:?first host}"'
NCCL = """# Written by trainspec 0.1.0 from TrainingPlan small, ClusterProfile mine.

# plan: communication
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3
export NCCL_IB_HCA='=m0,m1'
"""
XLA = """XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_latency_hiding_scheduler=true"

export XLA_FLAGS
"""


def exported(folder: Path, nodes: int = 1) -> Path:
    """A directory of files as they are exported."""
    folder.mkdir(parents=True, exist_ok=True)
    meeting = "--standalone" if nodes == 1 else MEETING
    (folder / "torchrun.sh").write_text(TORCHRUN.format(nodes=nodes, meeting=meeting))
    (folder / "nccl-env.sh").write_text(NCCL)
    (folder / "xla-flags.sh").write_text(XLA)
    return folder


def start(*words: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """The launcher in a session of its own, so that the terminal of the tests sends it nothing."""
    known = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": SOURCE, "HOME": str(cwd)}
    return subprocess.Popen(
        [sys.executable, "-m", "trainspec_record", "launch", *words],
        env={**known, "TRAINSPEC_HOST": "node-1", "OMP_NUM_THREADS": "1", **environment},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 600) -> tuple[int, str, str]:
    """Exit status, output and errors; nothing of the session is left behind."""
    try:
        out, told = process.communicate(timeout=seconds)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, told


def launched(*words: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a launcher that is left to end."""
    return finish(start(*words, cwd=cwd, **environment))
