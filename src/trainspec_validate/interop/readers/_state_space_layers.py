"""Turns settings of models with state-space layers into the model of a plan: their kinds of layers and the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trainspec_validate.interop.readers._plan_parts import LARGEST, Default, Draft
from trainspec_validate.model.finding import Pointer

_STATE: Final = ("model", "state_space")
_OF_HEADS: Final[tuple[Pointer, ...]] = tuple(
    ("model", key) for key in ("num_attention_heads", "num_key_value_heads", "head_size")
)
_ATTENTION: Final = "*D+"
_SYMBOLS: Final = frozenset(f"MG-E{_ATTENTION}")
"""Layers of a pattern: Mamba-2, gated delta net, feed-forward, experts and three kinds of attention;
https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/models/hybrid/hybrid_layer_allocation.py."""
_LONGEST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Names:
    """Settings that say what a state-space layer is, as one program calls them."""

    kind: str
    state: str
    convolution: str = ""
    expansion: str = ""
    """How many times as wide as the model a layer is inside."""
    inner: str = ""
    heads: str = ""
    head: str = ""
    groups: str = ""
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Layers:
    """Numbers of layers by kind; a layer of several kinds counts for each."""

    whole: int
    state_space: int
    attention: int
    feed_forward: int | None = None
    experts: int = 0
    shared: bool = False


def counted(pattern: str) -> Layers | None:
    """The layers of a pattern with a sign for each, up to those that predict further tokens; None where it has others.

    >>> counted("M-M*-|ME/M*")
    Layers(whole=7, state_space=3, attention=1, feed_forward=2, experts=1, shared=False)
    """
    main = pattern.partition("/")[0].replace("|", "")
    found = Counter(main)
    if not main or len(main) > _LONGEST or not found.keys() <= _SYMBOLS or found["G"]:
        return None
    attention = sum(found[sign] for sign in _ATTENTION)
    return Layers(len(main), found["M"], attention, found["-"], found["E"])


def put_layers(draft: Draft, layers: Layers, how: str) -> str | None:
    """Set the family and the numbers of layers; the family is returned, None where the layers leave it open."""
    if not layers.state_space:
        draft.lacks(
            ("model", "family"), f"{how}: no layer has a state space, and a plan has no layers of one part each"
        )
        return None
    others = layers.attention or layers.feed_forward or layers.experts
    if others and not layers.attention:
        draft.lacks(("model", "family"), f"{how}: state-space layers with others than attention, which no family is")
        return None
    draft.put(("model", "family"), "hybrid" if layers.attention else "state-space", how)
    if not layers.attention:
        draft.drop([at for at in _OF_HEADS if draft.get(*map(str, at)) is not None], "no layer has attention")
        draft.unknown.update(dict.fromkeys(_OF_HEADS, "no layer has attention"))
        draft.unknown.update(
            dict.fromkeys((("model", key) for key in ("ffn_hidden_size", "gated_ffn")), "no such layer")
        )
        draft.put(("model", "attention"), "none", how)
        return "state-space"
    draft.put((*_STATE, "num_layers"), layers.state_space, how)
    draft.put(("model", "num_attention_layers"), layers.attention, how)
    if layers.feed_forward is not None:
        draft.put(("model", "num_ffn_layers"), layers.feed_forward, how)
    if layers.experts:
        draft.put(("model", "experts", "num_layers"), layers.experts, how)
    if layers.shared:
        draft.put(("model", "shared_layers"), True, how)
    return "hybrid"


def put_state(
    draft: Draft, names: Names, hidden: int | None, defaults: dict[str, int] | None = None, why: str = ""
) -> None:
    """Set what a state-space layer is; `defaults` are those of the program by setting, after the source `why`."""
    usual = defaults or {}

    def number(name: str) -> tuple[int | None, str]:
        value = draft.count(name) if name else None
        if value is not None or not name or draft.reasons(name):
            return value, ""
        given = usual.get(name)
        return given, "" if given is None else Default(f"the default of {why}")

    draft.put((*_STATE, "kind"), names.kind)
    state, how = number(names.state)
    if state:
        draft.put((*_STATE, "state_size"), state, how)
    else:
        draft.lacks((*_STATE, "state_size"), f"no {names.state} is given")
    for key, name in (("num_groups", names.groups), ("convolution_width", names.convolution)):
        value, how = number(name)
        if value:
            draft.put((*_STATE, key), value, how)
    _put_width(draft, names, hidden, number)
    rank = draft.values.get(names.rank)
    if names.rank and hidden and (rank is None or rank == "auto"):  # a word of these programs
        draft.used.add(names.rank)
        told = "a sixteenth of the hidden size, rounded up"
        draft.put((*_STATE, "time_step_rank"), -(-hidden // 16), told if rank else Default(told))
    elif names.rank:
        draft.copy((*_STATE, "time_step_rank"), names.rank)


def _put_width(draft: Draft, names: Names, hidden: int | None, number: Callable[[str], tuple[int | None, str]]) -> None:
    """The inner width, stated or by heads or expansion, and the heads of Mamba-2."""
    inner, how = number(names.inner)
    heads, of_heads = number(names.heads)
    head, of_head = number(names.head)
    times, of_times = number(names.expansion)
    weak = any(isinstance(one, Default) for one in (of_heads, of_head, of_times))
    if not inner and heads and head:
        inner, how = heads * head, f"{names.heads} x {names.head}"
    elif not inner and times and hidden:
        inner, how = times * hidden, f"{names.expansion} x the hidden size"
    if inner and inner <= LARGEST:
        draft.put((*_STATE, "inner_size"), inner, Default(how) if weak and how else how)
    if not heads and names.heads and inner and head and inner % head == 0:
        heads, of_heads = inner // head, "inner width over the width of a head"
    if heads:
        draft.put((*_STATE, "num_heads"), heads, Default(of_heads) if weak and of_heads else of_heads)
