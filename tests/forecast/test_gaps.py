"""Parts of models that predictions do not count: refused with the reason, or said with their share."""

from __future__ import annotations

import msgspec
import pytest

from tests.planner_makers import model, profile
from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.model import Experts, Model
from trainspec_validate.performance.forecast.facts import Unpredictable, model_facts
from trainspec_validate.performance.forecast.gaps import gaps
from trainspec_validate.planner.request import Impossible, Wishes, precision_of, request
from trainspec_validate.planner.search import search

JOB = Wishes(num_ranks=8, global_sequences=64, num_tokens=1e9, sequence_length=4096)
LLAMA = model("llama3-8b")


@pytest.mark.parametrize("family", ["vision-transformer", "state-space", "hybrid", "cnn", "other"])
def test_a_family_without_a_model_is_refused_by_its_name(family: str) -> None:
    asked = changed(LLAMA, family=family, sequence_length=None)
    with pytest.raises(Unpredictable, match=f"of the family {family}, for which there is no model of step") as refused:
        request(profile("gcp-a3-ultra-h200"), asked, JOB)
    assert refused.value.is_uncovered


@pytest.mark.parametrize("attention", ["linear", "none"])
def test_layers_without_attention_between_positions_are_refused(attention: str) -> None:
    with pytest.raises(Unpredictable, match=f"attention: {attention}, for which there is no model") as refused:
        model_facts(changed(LLAMA, attention=attention), precision_of("bf16"))
    assert refused.value.is_uncovered


def test_an_encoder_is_not_searched() -> None:
    assert not model_facts(changed(LLAMA, bidirectional_attention=True), precision_of("bf16")).is_causal
    with pytest.raises(Impossible, match="are not predicted: tokens attend to later ones"):
        request(profile("gcp-a3-ultra-h200"), changed(LLAMA, bidirectional_attention=True), JOB)


def test_a_plain_transformer_has_no_gap() -> None:
    assert list(gaps(LLAMA)) == []
    assert list(gaps(changed(LLAMA, family="cnn", num_mtp_layers=1))) == []


def test_the_share_of_attention_is_that_of_the_operations() -> None:
    # Mistral 7B at 8,192 tokens: 6 x 32 x 4096 x 8192 = 6.44e9 of attention, and 6 x (7.24e9 - 0.131e9) of matrices.
    (words,) = gaps(model("mistral-7b"))
    assert "over the whole sequence, 13.1 % of the model's operations" in words
    (longer,) = gaps(changed(model("mistral-7b"), sequence_length=16384))
    assert "23.2 %" in longer


def deep(num_mtp_layers: int) -> Model:
    """Mixtral 8x7B with layers for multi-token prediction."""
    return changed(
        model("mixtral-8x7b"), attention="grouped-query", sequence_length=4096, num_mtp_layers=num_mtp_layers
    )


def test_the_share_of_multi_token_prediction_is_that_of_the_operations() -> None:
    assert isinstance(deep(1).experts, Experts)
    # A layer has 0.0419e9 of attention, 2 of 8 experts with 0.352e9 and the router; the table has 0.131e9, the
    # projection 0.0336e9: 6 x 0.559e9 and 0.1e9 of attention over 6 x 12.75e9 and 3.22e9.
    (one,) = gaps(deep(1))
    assert one == "step time leaves out the layer for multi-token prediction, 4.3 % of the model's operations on top"
    (two,) = gaps(deep(2))
    assert two.startswith("step time leaves out the 2 layers for multi-token prediction, 8.7 %")


def test_memory_of_a_search_counts_the_layers_that_a_prediction_counts() -> None:
    plain, more = (request(profile("gcp-a3-ultra-h200"), deep(count), JOB) for count in (0, 2))
    assert more.goal.model.state.total > plain.goal.model.state.total
    extra = more.goal.model.state.total / plain.goal.model.state.total - 1
    # A layer of Mixtral 8x7B has 1/32 of its layers' parameters, and the projection comes on top.
    assert 2 / 32 < extra < 2.2 / 32
    kept = msgspec.structs.replace
    adapted = kept(deep(2), num_mtp_layers=0)
    assert request(profile("gcp-a3-ultra-h200"), adapted, JOB).goal.model.state == plain.goal.model.state
    assert search(more.goal, 1).num_too_large >= search(plain.goal, 1).num_too_large
