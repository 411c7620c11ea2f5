"""Launch lines in documents that a script hands to `sbatch`, `bash` or `ssh` are read, or named as not read."""

from __future__ import annotations

import pytest
from plan_files import at, remarks_of

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import read

RUN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
    "--seq-length 2048 --micro-batch-size 4 --global-batch-size {} --train-iters 1000\n"
)
STATED = RUN.format(512)


def script(text: str) -> Fragment:
    return read(ForeignText("train.sh", f"#!/bin/bash\n{text}"))


@pytest.mark.parametrize(
    ("head", "after"),
    [
        ("sbatch <<EOF", ""),
        ("sbatch <<'EOF'", ""),
        ('sbatch --nodes=4 --parsable <<"EOF"', ""),
        ("JOB=$(sbatch --parsable <<EOF", ")\n"),
        ("bash <<EOF", ""),
        ("bash -s <<'EOF'", ""),
        ("srun -N 4 bash -s <<'EOF'", ""),
        ("ssh node1 <<EOF", ""),
        ("ssh -p 22 user@node1 'bash -s' <<'EOF'", ""),
        ("cat <<EOF | sbatch", ""),
        ("cat > job.sh <<EOF", "sbatch job.sh\n"),
        ("cat <<EOF > run/job.sh", "sbatch --nodes 2 run/job.sh\n"),
        ('cat > "$JOB" <<EOF', 'bash "$JOB"\n'),
        ("tee job.sh <<EOF", "chmod +x job.sh\n./job.sh\n"),
        ("if true; then sbatch <<-EOF", "fi\n"),
    ],
)
def test_a_document_that_is_run_is_read(head: str, after: str) -> None:
    fragment = script(f"{head}\n#!/bin/bash\n#SBATCH --time=1\n{STATED}EOF\n{after}")
    assert at(fragment, "batch", "global_sequences") == 512
    assert "is not read" not in remarks_of(fragment)


@pytest.mark.parametrize(
    ("quote", "word"),
    [("", "$GBS"), ("", "${GBS}"), ("", "\\$GBS"), ("'", "$GBS")],
    ids=["plain", "braces", "later", "quoted"],
)
def test_variables_have_the_values_that_the_document_gets(quote: str, word: str) -> None:
    text = f"export GBS=256\nsbatch <<{quote}EOF{quote}\n{RUN.format(word)}EOF\n"
    assert at(script(text), "batch", "global_sequences") == 256


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"GBS=256\nsbatch <<'EOF'\n{RUN.format('$GBS')}EOF\n", "takes GBS from its environment"),
        (f"GBS=256\nsbatch <<EOF\n{RUN.format(chr(92) + '$GBS')}EOF\n", "takes GBS from its environment"),
        (f"export GBS=256\nssh node1 <<'EOF'\n{RUN.format('$GBS')}EOF\n", "takes GBS from its environment"),
        (f"GBS=256\nsbatch <<EOF\nGBS=512\n{RUN.format('$GBS')}EOF\n", "it assigns GBS, which has its value before"),
        (f"bash -s 256 <<'EOF'\n{RUN.format('$1')}EOF\n", "it takes words of its command line"),
        (f"cat > job.sh <<EOF\n{STATED}EOF\n", "no command that this reader knows runs it"),
        (f"kubectl apply -f - <<EOF\n{STATED}EOF\n", "no command that this reader knows runs it"),
        (f"bash other.sh <<EOF\n{STATED}EOF\n", "no command that this reader knows runs it"),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_a_document_that_is_not_read_is_named(text: str, why: str, beside: bool) -> None:
    if not beside:
        with pytest.raises(ForeignFormatError, match=why) as caught:
            script(text)
        assert caught.value.line == text.split("<<", maxsplit=1)[0].count("\n") + 2
        return
    fragment = script(text + RUN.format(64))
    assert at(fragment, "batch", "global_sequences") == 64
    assert why in remarks_of(fragment)


def test_variables_of_a_document_stay_in_it() -> None:
    text = f"GBS=64\nbash <<'EOF'\nGBS=512\necho a.py\nEOF\n{RUN.format('$GBS')}"
    assert at(script(text), "batch", "global_sequences") == 64


def test_documents_without_a_program_say_nothing() -> None:
    fragment = script(f"cat > hosts <<EOF\nnode1 slots=8\nEOF\n{STATED}")
    assert "is not read" not in remarks_of(fragment)


def test_many_documents_without_an_end_cost_little() -> None:
    with pytest.raises(ForeignFormatError, match="no line EOF"):
        script("echo <<EOF\n" * 5_000 + STATED)
