"""Judges what a stack plans: world sizes, shares of workers, and operations of a token."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import msgspec

from trainspec_conformance.answers import answer_of
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.model.units import counted


def world_sizes(asked: dict[str, Any]) -> list[int]:
    """Every number of accelerators that makes the batch exactly, found by trying all."""
    model, node = asked.get("model_parallel", 1), asked.get("ranks_per_node", 1)
    return [
        world
        for world in range(asked["min_accelerators"], asked["max_accelerators"] + 1)
        if world % model == 0
        and world % node == 0
        and any(asked["global_sequences"] % (micro * (world // model)) == 0 for micro in asked["micro_sequences"])
    ]


class Scale(msgspec.Struct, frozen=True):
    """One way to run an elastic batch, as a stack answers; it may report more."""

    world_size: int
    data: int
    micro_sequences: int
    accumulation_steps: int


@check("world-sizes")
def sizes(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The world sizes of an elastic batch are all those that make it exactly, and each way to run it does."""
    answer = answer_of(case, criterion)
    asked, told = answer.question, answer.of_type("world_sizes", list[int])
    wanted = world_sizes(asked)
    if told != wanted:
        extra, lacking = sorted({*told} - {*wanted}), sorted({*wanted} - {*told})
        yield Problem(f"world sizes {extra[:5]} are too many, {lacking[:5]} are missing", (answer.entry,))
    for scale in answer.of_type("scales", list[Scale]):
        made = scale.data * scale.micro_sequences * scale.accumulation_steps
        is_whole = scale.world_size == scale.data * asked.get("model_parallel", 1)
        is_allowed = scale.micro_sequences in asked["micro_sequences"]
        if made != asked["global_sequences"] or not is_whole or not is_allowed:
            yield Problem(f"{scale} does not make a batch of {asked['global_sequences']}", (answer.entry,))
            return


@check("shares-by-speed")
def shares_by_speed(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Shares add up to the batch, and each is within one sample of what the speed of its worker is worth."""
    answer = answer_of(case, criterion)
    speeds, batch = answer.question["speeds"], answer.question["global_sequences"]
    shares = answer.of_type("shares", list[int])
    if len(shares) != len(speeds):
        raise CannotJudgeError(f"shares of {counted(len(shares), 'worker')} are reported, there are {len(speeds)}")
    if sum(shares) != batch:
        yield Problem(f"shares add up to {sum(shares)}, the batch has {batch}", (answer.entry,))
    total = sum(map(Fraction, speeds))
    for worker, (share, speed) in enumerate(zip(shares, speeds, strict=True)):
        quota = batch * Fraction(speed) / total
        if abs(share - quota) >= 1:
            yield Problem(f"worker {worker} gets {share}, by its speed {float(quota):.2f}", (answer.entry,))


def matrices(model: dict[str, Any]) -> Iterator[tuple[float, int, int]]:
    """Every matrix that a token meets in the layers: how often, rows and columns; vectors of norms as one row."""
    hidden, layers = model["hidden_size"], model["num_layers"]
    heads = model["num_attention_heads"]
    width = heads * (model.get("head_size") or hidden // heads)
    keys = width // heads * model.get("num_key_value_heads", heads)
    experts = model.get("experts", {})
    of_experts = experts.get("num_layers", 0)
    yield layers, hidden, width
    yield 2 * layers, hidden, keys
    yield layers, width, hidden
    yield 2 * layers + 1, 1, hidden
    num_inner = 3 if model.get("gated_ffn") else 2
    yield (layers - of_experts) * num_inner, hidden, model["ffn_hidden_size"]
    if experts:
        yield of_experts, hidden, experts["num_experts"]
        visited = experts["num_active_experts"] + experts["num_shared_experts"]
        yield of_experts * visited * num_inner, hidden, experts["ffn_hidden_size"]


def operations(asked: dict[str, Any]) -> float:
    """Operations of a token: two for each number of each matrix, three times over, and those of attention."""
    model = asked["model"]
    heads = model["num_attention_heads"]
    width = heads * (model.get("head_size") or model["hidden_size"] // heads)
    table = model["vocabulary_size"] * model["hidden_size"]
    is_causal = asked["convention"] == "6n-causal-attention"
    tables = 1 if model.get("tied_embeddings") or is_causal else 2
    keys_seen = asked["sequence_length"] / (2 if is_causal else 1)
    scores_and_values = 2 * 2 * model["num_layers"] * width * keys_seen
    of_layers = sum(2 * count * rows * columns for count, rows, columns in matrices(model))
    return float(3 * (of_layers + 2 * tables * table + scores_and_values))


@check("operations")
def counted_operations(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Operations of a token are those of the matrices that it meets, by the named convention."""
    answer = answer_of(case, criterion)
    wanted = operations(answer.question)
    told = float(answer.array("flops_per_token", ()))
    if not abs(told / wanted - 1) <= (criterion.tolerance or 0):
        yield Problem(f"{told:.6g} operations of a token are reported, {wanted:.6g} are counted", (answer.entry,))
