"""Says whether a file is a data set: records in JSON Lines by their keys and texts, tokens and arrays by their form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trainspec_validate.pipeline.run_tables import words_of
from trainspec_validate.system.boundary import open_regular

DATA_SET: Final = "is a data set in JSON Lines"
_INDEX: Final = ".idx"
_STARTS_OF_INDEX: Final = (b"MMIDIDX\0\0", b"TNTIDX\0\0")
"""How the index begins that Megatron-LM and fairseq keep next to the tokens of a data set;
https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py."""
_STARTS_OF_TOKENS: Final = tuple(number.to_bytes(4, "little") for number in (20240520, 20240801))
"""How tokens of llm.c begin; https://github.com/karpathy/llm.c/blob/master/llmc/dataloader.h."""
_MOST_LINES: Final = 200
_MOST_DEPTH: Final = 12
_OF_RUNS: Final = frozenset(
    {
        *("step", "steps", "iter", "iters", "iteration", "iterations", "epoch", "epochs", "update", "updates"),
        *("loss", "losses", "nll", "perplexity", "ppl", "lr", "learningrate", "gnorm", "grad", "gradient", "mfu"),
        *("time", "times", "timestamp", "timestamps", "ts", "datetime", "elapsed", "duration", "seconds", "latency"),
        *("metric", "metrics", "throughput", "tflops", "flops", "gauge", "counter", "watts", "joules", "telemetry"),
        *("event", "events", "severity", "levelname", "logger", "log", "logs", "stderr", "stdout", "traceback"),
        *("rank", "ranks", "host", "hostname", "pid", "gpu", "gpus", "node", "nodes", "attempt"),
    }
)
"""Words of keys in records of a run; a data set that has one of them is named as a text of no known format."""
_OF_TIME: Final = frozenset({"time", "times", "timestamp", "timestamps", "ts", "datetime"})
"""Words of keys that pages and articles have too: no sign of a run next to a text longer than a line of a log."""
_ARRAY_HEAD: Final = re.compile(
    rb"\x93NUMPY[\1-\3]\0.{2,4}\{[^}]{0,200}'descr': '[<>|=][fiubc]\d{1,2}'[^}]{0,200}\}", re.DOTALL
)
"""How an array of plain numbers begins; https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html."""
_OF_STATE: Final = re.compile(
    r"adam|bias|buffer|checkpoint|ckpt|embed|encoder|decoder|epoch|ema|exp_avg|grad|head|iter|kernel|layer|mlp|model"
    r"|moment|norm|opt|param|rank|rng|shard|state|step|tensor|train|variable|weight|wte|wpe|^\W*[0-9]+\W*$|^[a-z]?[0-9]*\.npy$"
)
"""Words of names that programs give to arrays of state."""
_MOST_LOG_BYTES: Final = 4 * 1024**2
_OF_A_RUN: Final = re.compile(
    rb"step|iter|epoch|loss|perplex|\bppl\b|learning|\blr\b|grad|train|optim|metric|reward|rank|nccl|cuda|gpu|tpu|hpu|torch"
    rb"|jax|node|host|traceback|error|exception|warn|fail|fatal|abort|kill|signal|memory|slurm|srun|checkpoint|resum|elapsed"
    rb"|throughput|flop|mfu|/s\b|per second|\bms\b|\d\d:\d\d:\d\d",
    re.IGNORECASE,
)
_FRACTION: Final = re.compile(rb"\d\.\d|\de[+-]?\d")
_LEVELS: Final = frozenset({"debug", "info", "warn", "warning", "error", "critical", "fatal", "trace"})
_OF_CHAT: Final = frozenset(
    {
        *("messages", "conversation", "conversations", "prompt", "query", "response", "instruction", "completion"),
        *("chosen", "rejected", "chosen_messages", "rejected_messages", "turns", "continuation"),
    }
)
"""Keys that hold a text or a conversation, however short it is and whatever its own keys are."""
_LEVEL: Final = frozenset({"level", "lvl"})
_STEP_IN_LOG: Final = re.compile(r"\b(?:step|iter|iteration|epoch)s?\b\W{0,4}[0-9]", re.IGNORECASE)
_LOSS_IN_LOG: Final = re.compile(r"loss\b\W{0,4}[0-9]", re.IGNORECASE)
_LONGEST_LINE_OF_LOG: Final = 1_000
_SEVERAL_WORDS: Final = re.compile(r"\w\W*\s\W*\w")
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{4}")
"""Writing without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def holds_tokens(file: Path) -> bool:
    """Whether a file with the name of state has the tokens of a data set: by its own start, or the index next to it."""
    if file.suffix != ".bin":
        return False
    return _starts(file, _STARTS_OF_TOKENS) or _starts(file.with_suffix(_INDEX), _STARTS_OF_INDEX)


def is_plain_array(file: Path) -> bool:
    """Whether a file is an array of numbers alone, and neither its name nor that of its directory is one of state."""
    if file.suffix.lower() != ".npy" or any(map(_OF_STATE.search, (file.name.lower(), file.parent.name.lower()))):
        return False
    try:
        with open_regular(file) as opened:
            return _ARRAY_HEAD.match(opened.read(512)) is not None
    except OSError:
        return False


def is_of_no_run(file: Path) -> bool:
    """Whether a log has no word of training or of a failure, and fractions in few lines: statistics of data, say."""
    try:
        with open_regular(file) as opened:
            text = opened.read(_MOST_LOG_BYTES + 1)
    except OSError:
        return False
    return is_of_no_run_text(text)


def is_of_no_run_text(text: bytes) -> bool:
    """Whether the text of a log is one of those; a long text is not."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(text) > _MOST_LOG_BYTES or b"\0" in text or not lines or _OF_A_RUN.search(text):
        return False
    return sum(_FRACTION.search(line) is not None for line in lines) * 4 < len(lines)


def _starts(file: Path, marks: tuple[bytes, ...]) -> bool:
    try:
        with open_regular(file) as opened:
            return opened.read(max(map(len, marks))).startswith(marks)
    except OSError:
        return False


def is_data_set(start: bytes) -> bool:
    r"""Whether each line is an object with texts, and none has a key of a run or a line of a log for a text.

    The start of a file serves: a last line without its end does not count next to others.

    >>> is_data_set(b'{"prompt": "Add one and two."}\n')
    True
    >>> is_data_set(b'{"prompt": "Add one and two.", "loss": 2.5}\n')
    False
    """
    *lines, last = start.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line for line in lines or [last] if line.strip()][:_MOST_LINES]
    num_with_text = num_texts = num_fractions = 0
    for line in lines:
        try:
            found = _counted(json.loads(line))
        except (ValueError, RecursionError):
            return False
        if found is None:
            return False
        num_with_text += found[0] > 0
        num_texts, num_fractions = num_texts + found[0], num_fractions + found[1]
    return num_with_text * 2 > len(lines) and num_fractions <= num_texts


def _counted(record: Any) -> tuple[int, int] | None:
    """How many texts and fractions a record of a data set has; None for any other record."""
    if isinstance(record, list):
        is_chat = all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in record)
        return (len(record), 0) if is_chat else None
    if not isinstance(record, dict):
        return None
    chats = [value for key, value in record.items() if key in _OF_CHAT and isinstance(value, str | list)]
    values = list(_values({key: value for key, value in record.items() if key not in _OF_CHAT}, 0))
    values += [("", value) for value in chats if isinstance(value, str)]
    is_long = any(isinstance(value, str) and len(value) > _LONGEST_LINE_OF_LOG for _, value in values)
    if any(_is_of_a_run(key, value) for key, value in values if not (is_long and _is_time(key, value))):
        return None
    num_texts = len(chats) + sum(isinstance(value, str) and _is_text(value) for _, value in values)
    return num_texts, sum(isinstance(value, float) for _, value in values)


def _values(value: Any, depth: int, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that is no collection, with the key that it has, and each key of a collection."""
    if depth > _MOST_DEPTH:
        yield "log", None  # nobody looks deeper: not taken for a data set
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name, None
            yield from _values(item, depth + 1, name)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, depth + 1, key)
    else:
        yield key, value


def _is_time(key: str, value: Any) -> bool:
    """Whether a key alone, or with a text, says when something was written."""
    return (value is None or isinstance(value, str)) and frozenset(words_of(key)) & _OF_RUNS <= _OF_TIME


def _is_of_a_run(key: str, value: Any) -> bool:
    """Whether a key is one of a record of a run, or its value a level of logging or a line of a log of training."""
    words = frozenset(words_of(key))
    if words & _OF_RUNS or "loss" in key.lower() or (isinstance(value, int | float) and key and not words):
        return True
    if not isinstance(value, str) or len(value) > _LONGEST_LINE_OF_LOG:
        return False
    is_level = bool(words & _LEVEL) and value.strip().lower() in _LEVELS
    return is_level or (_STEP_IN_LOG.search(value) is not None and _LOSS_IN_LOG.search(value) is not None)


def _is_text(value: str) -> bool:
    return _SEVERAL_WORDS.search(value) is not None or _UNSPACED.search(value) is not None
