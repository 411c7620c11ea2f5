"""Tables of the metrics of a run that no reader takes are named, and tables of other data are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainspec_validate.pipeline.run_tables import is_run_table
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

OF_RUNS = {
    "without a loss": "step,lr,grad_norm\n1,0.1,1.0\n2,0.1,1.1\n",
    "perplexity": "iteration,perplexity,learning_rate\n1,2.5,0.1\n",
    "updates": "optimizer step,loss\n1,2.5\n2,2.4\n",
    "tokens": "tokens,train loss,lr\n1000,2.5,0.1\n2000,2.4,0.1\n",
    "seconds": "wall_time,loss,lr\n1.5,2.5,0.1\n3.0,2.4,0.1\n",
    "below a comment": "# run 5\n\nstep,loss\n1,2.5\n",
    "for a person": "| step | loss |\n|-----:|-----:|\n| 1 | 2.5 |\n",
    "between blanks": "step   loss\n   1   2.50\n   2   2.40\n",
    "decimal commas": "Step;Train Loss\n1;2,5\n2;2,4\n",
    "rows for training and for evaluation": "step,train_loss,val_loss\n1,2.5,\n1,,2.6\n",
    "throughput": "date,step,tokens_per_second,mfu\n2025-01-01,1,8000,0.4\n",
    "history of Keras": ",loss,accuracy,val_loss\n0,2.5,0.1,2.6\n1,2.4,0.2,2.5\n",
    "a scalar of TensorBoard": "Wall time,Step,Value\n1.5,1,2.5\n1.6,2,2.4\n",
    "names alone": "step,loss\n",
    "names in one word": "globalStep,trainLoss\n1,2.5\n",
}
OF_OTHER_DATA = {
    "prices": "name,price\na,1\nb,2\n",
    "texts on a loss": "AminoAcid,Loss,Step\nD,H2O,first\n",
    "a search of settings": "lr,weight_decay,loss\n0.1,0,2.5\n0.2,0,2.4\n",
    "scaling laws": "params,tokens,loss\n7e9,1e12,2.1\n7e9,1e11,2.5\n",
    "results of models": ",model,loss,accuracy\n0,a,2.5,0.1\n1,b,2.4,0.2\n",
    "lost packets": "timestamp,packet_loss\n1,0\n2,3\n",
    "checkpoints": "Step,Checkpoint Directory\n1000,s3://x\n",
    "benchmarks": "model,train_samples_per_sec,train_step_time\na,1,2\n",
    "a sentence": "step 1 loss 2.5\n",
    "deaths": "day index,deaths\n1,0\n2,800\n",
}


@pytest.mark.parametrize("text", OF_RUNS.values(), ids=OF_RUNS)
def test_a_table_of_a_run_is_named(tmp_path: Path, text: str) -> None:
    assert is_run_table(text.encode())
    (tmp_path / "metrics.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([tmp_path])
    assert "metrics.csv: not judged: looks like a training log, and is of no known format" in str(error.value)


@pytest.mark.parametrize("text", OF_OTHER_DATA.values(), ids=OF_OTHER_DATA)
def test_a_table_of_other_data_is_passed_over(tmp_path: Path, text: str) -> None:
    assert not is_run_table(text.encode())
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        validate([tmp_path])
    assert "data.csv" not in str(error.value)


@pytest.mark.parametrize("code", ["utf-8-sig", "utf-16"])
def test_marks_of_the_order_of_bytes(code: str) -> None:
    assert is_run_table("step,lr\n1,0.1\n".encode(code))


def test_a_start_that_is_cut_and_wide_rows() -> None:
    assert is_run_table(b"step,lr,grad_norm\n1,0.1,1.5\n2,0")
    assert not is_run_table(b"," * 60_000)
