"""Lists how programs print each step as a line, or a block, of names and values; `printed_steps` reads them all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainspec_validate.telemetry.formats.printed_numbers import NUMBER, VALUE

_LOSS: Final = "train.loss.mean{train.loss.name=total}"
NORM, RATE, TOKENS, DURATION = "train.gradient.norm", "train.learning_rate", "train.token.rate", "train.step.duration"
_EVALUATED: Final = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=total}}"
_BITS: Final = 1.4426950408889634
"""Of a natural logarithm to base 2, in which fairseq prints losses, next to `ppl`, which is 2 to their power."""
_WORD: Final = r"(?P<name>[A-Za-z][\w/]{0,80})"


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which one program prints a step."""

    title: str
    mark: bytes
    """Bytes that each report holds; empty where the program has the file for itself."""
    report: re.Pattern[str]
    """A report: its `fields`, and its `step` where it has one."""
    fields: tuple[re.Pattern[str], ...]
    """Names and values in the fields."""
    metrics: Mapping[str, tuple[str, float]]
    """The key of a name, and what its value is divided by."""
    example: str
    is_index: bool = False
    """Whether steps count from 0: 1 is added where an optimizer step is completed."""
    more: re.Pattern[str] | None = None
    """A line of the same block, with a name and a value; None where each report is one line."""
    evaluation: re.Pattern[str] | None = None
    """A line after which the next report has the time of an evaluation in its own."""
    index: str = ""
    """Name of the index of a step, from 0, which a block may have where its first line has none."""
    restored: str = "\n"
    """Part of a line that says that training continues from a checkpoint."""
    over: str = "\n"
    """Part of a line that says that training is over."""

    @property
    def names(self) -> frozenset[str]:
        """The metrics that reports can hold."""
        return frozenset(key.partition("{")[0] for key, _ in self.metrics.values()) | {"train.step.count"}


def _fields(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


_LLM_C: Final = {"loss": (_LOSS, 1.0), "norm": (NORM, 1.0), "lr": (RATE, 1.0)}
FORMS: Final = {
    "build-nanogpt-log": Form(
        "console log of build-nanogpt, lines with step and loss:",
        b" | loss: ",
        re.compile(r"^(?:.{0,20}[\]: ])?step {1,8}(?P<step>[0-9]{1,12}) \| (?P<fields>loss: .{1,400})"),
        _fields(rf"(?:^|\| ){_WORD}(?:: | )(?P<value>{NUMBER}(?=ms| |$)|{VALUE}(?= |$))"),
        {**_LLM_C, "dt": (DURATION, 1000.0), "tok/sec": (TOKENS, 1.0)},
        "step     5 | loss: 9.512345 | lr 5.0350e-06 | norm: 4.5000 | dt: 410.25ms | tok/sec: 1277966.93",
        is_index=True,
        evaluation=re.compile(r"validation loss: |HellaSwag accuracy: "),
    ),
    "build-nanogpt-file": Form(
        "log.txt of build-nanogpt, lines with train, val or hella",
        b"",
        re.compile(r"^(?P<step>[0-9]{1,12}) (?P<fields>(?:train|val|hella) \S[^\n]{0,100})$"),
        _fields(rf"{_WORD} (?P<value>{VALUE})$"),
        {"train": (_LOSS, 1.0), "val": (_EVALUATED.format("val"), 1.0)},
        "5 train 9.512345",
        is_index=True,
    ),
    "llmc-log": Form(
        "main.log of llm.c, lines with s: and trl:",
        b"",
        re.compile(r"^s:(?P<step>[0-9]{1,12}) (?P<fields>(?:trl|tel|eval):.{1,200})$"),
        _fields(rf"(?:^| ){_WORD}:(?P<value>{VALUE})(?= |$)"),
        {**_LLM_C, "trl": (_LOSS, 1.0), "tel": (_EVALUATED.format("val"), 1.0)},
        "s:5 trl:10.4323 lr:0.000005 norm:8.45",
        is_index=True,
    ),
    "llmc-console-log": Form(
        "console log of llm.c, lines with step, loss and norm",
        b" | loss ",
        re.compile(
            r"^(?:.{0,20}[\]: ])?step {1,8}(?P<step>[0-9]{1,12})/(?P<total>[0-9]{1,12}) \| (?P<fields>loss .{1,400})"
        ),
        _fields(
            rf"(?:^|\| ){_WORD} (?P<value>{VALUE}) ?(?=\(|\||$)",
            rf"\| (?P<value>{NUMBER}) (?P<name>ms)(?= |$)",
        ),
        {**_LLM_C, "ms": (DURATION, 1000.0)},
        "step    5/19560 | loss 10.5568 (+nanz)| norm 10.79 (+nanz)| lr 4.29e-06 | 410.25 ms | 40.0% bf16 MFU",
    ),
    "olmo-log": Form(
        "console log of OLMo and OLMo-core, blocks after [step=",
        b"[step=",
        re.compile(
            r"\[step=(?P<step>[0-9,]{1,15})/(?P<total>[^\]\s]{1,20}),epoch=[0-9]{1,9}(?:,[^\]\n]{1,60})?\](?P<fields>)\s*$"
        ),
        (),
        {
            **dict.fromkeys(("train/CrossEntropyLoss", "train/CE loss"), (_LOSS, 1.0)),
            **dict.fromkeys(("optim/total_grad_norm", "optim/total grad norm"), (NORM, 1.0)),
            **dict.fromkeys(("optim/learning_rate_group0", "optim/LR (group 0)"), (RATE, 1.0)),
            "throughput/total_tokens": ("train.token.count{train.token.kind=all}", 1.0),
            "throughput/total tokens": ("train.token.count{train.token.kind=all}", 1.0),
        },
        "2025-06-20 12:00:00.500 host:0 olmo.train:979 INFO [step=5/2500,epoch=0]",
        restored="Loading checkpoint from ",
        more=re.compile(r"^ {2,8}(?P<name>[A-Za-z][^=\n]{0,120})=(?P<value>\S[^\n]{0,200}?)\s*$"),
    ),
    "composer-log": Form(
        "console log of Composer and LLM Foundry, blocks after [batch=",
        b"[batch=",
        re.compile(
            r"(?:^|[\s:])(?:\[epoch=[^\]\n]{1,40}\]\[batch=[0-9]{1,12}/[0-9]{1,12}\]"
            r"|(?<!\])\[batch=(?P<step>[0-9]{1,12})/(?P<total>[0-9]{1,12})\]):(?P<fields>)\s*$"
        ),
        (),
        {
            "loss/train/total": (_LOSS, 1.0),
            "l2_norm/grad/global": (NORM, 1.0),
            "throughput/tokens_per_sec": (TOKENS, 1.0),
        },
        "[batch=5/100]:",
        index="time/batch",
        more=re.compile(
            r"^(?:\[?(?:rank)?[0-9]{1,6}\]?: ?)?\s{1,16}Train (?P<name>[^:\n]{1,120}): (?P<value>\S[^\n]{0,200}?)\s*$"
        ),
    ),
    "fairseq-log": Form(
        "log of fairseq and metaseq, lines with num_updates",
        b"num_updates",
        re.compile(
            r"(?:epoch [0-9]{1,6}: {1,8}[0-9]{1,9} / [0-9]{1,9} |\| train_inner \| \{)"
            r"(?=[^\n]{0,4000}?num_updates\"?[=:] ?\"?(?P<step>[0-9]{1,12}))(?P<fields>[^\n]{1,4000})"
        ),
        _fields(
            rf"(?:^|[ ,{{\"])(?P<name>loss)\"?[=:] ?\"?(?P<value>{VALUE})(?=[\", (}}][^\n]*\bppl\b)",
            rf"(?:^|[ ,{{\"])(?P<name>lr|gnorm)\"?[=:] ?\"?(?P<value>{VALUE})(?=[\", (}}]|$)",
        ),
        {"loss": (_LOSS, _BITS), "lr": (RATE, 1.0), "gnorm": (NORM, 1.0)},
        "| epoch 001: 450 / 1891 loss=11.521, ppl=1886.05, num_updates=445, lr=8.90889e-05, gnorm=1.543",
        over="done training in ",
    ),
    "trainer-log": Form(
        "console log of the Hugging Face Trainer, lines with loss and epoch",
        b"'epoch': ",
        re.compile(rf"\{{(?P<fields>'(?:eval_)?loss': '?{VALUE}'?,[^{{}}\n]{{0,4000}}'epoch': [^{{}}\n]{{1,40}})\}}"),
        _fields(rf"'(?P<name>[\w ./-]{{1,120}})': '?(?P<value>{VALUE})'?(?=,|$)"),
        {
            "loss": (_LOSS, 1.0),
            "learning_rate": (RATE, 1.0),
            "grad_norm": (NORM, 1.0),
            "eval_loss": (_EVALUATED.format("eval"), 1.0),
        },
        "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 0.0001, 'epoch': 0.5}",
        over="'train_runtime': ",
    ),
}
"""The form of each format."""
