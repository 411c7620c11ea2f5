"""Published accounting of Slurm and lists of Kubernetes: values that were read in the files by hand.

TRAINSPEC_CLONES names a directory with clones of the repositories, each in OWNER+NAME/repo; a file that is absent there
is skipped.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from reading import Result, read_bytes

from trainspec_validate.telemetry.formats import Given

CLONES = os.environ.get("TRAINSPEC_CLONES")
SARC, CLOCKWORK = "mila-iqia+SARC", "mila-iqia+clockwork"
TROUBLESHOOT = "replicatedhq+troubleshoot"


def published(repository: str, path: str, run: str | None = None) -> Result:
    if not CLONES or not (clone := Path(CLONES) / repository / "repo").exists():
        pytest.skip(f"TRAINSPEC_CLONES has no clone of {repository}")
    done = subprocess.run(["git", "-C", str(clone), "show", f"HEAD:{path}"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the clone of {repository} has no {path}")
    return read_bytes(done.stdout, given=Given(run=run))


def shown(result: Result) -> list[str]:
    words = ("train.attempt.reason", "train.run.status", "train.fault.vendor_code")
    return [
        " ".join(
            [str(e.time_us // 1_000_000), str(e.att), e.name.removeprefix("train.")]
            + [str(e.a[word]) for word in words if word in e.a]
        )
        for e in result.events
    ]


@pytest.mark.parametrize(
    ("repository", "path", "run", "expected"),
    [
        (
            *(CLOCKWORK, "slurm_state_test/files/sacct_2", "1_7"),
            [
                "1680193504 0 run.start",
                "1680193504 0 attempt.start",
                "1680244103 0 fault.detected slurm:NODE_FAIL",
                "1680244103 0 attempt.end fault",
                "1680244103 0 run.end failed",
            ],
        ),
        (
            *(CLOCKWORK, "slurm_state_test/files/sacct_2", "3_0"),
            ["1680127992 0 attempt.start", "1680215981 0 attempt.end requeued"],
        ),
        (
            *("meekrob+slurmdog", "text_files/sacct.json", None),
            [
                "1741667820 0 run.start",
                "1741667820 0 attempt.start",
                "1741668146 0 attempt.end completed",
                "1741668146 0 run.end completed",
            ],
        ),
        (
            *(SARC, "tests/data/sacct/mila_1714003200.json", "21"),
            [
                "1713952405 0 run.start",
                "1713952405 0 attempt.start",
                "1713962889 0 fault.detected slurm:FAILED",
                "1713962889 0 attempt.end fault",
                "1713962889 0 run.end failed",
            ],
        ),
        (
            *("OSC+ood-sacct", "test/sacct.txt", "2110035"),
            ["6 0 run.start", "6 0 attempt.start", "7 0 attempt.end time_limit", "7 0 run.end time_limit"],
        ),
        (
            *(TROUBLESHOOT, "pkg/analyze/files/pods/message-oomkill-pod.json", None),
            [
                "1689050605 0 attempt.start",
                "1689050605 0 fault.detected kubernetes:OOMKilled",
                "1689050605 0 attempt.end fault",
            ],
        ),
        (
            *(TROUBLESHOOT, "pkg/analyze/files/pods/message-pod-crashloop-backoff.json", None),
            [
                "1689046395 4 attempt.start",
                "1689046395 4 fault.detected kubernetes:ContainerCannotRun",
                "1689046395 4 attempt.end fault",
            ],
        ),
        (
            *("atshaman+describecluster", "pods.json", "kafka-connect-d7bbc5687"),
            [
                "1614416287 3 attempt.start",
                "1614510425 3 fault.detected kubernetes:Error",
                "1614510425 3 attempt.end fault",
            ],
        ),
        (
            *("cloudability+metrics-agent", "testdata/pods.json", "stress2"),
            ["1654066721 1 attempt.start", "1654109921 1 attempt.end completed"],
        ),
        (
            *(TROUBLESHOOT, "pkg/analyze/files/events/message-pod-init-crashloop-backoff.json", "init-demo"),
            ["1689046304 0 fault.detected kubernetes:Failed", "1689046335 0 fault.detected kubernetes:BackOff"],
        ),
        (
            *(TROUBLESHOOT, "pkg/analyze/files/events/message-image-pull-fail.json", "oom-kill-job3"),
            ["1689050608 0 fault.detected kubernetes:BackoffLimitExceeded"],
        ),
    ],
)
def test_what_a_published_file_says(repository: str, path: str, run: str | None, expected: list[str]) -> None:
    found = published(repository, path, run)
    assert shown(found) == expected
    assert not found.refusals
