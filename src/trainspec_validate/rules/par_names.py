"""Judges whether the name of a model is that of its size and shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.model import catalog
from trainspec_validate.model.units import billions, number
from trainspec_validate.rules import NotApplicable, Violation, at, rule

_SIZES: Final = re.compile(
    r"(?<![a-z0-9.])(?:e|a|(?P<count>[0-9]+)x)?(?P<size>[0-9]+(?:[.p][0-9]+)?)(?P<unit>[mbt])(?![a-z0-9])"
)
_UNITS: Final = {"m": 1e6, "b": 1e9, "t": 1e12}
_LEAST_SIZE, _LARGEST_SIZE = 10e6, 5e12
"""Below, a name says a length of sequences, such as `1m`; above, tokens."""
_SIZE_FACTOR: Final = 2.0
"""Names round: 8x7b has 46.7 billion parameters of 56, gemma-2b has 2.5 with its embeddings."""
_SHAPE: Final = ("num_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "ffn_hidden_size")


@rule("TS-PAR-047")
def model_name(plan: TrainingPlan) -> Iterator[Violation]:
    """The name of a model says no other size, and is not the one of another shape of the catalog."""
    model = plan.model
    known = catalog.models().get(_plain(model.name))
    sizes = sizes_of(model.name)
    if known is None and not sizes:
        raise NotApplicable("the name of the model says no size, and the catalog does not have it")
    place = at(plan, "model", "name")
    own = [size for size in (model.num_parameters, model.num_active_parameters) if size]
    if sizes and not any(_is_alike(size, one) for size in sizes for one in own):
        yield Violation(
            place,
            f"the name {model.name!r} says {' or '.join(map(billions, sizes))} parameters, but the model has "
            f"{billions(model.num_parameters)}",
            "write the name of this model, or the shape and the count of the one that is named",
            related=((at(plan, "model", "num_parameters"), "the count"),),
        )
    elif known is not None:
        published = [(key, known.model.get(key)) for key in _SHAPE]
        other = [(key, value) for key, value in published if value and getattr(model, key) not in {None, value}]
        if other:
            differing = ", ".join(f"{key} {number(getattr(model, key))} of {number(value)}" for key, value in other)
            yield Violation(
                place,
                f"{known.title} has another shape: {differing}",
                "write the name of this model, or the published shape; `trainspec plan --model` has it",
                related=tuple((at(plan, "model", key), f"{number(value)} in {known.title}") for key, value in other),
            )


def _plain(name: str) -> str:
    return re.sub(r"[_ ]+", "-", name.casefold())


def sizes_of(name: str) -> list[float]:
    """Numbers of parameters that a name says.

    >>> sizes_of("Llama-3.1-8B-Instruct"), sizes_of("mixtral-8x7b"), sizes_of("qwen3-30b-a3b"), sizes_of("resnet-50")
    ([8000000000.0], [56000000000.0], [30000000000.0, 3000000000.0], [])
    """
    sizes = [
        int(one["count"] or 1) * float(one["size"].replace("p", ".")) * _UNITS[one["unit"]]
        for one in _SIZES.finditer(_plain(name))
    ]
    return [size for size in sizes if _LEAST_SIZE <= size <= _LARGEST_SIZE]


def _is_alike(one: float, other: float) -> bool:
    return one / _SIZE_FACTOR <= other <= one * _SIZE_FACTOR
