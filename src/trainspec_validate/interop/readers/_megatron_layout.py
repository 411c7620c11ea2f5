"""Reads how Megatron-LM's layout strings and lists split layers over the chunks of a pipeline."""

from __future__ import annotations

import re

MAX_LENGTH = 16 * 1024
_GROUP = re.compile(r"\(([^()]*)\)\*([0-9]{1,4})")
_REPEAT = re.compile(r"([A-Za-z|])\*([0-9]{1,4})")


def layout_layers(layout: object) -> list[int] | None:
    """Decoder layers of each chunk in order; None for what is no layout.

    In a string `t` is a layer, `|` ends a chunk, `*n` repeats a letter or a group in parentheses, and other letters
    are no decoder layers. In a list each chunk is a list of words. Source:
    NVIDIA/Megatron-LM@d98e8a64:megatron/core/transformer/pipeline_parallel_layer_layout.py.

    >>> layout_layers("Et*3|(tt|)*2mL"), layout_layers([["embedding", "decoder"], ["decoder", "loss"]])
    ([3, 2, 2, 0], [1, 1])
    >>> layout_layers("t*9999*9999*9999") is None
    True
    """
    if isinstance(layout, list):
        if not layout or not all(isinstance(chunk, list) for chunk in layout):
            return None
        return [sum(word == "decoder" for word in chunk) for chunk in layout]
    if not isinstance(layout, str) or len(layout) > MAX_LENGTH:
        return None
    text = re.sub(r"[\s,]", "", layout)
    for pattern in (_GROUP, _REPEAT):
        while pattern.search(text):
            grown = sum(len(found[1]) * int(found[2]) for found in pattern.finditer(text))
            if len(text) + grown > MAX_LENGTH:
                return None
            text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    if not re.fullmatch(r"[A-Za-z|]*t[A-Za-z|]*", text):
        return None
    return [chunk.count("t") for chunk in text.split("|")]
