"""Variables of MLPerf submissions give accelerators and degrees; files that are read in, and run scripts, the rest."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

CONFIG = """\
#!/bin/bash
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export LR=0.0005
export MAX_STEPS=1024
export MINIBS=4
export TP=4
export PP=1
export CP=2
export SP=1
export DGXNNODES=8
export DGXNGPU=8
export WALLTIME=$((5 + ${NEXP:-1} * 50))
"""


def read(text: str) -> Fragment:
    source = ForeignText("config.sh", text)
    found = recognise(source)
    assert found.name == "mlperf-config"
    fragment = found.read(source)
    assert_sound(fragment)
    return fragment


def test_accelerators_and_degrees() -> None:
    fragment = read(CONFIG)
    wanted = {"num_accelerators": 64, "tensor": 4, "pipeline": 1, "context": 2, "data": 8, "sequence": True}
    assert {key: at(fragment, "parallelism", key) for key in wanted} == wanted
    assert at(fragment, "optimizer", "learning_rate", "peak") == 0.0005
    assert {"batch.global_sequences", "job.num_steps", "precision.compute", "model"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("export DGXNGPU=8\n", "", ("parallelism.num_accelerators", "parallelism.data")),
        ("export CP=2\n", "", ("parallelism.context", "parallelism.data")),
        ("export WALLTIME", "source config_fp8.sh\nexport WALLTIME", ("parallelism.tensor", "parallelism.data")),
        ("export TP=4\n", "if [ $A ]; then export TP=4; else export TP=8; fi\n", ("parallelism.tensor",)),
    ],
)
def test_a_variable_that_another_file_decides_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    assert old in CONFIG
    fragment = read(CONFIG.replace(old, new))
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


def test_alternatives_are_told() -> None:
    fragment = read(CONFIG.replace("export TP=4\n", "if [ $A ]; then export TP=4; else export TP=8; fi\n"))
    reasons = {".".join(map(str, item.pointer)): item.reason for item in fragment.unknown}
    assert "4 or 8" in reasons["parallelism.tensor"]


def test_a_run_script_is_another_format() -> None:
    with pytest.raises(ForeignFormatError):
        recognise(ForeignText("run.sh", f"{CONFIG}srun -N $DGXNNODES bash run_and_time.sh\n"))
