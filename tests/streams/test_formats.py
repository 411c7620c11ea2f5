"""Which format a file is in is told by its first bytes, never by its name, and in bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.streams_made.foreign_logs import trainer_events
from trainspec_validate.telemetry.formats import FORMATS, HEAD_BYTES, detect

STARTS = {
    "metric-stream": b'{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream"}\n',
    "parquet": b"PAR1\x15\x04",
    "otlp": b'{\n  "resourceMetrics": [\n',
    "prometheus": b"# HELP up Whether it is up.\n# TYPE up gauge\nup 1\n",
    "mllog": b'0: :::MLLOG {"key": "init_start", "time_ms": 1}\n',
    "torchtitan": b'{"rank": 0, "log_type_name": "step_start", "time_us": 1, "seq_id": 0}\n',
    "trainer-state": b'{"global_step": 5, "log_history": [{"loss": 2.5, "step": 5}]}\n',
    "llamafactory": b'{"current_steps": 5, "total_steps": 90, "loss": 2.5, "lr": 1e-05, "elapsed_time": "0:00:24"}\n',
    "tensorboard": trainer_events(1),
    "lightning-csv": b"epoch,step,train_loss\n0,49,2.5\n",
    "epoch-csv": b"epoch,train_loss,eval_loss,eval_top1,lr\n0,6.85,6.64,0.87,0.05\n",
    "wandb-history": b'{"_step": 0, "_timestamp": 1700000000.5, "loss": 2.5}\n',
    "swift-log": b'{"loss": 2.5, "learning_rate": 1e-05, "epoch": 0.1, "global_step/max_steps": "1/90"}\n',
    "json-rows": b'{"step": 1, "loss": 2.5, "lr": 1e-05}\n{"step": 2, "loss": 2.4, "lr": 1e-05}\n',
    "wandb-panel": b'"Step","brisk-1 - loss","brisk-1 - loss__MIN","brisk-1 - loss__MAX"\n"0","2.5","2.5","2.5"\n',
    "mlflow-metric": b"1700000000000 2.5 10\n",
    "deepspeed-pipeline-log": b"starting\nsteps: 5 loss: 2.5000 iter time (s): 0.500 samples/sec: 16.000\n",
    "deepspeed-log": b"[2024-05-31 12:00:10,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=5, skipped=0, lr=[]\n",
    "torchtitan-log": b"\x1b[0m[rank0]:[titan] 2025-06-04 08:51:48,074 - root - INFO - "
    b"\x1b[31mstep:  1  \x1b[32mloss: 12.25  memory: 27.34GiB(28.78%)  tps: 375\x1b[39m\n",
    "maxtext-log": b"config\ncompleted step: 0, seconds: 2.5, loss: 3.5\n",
    "nemo-log": b"Epoch 0: : 7%| 5/70 [00:10<00:30, v_num=, reduced_train_loss=7.5, global_step=4.0]\n",
    "megatron-log": b"starting\n [default7]: iteration       10/     100 | consumed samples:   640 |\n",
    "dlrover-events": b'[2025-04-21T23:31:09.074419] [426] [22b7ca89] [Trainer] [#step] [BEGIN] {"global_step": 1}\n',
    "nanogpt-log": b"import torch\nstep:0/6200 val_loss:10.9 train_time:285ms step_avg:nanms\n",
    "nanogpt-iterations-log": b"step 0: train loss 10.9, val loss 10.9\niter 0: loss 10.8, time 250.00ms\n",
    "build-nanogpt-log": b"validation loss: 10.9522\nstep     0 | loss: 10.955010 | lr 8.3916e-07 | norm: 15.3421 | "
    b"dt: 23547.83ms | tok/sec: 22264.81\n",
    "build-nanogpt-file": b"0 val 10.9522\n0 hella 0.2487\n0 train 10.955010\n",
    "llmc-log": b"s:0 tel:11.0095\ns:0 trl:11.0116 lr:0.000001 norm:14.96\n",
    "llmc-console-log": b"val loss 11.006021\nstep    1/21479 | loss 11.007906 (+nanz)| norm 16.3235 (+nanz)| "
    b"lr 2.86e-06 | 2734.72 ms | -100.0% bf16 MFU | 167751 tok/s\n",
    "olmo-log": b"2025-12-11 00:27:01.586\thost-02:0\tolmo.train:979\tINFO\t[step=1/2500,epoch=0]\n"
    b"    train/CrossEntropyLoss=11.33\n",
    "composer-log": b"Starting training...\n[batch=1/100]:\n\t Train loss/train/total: 10.9736\n",
    "fairseq-log": b"2020-07-17 07:11:02 | INFO | train_inner | epoch 001:   2800 / 160368 loss=9.255, ppl=611.12, "
    b"num_updates=2800, lr=2.8e-05, gnorm=3.23, wall=1236\n",
    "trainer-log": b"{'loss': 2.0905, 'grad_norm': 1.95, 'learning_rate': 0.0005, 'epoch': 0.44}\n",
    "kernel-log": b"[    1.5] pci 0000:05:00.0: BAR\n[    9.5] NVRM: Xid (PCI:0000:05:00): 79, GPU fallen off\n",
    "nvidia-smi-text": b"\n==============NVSMI LOG==============\n\nTimestamp      : Thu Nov 26 12:00:00 2026\n"
    b"GPU 00000000:0A:00.0\n    GPU UUID       : GPU-a\n    Utilization\n        Gpu        : 97 %\n",
    "nvidia-smi-xml": b'<?xml version="1.0" ?>\n<nvidia_smi_log>\n\t<timestamp>Thu Nov 26 12:00:00 2026</timestamp>\n'
    b'\t<gpu id="00000000:0A:00.0"><utilization><gpu_util>97 %</gpu_util></utilization></gpu>\n</nvidia_smi_log>\n',
    "slurm-accounting": b"JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n7|train|gpu|ml|8|FAILED|1:0\n",
    "kubernetes-list": (
        b'{"kind": "PodList", "items": [{"kind": "Pod", "metadata": {"name": "train-0"}, "status": {"phase": "Failed", '
        b'"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:01:00Z"}}}]}}]}\n'
    ),
    "crash-log": b"loading torch\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'lr'\n",
    "alibaba-minibatch": b",worker,gpu,time,batch_time_norm\n0,0,25,1,476\n",
}


def test_every_format_has_a_start() -> None:
    assert set(STARTS) == set(FORMATS)


@pytest.mark.parametrize("name", STARTS)
def test_the_start_of_a_file_tells_its_format(name: str) -> None:
    assert [entry.name for entry in FORMATS.values() if entry.looks_like(STARTS[name])] == [name]
    assert detect(STARTS[name]) is FORMATS[name]
    if not FORMATS[name].is_binary:
        assert detect(b"\xef\xbb\xbf" + STARTS[name]) is FORMATS[name]


@pytest.mark.parametrize(
    "start",
    [
        *(b"", b"\n\n", b"{}", b"[1, 2]", b"{", b"PAR", b"1 8.29\n2 7.7\n", b"apiVersion: trainspec/v1\n"),
        *(b"time,loss\n1,2\n", b'{"apiVersion": "trainspec/v1", "kind": "TrainingPlan"}', b"iteration 5 of 10 |"),
        *(b'{"kind": "head"}', b'text\n{"k": "head"}\n', b"node-1:101:140 [0] NCCL INFO NET/IB : No device found.\n"),
    ],
)
def test_what_is_no_stream_has_no_format(start: bytes) -> None:
    assert detect(start) is None


@examples(300)
@given(st.binary(max_size=400) | st.sampled_from(list(STARTS.values())).flatmap(lambda b: st.just(b[: len(b) // 2])))
def test_any_bytes_are_judged(start: bytes) -> None:
    found = detect(start)
    assert found is None or found.name in FORMATS


@pytest.mark.parametrize("piece", [b"a", b"{", b'"k": ', b"# TYPE", b"[", b"iteration 1/ 1 ", b"a{", b'{"k":\n', b" "])
def test_long_runs_are_judged_in_linear_time(piece: bytes) -> None:
    """A quadratic search over 64 KiB would take minutes, for each of the formats."""
    for entry in FORMATS.values():
        assert entry.looks_like((piece * HEAD_BYTES)[:HEAD_BYTES]) in {True, False}


def test_only_the_start_counts() -> None:
    assert detect(b"x" * HEAD_BYTES + b"\n" + STARTS["mllog"]) is None


@pytest.mark.parametrize("entry", FORMATS.values(), ids=list(FORMATS))
def test_a_format_says_what_it_can_tell(entry: object) -> None:
    from trainspec_validate.model.metrics import events, metrics
    from trainspec_validate.telemetry.formats.format import StreamFormat

    assert isinstance(entry, StreamFormat)
    assert (entry.metrics or frozenset()) <= metrics().keys()
    assert (entry.events or frozenset()) <= events().keys()
    assert entry.clock in {"utc", "local", "relative", "none"}
    assert entry.name in {"otlp", "mllog"} or entry.ordered
    assert entry.snapshot == (entry.name == "prometheus")
    assert entry.sequenced == (entry.name in {"metric-stream", "parquet", "torchtitan"})
