"""Lists the stream formats that can be read and what each can hold, and how its files are recognised."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from trainspec_validate.model.smi_report import ROOT_TAG, TITLE
from trainspec_validate.telemetry.formats import carried, log_lines
from trainspec_validate.telemetry.formats.ends import is_printed, says_end
from trainspec_validate.telemetry.formats.frames import is_frame
from trainspec_validate.telemetry.formats.items import Clock
from trainspec_validate.telemetry.formats.line_forms import FORMS
from trainspec_validate.telemetry.formats.panel_columns import PANEL, runs_of
from trainspec_validate.telemetry.formats.source import HEAD_BYTES, PARQUET

_APART: Final = frozenset({"mllog", "trainer-log", "dlrover-events"})
"""Consoles whose records are apart from what a program prints of a step, or several in a line."""

_PRINTED: Final = frozenset({"json_rows", "llamafactory", "torchtitan", "crash_log"})
"""Modules of lines of JSON that programs also print, and of programs that are not known."""


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """One format of streams: how it is recognised, and what files in it can hold at best."""

    name: str
    title: str
    looks_like: Callable[[bytes], bool]
    """Whether a file starts so; cheap, and never raises."""
    clock: Clock = "utc"
    """Kind of its times at best."""
    omits_zone: bool = False
    """Whether its program writes local times without their zone unless it is asked for another form."""
    ordered: bool = True
    """Whether it promises the order of records."""
    snapshot: bool = False
    """Whether a file is one moment, so that nothing about time can be judged."""
    sequenced: bool = False
    """Whether files have sequence numbers of their own, which prove that nothing is missing."""
    has_rhythm: bool = False
    """Whether it has no stream header, so that the reporting interval and the cadence follow from the records."""
    has_free_names: bool = False
    """Whether users name the values, so that a sound file may hold none that is known."""
    is_binary: bool = False
    """Whether a file has no lines: places in it are numbers of records."""
    is_of_engine: bool = False
    """Whether its lines are of an engine that other programs run, whose lines say more and can come later."""
    mark: bytes = b""
    """Mark in each of its lines, among the output of other programs; empty where a file has no other lines."""
    metrics: frozenset[str] | None = None
    """Metrics of the catalog that it can carry; None for any."""
    events: frozenset[str] | None = None
    """Events of the catalog that it can carry; None for any."""
    module: str = ""
    """Module of its reader in this package; empty for what `parquet` reads."""

    @property
    def is_console(self) -> bool:
        """Whether it is what a program prints, among the output of others, with progress bars that end no line."""
        return bool(self.mark) or self.module == "printed_steps"

    @property
    def is_of_devices(self) -> bool:
        """Whether a file has no value of a training run: values of devices alone, or none."""
        return self.metrics is not None and all(name.startswith(("hw.", "train.accelerator.")) for name in self.metrics)

    @property
    def is_printed(self) -> bool:
        """Whether a program prints its lines, so that others may write a prefix before each."""
        return (self.is_console and not self.is_of_devices) or self.module in _PRINTED

    @property
    def counts_unread(self) -> bool:
        """Whether a line that names a step and a loss, and is passed over, would say what the read ones do not."""
        return self.is_console and not self.is_of_devices and self.name not in _APART


def _search(pattern: str, holds: bytes = b"") -> Callable[[bytes], bool]:
    """Whether a text has the pattern; `holds` is a part of each match, which is found faster than the pattern."""
    compiled = re.compile(pattern.encode(), re.MULTILINE)
    return lambda head: holds in head and compiled.search(head) is not None


def _starts_with_brace(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{"


def _unescaped(head: bytes) -> bytes:
    """JSON with the characters of ASCII, which texts may hold as numbers, as they are."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), head)


_ESCAPED = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
_OPENS = re.compile(rb"(?:[\s\[]|//[^\n]{0,4000}\n|/\*[^*]{0,4000}\*/)*+\{")
"""An object, the first of a list or behind a comment, neither of which the reader takes, and says so."""
_IS_RECORD = _search(r'"k"\s{0,8}:\s{0,8}"(?:head|m|e)"')
_IS_SIGNAL = _search(r'"resource(?:Metrics|Logs|Spans)"\s{0,8}:')
_FIRST_EVENT_BYTES = 64
_IS_TRAINER_STATE = _search(r'"log_history"\s{0,8}:\s{0,8}\[')
_IS_OF_TRAINER = _search(r'"(?:global_step|is_world_process_zero)"\s{0,8}:')
_TRAINER_ENTRY = re.compile(
    rb'"log_history"\s{0,8}:\s{0,8}\[\s{0,64}\{'
    rb'(?=[^{}\[\]]{0,20000}"(?:step|epoch)"\s{0,8}:\s{0,8}\d)'
    rb'(?=[^{}\[\]]{0,20000}"(?:loss|learning_rate|grad_norm|train_runtime|eval_\w{1,80})"\s{0,8}:)'
)
"""The first entry of a log: what its program calls the values of a step or of an evaluation."""
_IS_TRACE = _search(r'"log_type_name"\s{0,8}:')
_IS_EXPOSITION = _search(log_lines.EXPOSITION)
_IS_ANSWER = _search(
    r'\A\s{0,64}\{\s{0,64}"status"\s{0,8}:\s{0,8}"'
    r'(?:success",[^\[]{0,1000}"resultType"\s{0,8}:\s{0,8}"(?:matrix|vector)"|error",\s{0,64}"errorType"\s{0,8}:)'
)
"""An answer of the query API of Prometheus, whose first key is `status`."""


def _is_native(head: bytes) -> bool:
    return _starts_with_brace(head) and _IS_RECORD(_unescaped(head.lstrip().split(b"\n", 1)[0]))


def _is_otlp(head: bytes) -> bool:
    return _OPENS.match(head) is not None and not _is_native(head) and _IS_SIGNAL(_unescaped(head))


def _is_torchtitan(head: bytes) -> bool:
    return _starts_with_brace(head) and not _is_native(head) and _IS_TRACE(head.lstrip().split(b"\n", 1)[0])


def _is_trainer_state(head: bytes) -> bool:
    if not _starts_with_brace(head) or not _IS_TRAINER_STATE(head) or _IS_SWIFT_ROW(head):
        return False
    return _IS_OF_TRAINER(head) or _TRAINER_ENTRY.search(head) is not None


_IS_REPORT_OF_LLAMA_FACTORY = _search(
    r'\A\s{0,8}\{(?=[^\n]{0,20000}"current_steps"\s{0,8}:\s{0,8}[0-9])[^\n]{0,20000}"total_steps"\s{0,8}:'
)


def _is_llamafactory(head: bytes) -> bool:
    return not _is_native(head) and _IS_REPORT_OF_LLAMA_FACTORY(head)


_IS_SWIFT_ROW = _search(r'\A\s{0,8}\{[^\n]{0,20000}"global_step/max_steps"\s{0,8}:\s{0,8}"[0-9]')
_IS_ROW_OF_STEP = _search(log_lines.ROW_OF_STEP)
_HOLDS_LOG = _search(r'"(?:log_history|_step)"\s{0,8}:')


def _is_own_rows(head: bytes) -> bool:
    return _IS_ROW_OF_STEP(head) and not _is_native(head) and not _HOLDS_LOG(head.lstrip().split(b"\n", 1)[0])


_IS_METRIC_FILE = _search(r"\A[0-9]{13} [-+0-9.eEnaif]{1,40} [0-9]{1,15}\r?$")
_IS_HISTORY_LINE = _search(
    r'\A\s{0,8}\{(?=[^\n]{0,100000}"_step"\s{0,8}:\s{0,8}[0-9])[^\n]{0,100000}"_(?:runtime|timestamp)"'
)


def _columns(head: bytes) -> set[bytes]:
    """Names in the first line of a table."""
    return {name.strip(b'\r"') for name in head.split(b"\n", 1)[0].split(b",")[:10_000]}


def _is_lightning_table(head: bytes) -> bool:
    return b"\n" in head and _columns(head) >= {b"epoch", b"step"}


_IS_ROW_OF_EPOCH = _search(
    r'\A"?epoch"?,(?![^\n]{0,10000}(?:step|batch|iter))[^\n]{1,10000}\n'
    r'"?([0-9]{1,6})(?:\.0)?"?,(?![^\n]{1,10000}\n"?\1(?:\.0)?"?,)'
)


def _is_epoch_table(head: bytes) -> bool:
    return _IS_ROW_OF_EPOCH(head) and not _columns(head).isdisjoint({b"loss", b"train_loss"})


def _is_history(head: bytes) -> bool:
    if _starts_with_brace(head):
        return not _is_native(head) and _IS_HISTORY_LINE(head)
    columns = _columns(head)
    return b"\n" in head and b"_step" in columns and bool(columns & {b"_runtime", b"_timestamp"})


def _is_panel(head: bytes) -> bool:
    return b"__MAX" in head[:HEAD_BYTES].split(b"\n", 1)[0] and b"\n" in head and bool(runs_of(head))


def _is_event_file(head: bytes) -> bool:
    return is_frame(head) and b"brain.Event:" in head[:_FIRST_EVENT_BYTES]


def _is_exposition(head: bytes) -> bool:
    return _IS_ANSWER(head) if _starts_with_brace(head) else _IS_EXPOSITION(head)


_JOBS_OF_SLURM = _search(r'"jobs"\s{0,8}:\s{0,8}\[\s{0,64}\{')
_ENTRY_OF_ACCOUNTING = _search(r'"(?:allocation_nodes|derived_exit_code)"\s{0,8}:')
_OF_CONTROLLER = _search(r'"job_state"\s{0,8}:')
"""What entries of `squeue` and `scontrol` have, and entries of `sacct` do not."""


def _is_accounting(head: bytes) -> bool:
    if _starts_with_brace(head):
        return bool(_JOBS_OF_SLURM(head) and _ENTRY_OF_ACCOUNTING(head)) and not _OF_CONTROLLER(head)
    columns = set(head.lstrip().split(b"\n", 1)[0].strip().split(b"|")[:1_000])
    return b"State" in columns and bool(columns & {b"JobID", b"JobIDRaw"})


def _is_crash(head: bytes) -> bool:
    return not _IS_RECORD(head) and is_printed(head) and says_end(head)


_ITEMS = _search(r'"items"\s{0,8}:\s{0,8}\[\s{0,64}\{')
_OF_EVENT = _search(r'"(?:involvedObject|regarding)"\s{0,8}:\s{0,8}\{')
_OF_POD = _search(r'"kind"\s{0,8}:\s{0,8}"Pod(?:List)?"')
_POD_STATUS = _search(r'"phase"\s{0,8}:\s{0,8}"(?:Pending|Running|Succeeded|Failed|Unknown)"')


def _is_kubernetes_list(head: bytes) -> bool:
    if not _starts_with_brace(head) or not _ITEMS(head):
        return False
    return _OF_EVENT(head) or (_OF_POD(head) and _POD_STATUS(head))


_untimed = partial(StreamFormat, clock="none", events=frozenset(), has_rhythm=True)
"""A format of steps that have no times."""
_console = partial(StreamFormat, clock="local", events=carried.PAUSES, has_rhythm=True)
"""A console log whose lines have times, so that saves between steps are seen."""
_scalars = partial(StreamFormat, metrics=carried.SCALAR_METRICS, has_rhythm=True, has_free_names=True)
"""A format of scalars that programs name."""
_FORMATS = (
    StreamFormat("metric-stream", "TrainSpec metric stream, JSON Lines", _is_native, sequenced=True, module="native"),
    StreamFormat(
        *("parquet", "TrainSpec metric stream, Parquet", lambda head: head.startswith(PARQUET)),
        sequenced=True,
        is_binary=True,
    ),
    StreamFormat("otlp", "OpenTelemetry metrics and logs, OTLP/JSON", _is_otlp, ordered=False, module="otlp.reader"),
    StreamFormat(
        *("slurm-accounting", "accounting of Slurm: sacct --json or --parsable2", _is_accounting),
        omits_zone=True,
        metrics=frozenset(),
        events=carried.INTERVALS | {"train.fault.detected"},
        module="slurm_accounting",
    ),
    StreamFormat(
        *("kubernetes-list", "events or pods of Kubernetes: kubectl get -o json", _is_kubernetes_list),
        metrics=frozenset(),
        events=frozenset({"train.attempt.start", "train.attempt.end", "train.fault.detected", "train.device.error"}),
        module="kubernetes_list",
    ),
    StreamFormat(
        *("prometheus", "Prometheus or OpenMetrics text, or answer of the query API", _is_exposition),
        snapshot=True,
        events=frozenset({"train.device.error"}),
        module="prometheus.reader",
    ),
    StreamFormat(
        *("mllog", "log of MLPerf, lines with :::MLLOG", _search(r"^[^\n]{0,200}:::MLLOG \{", b":::MLLOG {")),
        ordered=False,
        metrics=carried.MLLOG_METRICS,
        events=carried.INTERVALS | carried.EVALUATIONS,
        has_rhythm=True,
        mark=b":::MLLOG",
        module="mllog.reader",
    ),
    StreamFormat(
        *("torchtitan", "structured log of torchtitan, JSON Lines", _is_torchtitan),
        sequenced=True,
        metrics=carried.TORCHTITAN_METRICS,
        events=carried.EVALUATIONS | carried.SAVES | carried.RESTORES,
        has_rhythm=True,
        module="torchtitan",
    ),
    _untimed(
        *("trainer-state", "trainer_state.json of the Hugging Face Trainer", _is_trainer_state),
        metrics=carried.TRAINER_METRICS,
        module="trainer_state",
    ),
    _untimed(
        *("llamafactory", "trainer_log.jsonl of LLaMA-Factory", _is_llamafactory),
        metrics=carried.TRAINER_METRICS,
        module="llamafactory",
    ),
    _scalars(
        *("tensorboard", "scalars of TensorBoard, event file", _is_event_file),
        events=carried.EVALUATIONS,
        is_binary=True,
        module="tensorboard",
    ),
    _untimed(
        *("lightning-csv", "metrics.csv of the CSVLogger of Lightning", _is_lightning_table),
        metrics=carried.TRAINER_METRICS,
        has_free_names=True,
        module="scalar_table",
    ),
    _untimed(
        *("epoch-csv", "table of epochs: CSVLogger of Keras, summary.csv of timm", _is_epoch_table),
        metrics=carried.TRAINER_METRICS - {"train.step.count", "train.gradient.norm"},
        has_free_names=True,
        module="scalar_table",
    ),
    _scalars(
        *("wandb-history", "exported history of Weights & Biases, CSV or JSON Lines", _is_history),
        events=carried.EVALUATIONS,
        module="scalar_table",
    ),
    _untimed(
        *("swift-log", "logging.jsonl of ms-swift", _IS_SWIFT_ROW), metrics=carried.TRAINER_METRICS, module="json_rows"
    ),
    _scalars(
        *("json-rows", "JSON Lines of a training loop of its own, objects with a step and a loss", _is_own_rows),
        events=frozenset(),
        module="json_rows",
    ),
    _scalars(
        *(PANEL, "exported chart of Weights & Biases, CSV with RUN - METRIC", _is_panel),
        clock="none",
        events=frozenset(),
        module="wandb_panel",
    ),
    _scalars(
        *("mlflow-metric", "metric file of an MLflow run, time, value and step", _IS_METRIC_FILE),
        events=frozenset(),
        module="mlflow_metric",
    ),
    StreamFormat(
        *("megatron-log", "log of Megatron-LM, lines with iteration"),
        _search(log_lines.MEGATRON_LINE),
        clock="local",
        metrics=carried.MEGATRON_METRICS,
        events=carried.PAUSES | {"train.hyperparameter.changed"},
        has_rhythm=True,
        mark=b"iteration",
        module="megatron",
    ),
    _console(
        *("deepspeed-pipeline-log", "log of the pipeline engine of DeepSpeed, lines with steps: and loss:"),
        _search(log_lines.DEEPSPEED_PIPELINE_LINE, b" iter time (s): "),
        metrics=carried.DEEPSPEED_METRICS | {"train.step.duration", "train.loss.mean"},
        is_of_engine=True,
        mark=b" iter time (s): ",
        module="deepspeed_log",
    ),
    _console(
        *("deepspeed-log", "log of DeepSpeed, lines with step= and skipped="),
        _search(log_lines.DEEPSPEED_LINE, b"[Rank 0] step="),
        metrics=carried.DEEPSPEED_METRICS,
        is_of_engine=True,
        mark=b"[Rank 0] step=",
        module="deepspeed_log",
    ),
    _console(
        *("torchtitan-log", "console log of torchtitan, lines with step: and loss:"),
        _search(log_lines.TORCHTITAN_LINE, b" - INFO - "),
        metrics=carried.TORCHTITAN_LOG_METRICS,
        mark=b" - INFO - ",
        module="torchtitan_log",
    ),
    _untimed(
        *(
            "maxtext-log",
            "log of MaxText, lines with completed step:",
            _search(log_lines.MAXTEXT_LINE, b"completed step: "),
        ),
        metrics=carried.NEMO_METRICS | {"train.token.rate"},
        mark=b"completed step: ",
        module="maxtext_log",
    ),
    _untimed(
        *(
            "nemo-log",
            "log of NeMo, progress lines with reduced_train_loss",
            _search(log_lines.NEMO_LINE, b"reduced_train_loss"),
        ),
        metrics=carried.NEMO_METRICS,
        mark=b"reduced_train_loss",
        module="nemo_log",
    ),
    StreamFormat(
        *("dlrover-events", "events of a trainer of DLRover"),
        _search(
            r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}\] (?:\[[^\]\n]{0,200}\] ){2,4}\[#\w{1,60}\] "
            r"\[(?:BEGIN|END|INSTANT)\]",
            b"] [#",
        ),
        clock="local",
        metrics=carried.MEGATRON_METRICS | {"train.checkpoint.duration"},
        events=carried.INTERVALS | carried.EVALUATIONS | carried.SAVES | carried.RESTORES,
        has_rhythm=True,
        module="dlrover",
    ),
    StreamFormat(
        *(
            "nanogpt-log",
            "log of modded-nanogpt, lines with step:",
            _search(r"^step:[0-9]{1,12}/[0-9]{1,12} (?:(?:train|val)_loss:|train_time:)", b"step:"),
        ),
        clock="relative",
        metrics=carried.NANOGPT_METRICS,
        events=frozenset(),
        has_rhythm=True,
        mark=b"step:",
        module="nanogpt",
    ),
    _untimed(
        *(
            "nanogpt-iterations-log",
            "log of nanoGPT, lines with iter, loss and time",
            _search(log_lines.NANOGPT_LINE, b": loss "),
        ),
        metrics=carried.NANOGPT_METRICS,
        mark=b"iter ",
        module="nanogpt_iterations",
    ),
    *(
        StreamFormat(
            *(name, form.title, _search(form.report.pattern, form.mark)),
            clock="local" if form.more else "none",
            metrics=form.names,
            events=carried.PAUSES if form.more else frozenset(),
            has_rhythm=True,
            mark=form.mark,
            module="printed_steps",
        )
        for name, form in FORMS.items()
    ),
    StreamFormat(
        *("kernel-log", "errors of devices in a kernel log: Xid, SXid, RAS of amdgpu", _search(log_lines.KERNEL_LINE)),
        metrics=frozenset(),
        events=frozenset({"train.device.error"}),
        mark=b"Xid (",
        module="kernel_log",
    ),
    *(
        StreamFormat(
            *(name, f"reports of nvidia-smi -q{option}, one or those of a loop", _search(pattern, mark)),
            omits_zone=True,
            is_of_engine=True,
            mark=mark,
            has_rhythm=True,
            metrics=carried.SMI_METRICS,
            events=frozenset({"train.device.error"}),
            module="nvidia_smi",
        )
        for name, option, pattern, mark in (
            ("nvidia-smi-text", "", TITLE, b"NVSMI LOG"),
            ("nvidia-smi-xml", " -x", f"<{ROOT_TAG}>", f"<{ROOT_TAG}>".encode()),
        )
    ),
    StreamFormat(
        *("alibaba-minibatch", "mini-batch times of the Alibaba PAI trace, CSV"),
        _search(r"\A,?worker,gpu,time,batch_time_norm\r?$"),
        clock="none",
        metrics=frozenset({"train.rank.step", "train.rank.slowdown"}),
        events=frozenset(),
        module="minibatch",
    ),
    StreamFormat(
        *("crash-log", "console log of a program that is not known, for why it ended", _is_crash),
        clock="none",
        is_of_engine=True,
        mark=b"\n",
        metrics=frozenset(),
        events=frozenset(),
        module="crash_log",
    ),
)
FORMATS = {entry.name: entry for entry in _FORMATS}
"""Every format by its name, the specification's own first."""


def holds_record(head: bytes) -> bool:
    """Whether a line of a file that begins so is a record of a metric stream, whatever its first line is."""
    return _IS_RECORD(head)
