"""Sizes that the lines of a batch script ask Slurm for."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import megatron

MODEL = "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 256 --micro-batch-size 1"
TRAINS = f"pretrain_gpt.py {MODEL} --global-batch-size 64 --tensor-model-parallel-size 4\n"
TORCHRUN = f"torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES {TRAINS}"


def read(lines: str, command: str) -> Fragment:
    return megatron.read(ForeignText("run.sbatch", f"#!/bin/bash\n{lines}{command}"))


def ranks(fragment: Fragment) -> object:
    return fragment.facts["parallelism"].get("num_accelerators")


def why(fragment: Fragment) -> str:
    reasons = {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}
    return reasons["parallelism.num_accelerators"]


@pytest.mark.parametrize("first", ["set -e\n", "cd $HOME # here\n", "\n  \necho a\n# b\n"])
def test_lines_below_the_first_command_are_comments(first: str) -> None:
    late = read(f"{first}#SBATCH --nodes=4\n", TORCHRUN)
    assert ranks(late) is None
    assert "below the first command" in why(late)
    assert ranks(read(f"#SBATCH --nodes=2\n{first}#SBATCH --nodes=4\n", TORCHRUN)) == 16
    assert ranks(read("\n# set -e\n  # a\n#SBATCH --nodes=4\n", TORCHRUN)) == 32


def test_a_script_in_a_document_has_lines_of_its_own() -> None:
    document = "cat > job.sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=4\nEOF\n"
    assert ranks(read(f"set -e\n{document}", f"srun {TORCHRUN}")) == 32
    assert ranks(read(f"#SBATCH --nodes=4\n{document}", f"srun {TORCHRUN}")) == 32
    assert ranks(read(f"#SBATCH --nodes=2\n{document}", f"srun {TORCHRUN}")) is None


@pytest.mark.parametrize("asked", ["--nodes=2-4", "-N2-4", "-N 2-4", "--nodes 2-4 # as many as there are"])
def test_a_range_of_nodes_is_open_with_its_bounds(asked: str) -> None:
    fragment = read(f"#SBATCH {asked}\n", TORCHRUN)
    assert ranks(fragment) is None
    assert "2 to 4 nodes" in why(fragment)
    assert ranks(read("#SBATCH --nodes=4-4\n", TORCHRUN)) == 32


def test_every_option_of_a_line_counts_and_no_more_than_its_number() -> None:
    assert ranks(read("#SBATCH -A me -N4 --ntasks-per-node=8\n", f"srun python {TRAINS}")) == 32
    assert ranks(read("#SBATCH --nodes=1k\n", TORCHRUN)) == 8192
    assert ranks(read("#SBATCH --nodes=4,8\n", TORCHRUN)) is None


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_srun_starts_the_first_part_of_a_heterogeneous_job(word: str) -> None:
    lines = f"#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH {word}\n#SBATCH --nodes=2\n"
    assert ranks(read(lines, f"srun python {TRAINS}")) == 32
    assert ranks(read(lines, f"srun --het-group=0 python {TRAINS}")) == 32
    for others in ("--het-group=1", "--het-group 0,1", "--pack-group=1"):
        assert ranks(read(lines, f"srun {others} python {TRAINS}")) is None
        assert ranks(read(lines, f"srun {others} torchrun --nproc_per_node 8 {TRAINS}")) is None
