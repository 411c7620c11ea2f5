"""Commands that the shell reads as text, or takes for others, are no plan of the job."""

from __future__ import annotations

import pytest
from plan_files import at

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import megatron

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048"
LAUNCH = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --global-batch-size 64 --tensor-model-parallel-size $TP"


def read(before: str) -> Fragment:
    return megatron.read(ForeignText("run.sh", f"TP=4\n{before}\n{LAUNCH}\n"))


@pytest.mark.parametrize("start", ["cat <<EOF", "cat <<'EOF'\nEOF.", "cat > a <<-EOF", "cat <<A <<EOF\nb\nA"])
def test_what_follows_a_document_without_end_is_its_text(start: str) -> None:
    with pytest.raises(ForeignFormatError, match="no line EOF") as refused:
        read(start)
    assert refused.value.line == 2
    assert at(read(f"{start}\nEOF"), "parallelism", "tensor") == 4


@pytest.mark.parametrize("alias", ['torchrun="TP=8; torchrun"', 'torchrun="torchrun --nnodes 4"', '"$ANY"'])
def test_an_alias_of_the_launcher_leaves_open_what_it_may_change(alias: str) -> None:
    fragment = read(f"shopt -s expand_aliases\nalias {alias}")
    assert at(fragment, "parallelism", "tensor") is None
    assert at(fragment, "model", "num_layers") is None


@pytest.mark.parametrize(
    "before",
    ['alias torchrun="TP=8; torchrun"', 'shopt -s expand_aliases\nalias torchrun="python3 -m torch.distributed.run"'],
)
def test_an_alias_that_changes_nothing_leaves_nothing_open(before: str) -> None:
    assert at(read(before), "parallelism", "tensor") == 4


def test_an_option_takes_no_value_from_another_variable() -> None:
    lists = f'OUT="--exit-signal-handler"\nRUN="python -u"\nARGUMENTS="{SHAPE} $OUT"\n'
    fragment = megatron.read(ForeignText("args.sh", f'{lists}RUN="$RUN --nnodes 2"\n'))
    assert "several times" not in " ".join(remark.message for remark in fragment.remarks)
    assert at(fragment, "model", "num_layers") == 24
    branched = f'{lists}[ -n "$LOAD" ] && ARGUMENTS="$ARGUMENTS --load $HERE"\nRUN="$RUN --nnodes 2"\n'
    again = megatron.read(ForeignText("args.sh", branched))
    assert "several times" not in " ".join(remark.message for remark in again.remarks)
