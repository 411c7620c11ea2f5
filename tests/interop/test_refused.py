"""What no document takes becomes unknown when files are imported."""

from __future__ import annotations

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.huggingface import read_trainer
from trainspec_validate.interop.refused import join


def test_a_timeout_of_years_is_unknown() -> None:
    text = "per_device_train_batch_size: 1\nddp_timeout: 180000000\nddp_bucket_cap_mb: 25\n"
    made = join([read_trainer(ForeignText("a.yaml", text))])
    assert "timeout_seconds" not in made.facts["communication"]
    [found] = [entry for entry in made.unknown if entry.pointer == ("communication", "timeout_seconds")]
    assert "is above 86400" in found.reason
    assert any("communication.timeout_seconds: 180000000.0 is above 86400" in r.remark.message for r in made.remarks)


def test_a_list_goes_whole() -> None:
    facts = {"batch": {"elastic": {"data_degrees": [0, 2], "micro_sequences": [1]}}}
    made = join([Fragment("TrainingPlan", "a", "a.txt", facts)])
    assert made.facts == {"batch": {"elastic": {"micro_sequences": [1]}}}


def test_a_file_with_a_value_that_is_taken_wins() -> None:
    parts = [Fragment("ClusterProfile", "a", f"{n}.txt", {"num_nodes": n}) for n in (0, 4)]
    assert join(parts).facts["num_nodes"] == 4
