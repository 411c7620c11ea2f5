"""Writes a run in each format that can carry it, so that one kind of damage can be judged in all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from trainspec_validate.documents.types.stream import Event, Head, HistogramValue, Sample
from trainspec_validate.model.metrics import by_name
from trainspec_validate.model.metrics.prometheus import prometheus_label, prometheus_name
from trainspec_validate.telemetry.formats import keys
from trainspec_validate.telemetry.formats.otlp.write import write as write_otlp

from .edits import Streams
from .write import by_emitter

Files = dict[str, bytes]
STEPS, LOSS, SECONDS = "train.step.count", "train.loss.mean{train.loss.name=total}", "train.step.duration"
_TYPES = {"counter": "counter", "histogram": "histogram"}


def jsonl(streams: Streams) -> Files:
    """Files of this specification, one for each writer."""
    return by_emitter(streams)


def otlp(streams: Streams) -> Files:
    """Files of OTLP as the export of this project writes them, one after the other."""
    return {"otlp.json": b"".join(b"\n".join(write_otlp([s.head, *s.records])) + b"\n" for s in streams)}


def foreign_otlp(streams: Streams) -> Files:
    """One file of OTLP as another program writes it: a resource for each writer, and a line for each record."""
    records = [(record.time_us, stream.head, record) for stream in streams for record in stream.records]
    lines = [_otlp_line(head, record) for _, head, record in sorted(records, key=lambda each: each[0])]
    return {"otlp.json": "".join(f"{json.dumps(line)}\n" for line in lines).encode()}


def _otlp_line(head: Head, record: Sample | Event) -> dict[str, Any]:
    told = {
        "service.name": "trainer",
        "service.instance.id": head.emitter,
        "train.run.id": head.run,
        "train.rank.id": head.rank,
        "host.id": head.host,
        "hw.id": getattr(record, "device", None) or head.device,
        "train.world.size": head.world_size,
    }
    resource = {"attributes": _attributes({name: value for name, value in told.items() if value is not None})}
    nanoseconds = str(record.time_us * 1000)
    if isinstance(record, Event):
        named = {**record.a, **({"train.step": record.step} if record.step is not None else {}), "event.id": record.id}
        entry = {"timeUnixNano": nanoseconds, "eventName": record.name, "attributes": _attributes(named)}
        return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": {}, "logRecords": [entry]}]}]}
    metrics = list(_otlp_metrics(record, nanoseconds))
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": {}, "metrics": metrics}]}]}


def _otlp_metrics(record: Sample, nanoseconds: str) -> Iterator[dict[str, Any]]:
    for key, value in record.m.items():
        name, named = keys.split(key) or (key, {})
        metric = by_name(name)
        about = {**named, **({"train.step": record.step} if record.step is not None else {})}
        point = {"timeUnixNano": nanoseconds, "attributes": _attributes(about)}
        if isinstance(value, HistogramValue):
            point |= {"count": str(value.count), "sum": value.sum}
            yield {"name": name, "unit": "s", "histogram": {"dataPoints": [point], "aggregationTemporality": 1}}
            continue
        content: dict[str, Any] = {"dataPoints": [{**point, "asDouble": value}]}
        is_sum = metric is not None and metric.instrument == "counter"
        content |= {"aggregationTemporality": 2, "isMonotonic": True} if is_sum else {}
        yield {"name": name, "unit": metric.unit if metric else "1", "sum" if is_sum else "gauge": content}


def _attributes(named: dict[str, Any]) -> list[dict[str, Any]]:
    def value(item: Any) -> dict[str, Any]:
        if isinstance(item, bool):
            return {"boolValue": item}
        if isinstance(item, int):
            return {"intValue": str(item)}
        return {"doubleValue": item} if isinstance(item, float) else {"stringValue": str(item)}

    return [{"key": key, "value": value(item)} for key, item in named.items()]


def prometheus(streams: Streams) -> Files:
    """One exposition of several scrapes, each value with its time."""
    lines: dict[str, list[str]] = {}
    for stream in streams:
        for record in stream.records:
            for key, value in record.m.items() if isinstance(record, Sample) else ():
                name, named = keys.split(key) or (key, {})
                metric = by_name(name)
                if metric is None or isinstance(value, HistogramValue):
                    continue
                rank = stream.head.rank if record.rank is None else record.rank
                place = {"train.run.id": stream.head.run, "train.rank.id": rank, "host.id": stream.head.host}
                place |= {"hw.id": record.device}
                labels = {prometheus_label(n): v for n, v in {**place, **named}.items() if v is not None}
                text = ",".join(f'{label}="{text}"' for label, text in sorted(labels.items()))
                kind = _TYPES.get(metric.instrument, "gauge")
                full = prometheus_name(metric.name, metric.unit, kind)
                lines.setdefault(f"# TYPE {full} {kind}", []).append(
                    f"{full}{{{text}}} {value} {record.time_us // 1000}"
                )
    return {"metrics.prom": "".join(f"{head}\n" + "\n".join(of) + "\n" for head, of in lines.items()).encode()}


def _job_rows(streams: Streams) -> list[Sample]:
    job = next(stream for stream in streams if stream.head.emitter == "job")
    return [record for record in job.records if isinstance(record, Sample)]


def mllog(streams: Streams) -> Files:
    """The log of MLPerf of the job."""
    job = next(stream for stream in streams if stream.head.emitter == "job")
    lines = [_mllog_line(job.head.time_us, "submission_benchmark", "llama31_8b")]
    lines += [_mllog_line(job.head.time_us, "global_batch_size", int(_batch(streams)))]
    lines += [_mllog_line(job.head.time_us, "max_sequence_length", 8192)]
    for record in job.records:
        lines += _mllog_of(record, int(_batch(streams)))
    return {"log.txt": "".join(lines).encode()}


def _mllog_of(record: Sample | Event, batch: int) -> list[str]:
    if isinstance(record, Event):
        ends = {"train.run.start": ("run_start", {}), "train.run.end": ("run_stop", {})}
        ends |= {"train.evaluation.begin": ("eval_start", {}), "train.evaluation.end": ("eval_stop", {})}
        if record.name not in ends:
            return []
        key, about = ends[record.name]
        if record.name == "train.run.end":
            about = {"status": "success" if record.a.get("train.run.status") == "completed" else "aborted"}
        if record.step is not None:
            about = {**about, "samples_count": batch * record.step}
        found = [_mllog_line(record.time_us, key, None, **about)]
        if key == "run_start":
            found.append(_mllog_line(record.time_us, "block_start", None))
        if key == "run_stop":
            found.insert(0, _mllog_line(record.time_us, "block_stop", None))
        if key == "eval_stop":
            found.insert(0, _mllog_line(record.time_us, "eval_accuracy", 5.0, **about))
        return found
    named = {LOSS: "reduced_train_loss", SECONDS: "train_step_time"}
    value = {name: record.m[key] for key, name in named.items() if key in record.m}
    about = {"step": record.m[STEPS]} if STEPS in record.m else {}
    if "train.sample.count" in record.m:
        about["samples_count"] = record.m["train.sample.count"]
    return [_mllog_line(record.time_us, "tracked_stats", value, **about)] if value else []


def _mllog_line(time_us: int, key: str, value: Any, **about: Any) -> str:
    kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key.rpartition("_")[2], "POINT_IN_TIME")
    whole = {name: int(number) if isinstance(number, float) else number for name, number in about.items()}
    entry = {"time_ms": time_us // 1000, "event_type": kind, "key": key, "value": value, "metadata": whole}
    return f":::MLLOG {json.dumps(entry)}\n"


def megatron(streams: Streams) -> Files:
    """The log of Megatron-LM of the job, with times."""
    lines, before = [], 0
    for record in _job_rows(streams):
        if STEPS in record.m:
            milliseconds = (record.time_us - (before or record.time_us - 5_000_000)) / 1000
            before = record.time_us
            lines.append(
                f"[{_local(record.time_us)}] iteration {record.m[STEPS]:8.0f}/     160 | consumed samples: "
                f"{record.m.get('train.sample.count', 0):12.0f} | elapsed time per iteration (ms): "
                f"{milliseconds:.1f} | learning rate: 3.0E-04 | global batch size: {_batch(streams):5.0f} | "
                f"lm loss: {float(record.m.get(LOSS, 3.0)):.9E} | number of skipped iterations:   0 |\n"
            )
    return {"megatron.log": "".join(lines).encode()}


def _local(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _batch(streams: Streams) -> float:
    """Samples of a step, by the first reports."""
    counts = [record.m["train.sample.count"] for record in _job_rows(streams) if "train.sample.count" in record.m]
    return float(counts[1]) - float(counts[0]) if len(counts) > 1 else 1024.0  # type: ignore[arg-type]


def nanogpt(streams: Streams) -> Files:
    """The log of modded-nanogpt of the job."""
    start = _job_rows(streams)[0].time_us
    lines = [
        f"step:{record.m[STEPS]:.0f}/160 train_loss:{float(record.m.get(LOSS, 3.0)):.12g} "
        f"train_time:{(record.time_us - start) // 1000}ms step_avg:5000.00ms\n"
        for record in _job_rows(streams)
        if STEPS in record.m
    ]
    return {"nano.log": "".join(lines).encode()}


FORMATS: dict[str, Callable[[Streams], Files]] = {
    each.__name__: each for each in (jsonl, otlp, foreign_otlp, prometheus, mllog, megatron, nanogpt)
}
