"""A command that a script only prints is no launch; one that a pipe, a file or another program may start is."""

from __future__ import annotations

import pytest
from plan_files import at

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import huggingface, megatron

ARGUMENTS = (
    "pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 "
    "--global-batch-size 64 --tensor-model-parallel-size 2 --bf16 --lr 1e-4 --train-iters 100"
)
LAUNCH = f"torchrun --nproc_per_node 8 {ARGUMENTS}"
TRAINER = "torchrun --nproc_per_node 8 run_clm.py --per_device_train_batch_size 4 --do_train --save_steps 10"
ONLY_PRINTED = "the command is only printed, and nothing starts it"


def read(body: str) -> Fragment:
    return megatron.read(ForeignText("run.sh", f"#!/bin/bash\n{body}\n"))


@pytest.mark.parametrize(
    "body",
    [
        f"echo {LAUNCH}",
        f'echo -e "{LAUNCH}\\n" >&2',
        f'printf "%s\\n" {LAUNCH}',
        f": {LAUNCH}",
        f"true {LAUNCH}",
        f'echo "{LAUNCH}" > run.log',
        f'echo "{LAUNCH}" | tee command.txt',
        f'usage() {{\n  echo "{LAUNCH}"\n}}\nusage',
        f'if [ -n "$DRY" ]; then echo {LAUNCH}; fi',
        f"RUN=echo\n$RUN {LAUNCH}",
        f'COMMAND="{LAUNCH}"\necho $COMMAND',
        f"ARGUMENTS=({ARGUMENTS})\n" + 'echo torchrun --nproc_per_node 8 "${ARGUMENTS[@]}"',
        f'read -r -d "" TEXT <<END\n{LAUNCH}\nEND\necho "$TEXT"',
    ],
)
def test_a_command_that_is_only_printed_is_refused(body: str) -> None:
    with pytest.raises(ForeignFormatError, match=ONLY_PRINTED):
        read(body)


@pytest.mark.parametrize("start", ["cat <<END", "cat >&2 <<'END'", ": <<END", "less <<END"])
def test_a_text_that_is_only_printed_is_refused(start: str) -> None:
    with pytest.raises(ForeignFormatError):
        read(f"{start}\n{LAUNCH}\nEND")


@pytest.mark.parametrize("printing", ["echo", 'printf "%s "', ":"])
def test_the_arguments_of_a_trainer_are_only_printed(printing: str) -> None:
    with pytest.raises(ForeignFormatError, match=ONLY_PRINTED):
        huggingface.read_trainer(ForeignText("run.sh", f"{printing} {TRAINER}\n"))
    assert at(huggingface.read_trainer(ForeignText("run.sh", f"{TRAINER}\n")), "batch", "micro_sequences") == 4


@pytest.mark.parametrize(
    "body",
    [
        LAUNCH,
        f'echo "{LAUNCH}" | bash',
        f'echo "{LAUNCH}" | sudo /bin/sh -s',
        f'echo "{LAUNCH}" > job.sh\nsbatch job.sh',
        f'echo "{LAUNCH}" | tee "$JOB"',
        f"RUN=${{DRY:+echo}}\n$RUN {LAUNCH}",
        f'COMMAND="{LAUNCH}"\necho $COMMAND\n$COMMAND',
        f'COMMAND="{LAUNCH}"\necho "$COMMAND" | tee -a log.txt\neval "$COMMAND"',
        f'COMMAND="{LAUNCH}"\necho $COMMAND\nsbatch -N 2 --wrap="$COMMAND"',
        f'export COMMAND="{LAUNCH}"\necho $COMMAND\nsrun run_command.sh',
        f"COMMAND=\"{LAUNCH}\"\necho $COMMAND\nsrun bash -c '$COMMAND --node_rank $SLURM_PROCID'",
        f"export C='{LAUNCH}'\nif [ $M ]; then export C=\"$C --fp16\"; fi\necho $C\nsrun sh -c '$C'",
        f'COMMAND="{LAUNCH}"\necho $COMMAND\nssh host "cd /job; ${{COMMAND}}"',
        f'run() {{\n  echo "+ $@"\n  "$@"\n}}\nrun {LAUNCH}',
        f"echo {LAUNCH.replace('--num-layers 8', '--num-layers 4').replace('_node 8', '_node 4')}\n{LAUNCH}",
    ],
)
def test_a_command_that_something_starts_is_read(body: str) -> None:
    fragment = read(body)
    assert at(fragment, "model", "num_layers") == 8
    assert at(fragment, "parallelism", "num_accelerators") == 8


def test_a_list_of_arguments_is_read() -> None:
    assert at(read(f'ARGUMENTS="{ARGUMENTS.partition(" ")[2]}"\necho $ARGUMENTS'), "model", "num_layers") == 8
