"""Examples in every format that can run them: golden files, the same on each run, and what is refused and left out.

TRAINSPEC_UPDATE_GOLDEN=1 rewrites what differs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from export_jobs import unknown_requirements

from trainspec_validate._version import __version__
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan, read
from trainspec_validate.interop.document import Job, export_all, formats

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GOLDEN = ROOT / "tests" / "golden" / "export"
CASES = {
    "llama3-405b": ("llama3-405b-16384", "meta-llama3-24k", "llama3-405b-16384"),
    "llama3-8b": ("torchtitan-llama3-8b", "coreweave-h100", None),
    "llama3-8b-on-amd": ("torchtitan-llama3-8b", "zyphra-ibm-mi300x", None),
    "gpt3-on-tpu": ("maxtext-gpt3-v5p", "google-tpu-v5p-pod", None),
}
"""Plan, cluster and policy of each case."""
REMARKS = "left-out.txt"


def example(kind: str, name: str) -> object:
    folder = {"TrainingPlan": "plans", "ClusterProfile": "clusters", "CheckpointPolicy": "policies"}[kind]
    path = EXAMPLES / folder / f"{name}.yaml"
    return read(kind, load_text(path.read_bytes(), path.name).data)


def example_job(case: str) -> Job:
    plan_name, cluster_name, policy_name = CASES[case]
    plan, cluster = example("TrainingPlan", plan_name), example("ClusterProfile", cluster_name)
    policy = example("CheckpointPolicy", policy_name) if policy_name else None
    assert isinstance(plan, TrainingPlan)
    assert isinstance(cluster, ClusterProfile)
    assert policy is None or isinstance(policy, CheckpointPolicy)
    return Job(plan, cluster, policy)


def files(case: str) -> dict[str, str]:
    """Name and text of every file, and one more that tells what was left out and what was refused."""
    written, refused = export_all(example_job(case))
    remarks = [f"{name}: refused: {error}; {error.help}".rstrip("; ") for name, error in refused.items()]
    remarks += [f"{name}: {note}" for name, entry in written.items() for note in entry.left_out]
    texts = {entry.name: entry.text for entry in written.values()}
    texts[REMARKS] = "".join(f"{line}\n" for line in sorted(remarks))
    return {name: text.replace(f"trainspec {__version__} ", "trainspec VERSION ") for name, text in texts.items()}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    now, directory = files(case), GOLDEN / case
    if os.environ.get("TRAINSPEC_UPDATE_GOLDEN"):
        directory.mkdir(parents=True, exist_ok=True)
        for left in {path.name for path in directory.iterdir()} - now.keys():
            (directory / left).unlink()
        for name, text in now.items():
            (directory / name).write_text(text, encoding="utf-8", newline="\n")
    assert now == {path.name: path.read_bytes().decode("utf-8") for path in directory.iterdir()}


def test_no_golden_directory_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


def test_every_format_has_a_golden_file() -> None:
    written = {name for case in CASES for name in export_all(example_job(case))[0]}
    assert written == set(formats())


def test_a_machine_without_gpus_is_refused_by_all_but_maxtext() -> None:
    written, refused = export_all(example_job("gpt3-on-tpu"))
    assert set(written) == {"maxtext"}
    assert set(refused) == set(formats()) - {"maxtext"}


@pytest.mark.parametrize("case", CASES)
def test_files_say_which_documents_they_came_from_and_name_known_requirements(case: str) -> None:
    plan, cluster, policy = CASES[case]
    for name, text in files(case).items():
        if name.endswith((".json", ".txt")):
            continue
        head = text.removeprefix("#!/usr/bin/env bash\n").splitlines()[0]
        assert head.startswith(f"# Written by trainspec VERSION from TrainingPlan {plan}, ClusterProfile {cluster}")
        assert (f"CheckpointPolicy {policy}" in head) == (policy is not None)
        assert re.search(r"\d+\.\d+", text.splitlines()[1 + text.startswith("#!")]), "a version that was checked"
        assert not unknown_requirements(text)


@pytest.mark.parametrize("case", CASES)
def test_texts_hold_no_surprises(case: str) -> None:
    for text in files(case).values():
        assert text.isprintable() or set(text) - {"\n"} <= {letter for letter in text if letter.isprintable()}
        assert not [line for line in text.splitlines() if line != line.rstrip()]
        assert text == "" or (text.endswith("\n") and not text.endswith("\n\n"))


def test_the_same_job_gives_the_same_bytes_in_another_process() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_export_golden as t; print(t.files('llama3-405b'))"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    outputs = {
        subprocess.run(command, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{files('llama3-405b')}\n".encode()}


def test_no_two_formats_claim_one_file() -> None:
    names = [entry.name for entry in export_all(example_job("llama3-8b"))[0].values()]
    assert len(names) == len(set(names)) == len(formats())
