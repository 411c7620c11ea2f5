"""Completes an imported plan by the identities that its settings obey."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.interop.readers._plan_parts import Default, Draft, like
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.costs.transformer import Shape, parameters

_LARGEST_DIMENSION = 10**8
_LARGEST_DEGREE = 10**6
_NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "vocabulary_size")
_SHAPE: tuple[Pointer, ...] = (
    *(("model", key) for key in (*_NEEDED, "family", "num_key_value_heads", "head_size", "ffn_hidden_size")),
    *(("model", key) for key in ("gated_ffn", "tied_embeddings", "attention")),
    *(("model", "experts", key) for key in ("num_experts", "num_active_experts", "num_shared_experts")),
    *(("model", "experts", key) for key in ("ffn_hidden_size", "num_layers")),
)
"""What the number of parameters is counted from."""
_SPLITS: tuple[Pointer, ...] = tuple(("parallelism", axis) for axis in ("tensor", "pipeline", "context"))
_DATA: Pointer = ("parallelism", "data")
_WHOLE: Pointer = ("batch", "global_sequences")
_MICRO: Pointer = ("batch", "micro_sequences")
_STEPS: Pointer = ("batch", "accumulation_steps")
_MORE = "biases, learned positions and further norms of its kind"
_LACKS = "the shape that it follows from lacks"
_NO_LATENT = "the source does not state the ranks and head sizes of latent attention"
_NO_FAMILY = "the source does not state whether the model is a plain transformer"
_COUNTED = "counted from the shape: queries, keys, values and output, feed-forward, norms, embedding tables"


def complete(draft: Draft, world: int | None = None, world_from: str = "") -> None:
    """Fill in the parameters of the shape, the degrees, the batch and the length of the job.

    `world` is the number of ranks where the source states it, `world_from` the words of the source for it.
    """
    complete_model(draft)
    _complete_one(draft)
    complete_degrees(draft, world, world_from)
    complete_batch(draft)
    complete_job(draft)


def _complete_one(draft: Draft) -> None:
    """A batch of one micro-batch leaves one data rank and one accumulation step."""
    whole, micro = draft.counted(*map(str, _WHOLE)), draft.counted(*map(str, _MICRO))
    if whole is None or whole != micro:
        return
    for place in (_DATA, _STEPS):
        if draft.get(*map(str, place)) is None and place not in draft.unknown:
            draft.follow(place, 1, "the batch of a step is one micro-batch", _WHOLE, _MICRO)


def keep_model(draft: Draft) -> None:
    """Complete a source that describes a model and no job."""
    complete_model(draft, label=False)
    draft.unknown = {pointer: why for pointer, why in draft.unknown.items() if pointer[0] == "model"}
    for group in ("parallelism", "batch", "precision"):
        draft.lacks((group,), "the file describes the model only")


def complete_joint(
    facts: dict[str, Any], derived: dict[Pointer, str], unknown: Iterable[tuple[Pointer, str]] = ()
) -> list[str]:
    """Fill in what follows from a plan that several files make together, and report what disagrees.

    `unknown` are the keys that no file states, with the reason: nothing is made of a degree among them.

    >>> facts = {"parallelism": {"num_accelerators": 32}, "batch": {"micro_sequences": 2, "accumulation_steps": 4}}
    >>> complete_joint(facts, {}), facts["batch"]["global_sequences"], facts["parallelism"]["data"]
    ([], 256, 32)
    """
    draft = Draft({}, facts=facts, derived=derived)
    for pointer, why in unknown:
        if draft.get(*map(str, pointer)) is None:
            draft.unknown[pointer] = why
        if pointer == ("model", "num_parameters") and not why.startswith((_LACKS, _NO_LATENT, _NO_FAMILY)):
            draft.more_parameters = why  # another file has no part of it
    complete(draft)
    return [message for message, _ in draft.told]


def complete_model(draft: Draft, *, label: bool = True) -> None:
    """Parameters by the shape, after arXiv:2104.04473 equation 2, and the attention variant by its heads.

    `label` is for a source that is not joined with another one, which may know the name.
    """
    if not draft.facts.get("model"):
        draft.facts.pop("model", None)
        draft.lacks(("model",), "the source does not describe the model")
        return
    heads, groups = draft.counted("model", "num_attention_heads"), draft.counted("model", "num_key_value_heads")
    if draft.get("model", "attention") is None and heads and groups and ("model", "attention") not in draft.unknown:
        variant = "full" if groups == heads else "multi-query" if groups == 1 else "grouped-query"
        of_heads = (("model", "num_attention_heads"), ("model", "num_key_value_heads"))
        draft.follow(("model", "attention"), variant, "by the number of key and value heads", *of_heads)
    shape = _shape(draft)
    if isinstance(shape, str):
        draft.lacks(("model", "name"), "no setting that is read names the model")
        draft.lacks(("model", "num_parameters"), shape)
        if draft.get("model", "experts") is not None:
            draft.lacks(("model", "num_active_parameters"), shape)
        return
    _count(draft, shape, label=label)


def _count(draft: Draft, shape: Shape, *, label: bool) -> None:
    """Parameters of a shape, with those beside it, and a name made of them where the source has none."""
    counted = parameters(shape)
    own = draft.attention_parameters
    if isinstance(draft.more_parameters, str):
        draft.lacks(("model", "name"), "no setting that is read names the model")
        draft.lacks(("model", "num_parameters"), draft.more_parameters)
        draft.lacks(("model", "num_active_parameters"), draft.more_parameters)
        return
    more, active = draft.more_parameters
    # Projections of latent attention, biases and further norms are in this source alone.
    inputs = _SHAPE if own is None and not more else ()
    surplus = more + (0 if own is None else own * shape.num_layers - int(counted.attention))
    counted_from = f"{_COUNTED}, and the {_MORE}" if more else _COUNTED
    weak = not inputs and any(isinstance(draft.derived.get(place), Default) for place in _SHAPE)
    counted_from = Default(counted_from) if weak else counted_from
    if draft.get("model", "num_parameters") is None:
        draft.follow(("model", "num_parameters"), int(counted.total) + surplus, counted_from, *inputs)
    if draft.get("model", "name") is None and not label:
        draft.lacks(("model", "name"), "no setting that is read names the model")
    elif draft.get("model", "name") is None:
        total = draft.counted("model", "num_parameters") or counted.total + surplus
        name = f"transformer-{total / 1e9:.4g}b"
        how = "the source names no model; made of its number of parameters"
        draft.follow(("model", "name"), name, how, ("model", "num_parameters"))
    if shape.num_expert_layers and draft.get("model", "num_active_parameters") is None:
        how = like(counted_from, f"{counted_from}, experts that a token visits")
        draft.follow(("model", "num_active_parameters"), int(counted.active) + surplus - more + active, how, *inputs)


def _not_told(draft: Draft) -> list[str]:
    """What a shape must not be guessed of: gate, ties, a head that does not divide, what is left open."""
    lacking = [key for key in ("gated_ffn", "tied_embeddings") if draft.get("model", key) is None]
    hidden, heads = draft.counted("model", "hidden_size"), draft.counted("model", "num_attention_heads")
    if draft.counted("model", "head_size") is None and hidden and heads and hidden % heads:
        lacking.append("head_size")
    undecided = {str(place[-1]) for place in _SHAPE if place in draft.unknown}
    return lacking + sorted(undecided - {*lacking, *_NEEDED, "family", "attention", "ffn_hidden_size"})


def _shape(draft: Draft) -> Shape | str:
    """The shape of the facts, or why there is none."""
    values = {key: draft.counted("model", key) for key in _NEEDED}
    lacking = [key for key, value in values.items() if value is None or value > _LARGEST_DIMENSION]
    experts = draft.get("model", "experts")
    layers = values["num_layers"] or 0
    inside = experts if isinstance(experts, dict) else {}
    expert_layers = inside.get("num_layers", layers) if inside else 0
    if inside and not _are_experts(inside):
        lacking.append("experts")
    ffn = draft.counted("model", "ffn_hidden_size")
    if (ffn is None and expert_layers != layers) or (not inside and ffn is None):
        lacking.append("ffn_hidden_size")
    lacking += _not_told(draft)
    if lacking or not isinstance(expert_layers, int) or not 0 <= expert_layers <= layers:
        return f"{_LACKS} {', '.join(lacking) or 'a number of layers with experts'}"
    hidden, heads = values["hidden_size"] or 1, values["num_attention_heads"] or 1
    if draft.get("model", "attention") == "latent" and draft.attention_parameters is None:
        return _NO_LATENT
    if draft.get("model", "family") not in {"dense-transformer", "moe-transformer"}:
        return _NO_FAMILY
    head_size = draft.counted("model", "head_size") or max(1, hidden // heads)
    return Shape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_key_value_heads=draft.counted("model", "num_key_value_heads") or heads,
        head_size=head_size,
        ffn_hidden_size=ffn or 0,
        vocabulary_size=values["vocabulary_size"] or 1,
        gated_ffn=draft.get("model", "gated_ffn") is True,
        tied_embeddings=draft.get("model", "tied_embeddings") is True,
        num_experts=inside.get("num_experts", 0),
        num_active_experts=inside.get("num_active_experts", 0),
        num_shared_experts=inside.get("num_shared_experts", 0),
        expert_hidden_size=inside.get("ffn_hidden_size", 0),
        num_expert_layers=expert_layers,
    )


def _are_experts(inside: Mapping[str, Any]) -> bool:
    """Whether the numbers of experts can be computed with."""
    least = {"num_experts": 1, "num_active_experts": 1, "ffn_hidden_size": 1, "num_shared_experts": 0}
    values = {key: inside.get(key, 0) for key in least}
    return all(isinstance(value, int) and least[key] <= value <= _LARGEST_DIMENSION for key, value in values.items())


def complete_degrees(draft: Draft, world: int | None, world_from: str) -> None:
    """Data degree and ranks: `ranks = data x tensor x pipeline x context`, whichever of the two is open."""
    data = draft.counted("parallelism", "data")
    open_degrees = _open_degrees(draft)
    product = math.prod(draft.counted(*map(str, place)) or 1 for place in _SPLITS)
    stated = draft.counted("parallelism", "num_accelerators")
    if world is not None and stated is None:
        draft.put(("parallelism", "num_accelerators"), world, world_from)
    world = world or stated
    if world is not None and open_degrees:
        draft.lacks(_DATA, f"ranks over the other degrees, of which {open_degrees} is not known")
    elif world is not None:
        if world % product:
            uneven = f"{world} ranks are no multiple of {product}, the product of the other degrees"
            draft.remark(uneven)
            draft.lacks(_DATA, uneven)
        elif data is None:
            draft.follow(_DATA, world // product, f"ranks over {product}, the other degrees", *_SPLITS)
    elif data is not None and draft.get("parallelism", "num_accelerators") is None:
        if open_degrees:
            why = f"the product of the degrees, of which {open_degrees} is not known"
            draft.lacks(("parallelism", "num_accelerators"), why)
        else:
            how = "product of the data, tensor, pipeline and context degrees"
            inputs = (("parallelism", "data"), *_SPLITS)
            draft.follow(("parallelism", "num_accelerators"), data * product, how, *inputs)
    why = "the source does not say on how many accelerators the job runs; what starts the job does"
    draft.lacks(("parallelism", "num_accelerators"), why)
    if data is None and world is None:
        draft.lacks(("parallelism", "data"), draft.unknown.get(("parallelism", "num_accelerators"), why))
    whole = ("parallelism", "pipeline") not in draft.unknown
    if whole and (draft.counted("parallelism", "pipeline") or 1) == 1 and draft.get("parallelism", "schedule"):
        del draft.facts["parallelism"]["schedule"]


def _open_degrees(draft: Draft) -> str:
    """The degrees beside the data degree that the source leaves open or gives no usable number for.

    One that is not given at all is 1; one that is given by something else is not.
    """
    odd = (place for place in _SPLITS if (value := draft.get(*map(str, place))) is not None and not _is_degree(value))
    return ", ".join(dict.fromkeys(str(place[-1]) for place in (*(p for p in _SPLITS if p in draft.unknown), *odd)))


def _is_degree(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_DEGREE


def complete_batch(draft: Draft) -> None:
    """The batch: `sequences of a step = data x micro-batch x accumulation`, whichever one of the four is open."""
    whole, micro = draft.counted("batch", "global_sequences"), draft.counted("batch", "micro_sequences")
    steps, data = draft.counted("batch", "accumulation_steps"), draft.counted("parallelism", "data")
    stated = {key for key in ("global_sequences", "micro_sequences", "accumulation_steps") if draft.get("batch", key)}
    if whole is None and micro and steps and data and "global_sequences" not in stated:
        whole = data * micro * steps
        how = "data degree x micro-batch x accumulation steps"
        draft.follow(_WHOLE, whole, how, _DATA, _MICRO, _STEPS)
    elif whole and micro and data and "accumulation_steps" not in stated:
        _divide(draft, _STEPS, "batch over data degree and micro-batch", (_WHOLE, _DATA, _MICRO))
    elif whole and steps and data and "micro_sequences" not in stated:
        _divide(draft, _MICRO, "batch over data degree and accumulation steps", (_WHOLE, _DATA, _STEPS))
    if whole and micro and steps and data and whole != micro * steps * data:
        draft.remark(
            f"the batch of {whole} is not {data} data ranks x {micro} sequences x {steps} accumulation steps "
            f"= {micro * steps * data}"
        )
    for key in ("global_sequences", "micro_sequences", "accumulation_steps"):
        if draft.get("batch", key) is None:
            draft.lacks(("batch", key), f"the source does not state it; {_product(draft, key)}")
    length = draft.counted("model", "sequence_length")
    known = draft.get("batch", "global_tokens") is not None or ("batch", "global_tokens") in draft.unknown
    if whole and length and not known:
        how = "sequences of a step x sequence length"
        draft.follow(("batch", "global_tokens"), whole * length, how, _WHOLE, ("model", "sequence_length"))


def _product(draft: Draft, key: str) -> str:
    """The identity that a part of the batch obeys, and what it lacks."""
    names = {_WHOLE: "the global batch", _DATA: "the data degree", _MICRO: "the micro-batch", _STEPS: "the steps"}
    others = {place: name for place, name in names.items() if place != ("batch", key)}
    lacking = [name for place, name in others.items() if draft.counted(*map(str, place)) is None]
    return f"it follows from {', '.join(others.values())}, of which the source lacks {', '.join(lacking) or 'none'}"


def _divide(draft: Draft, target: Pointer, how: str, inputs: tuple[Pointer, Pointer, Pointer]) -> None:
    """Put the batch over two other counts where they divide it; otherwise it stays open, and why is said."""
    whole, one, other = (draft.counted(*map(str, pointer)) or 1 for pointer in inputs)
    if whole % (one * other) == 0:
        draft.follow(target, whole // (one * other), how, *inputs)
        return
    names = ("data ranks", "sequences of a micro-batch" if inputs[2] == _MICRO else "accumulation steps")
    uneven = f"the batch of {whole} sequences is no multiple of {one} {names[0]} x {other} {names[1]}"
    draft.remark(uneven)
    draft.lacks(target, uneven)


def complete_job(draft: Draft) -> None:
    """Tokens of the job: `steps x tokens of a step`, where no ramp changes the batch."""
    steps, tokens = draft.counted("job", "num_steps"), draft.counted("batch", "global_tokens")
    ramps = draft.get("batch", "ramp") or ("batch", "ramp") in draft.unknown
    known = draft.get("job", "num_tokens") is not None or ("job", "num_tokens") in draft.unknown
    if steps and tokens and not ramps and not known:
        inputs = (("job", "num_steps"), ("batch", "global_tokens"))
        draft.follow(("job", "num_tokens"), steps * tokens, "steps x tokens of a step", *inputs)
