"""Small files of the same form as those of other programs, for the tests of readers and for the fuzzer."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.system.crc32c import crc32c, masked


def trainer_state(entries: Iterable[Mapping[str, Any]], **around: Any) -> str:
    """A `trainer_state.json`, as the Hugging Face Trainer writes it."""
    entries = list(entries)
    steps = (entry.get("step") if isinstance(entry, dict) else None for entry in entries)
    step = max((step for step in steps if isinstance(step, int)), default=40)
    state = {"best_metric": None, "epoch": 1.0, "global_step": max(step, 40), "log_history": entries, "max_steps": 40}
    return json.dumps(state | around, indent=2, sort_keys=True) + "\n"


def trainer_entries(*steps: int) -> list[dict[str, Any]]:
    """The entries of some optimizer steps."""
    return [
        {"epoch": step / 40, "grad_norm": 1 + step / 1000, "learning_rate": 1e-4, "loss": 3 - step / 100, "step": step}
        for step in steps
    ]


def frame(content: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked(crc32c(length))) + content + struct.pack("<I", masked(crc32c(content)))


def field(number: int, value: int | float | bytes) -> bytes:
    """A field of a message: a whole number, a double, or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def single(number: int, value: float) -> bytes:
    """A field of a message that holds a float of 32 bits."""
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def event(seconds: float, step: int, *values: bytes) -> bytes:
    """An event with values of a summary."""
    return field(1, seconds) + (field(2, step) if step else b"") + field(5, b"".join(field(1, each) for each in values))


def scalar(tag: str, value: float) -> bytes:
    """A value of a summary, as PyTorch writes it."""
    return field(1, tag.encode()) + single(2, value)


VERSION = field(1, 1.7e9) + field(3, b"brain.Event:2")
"""The first event of each file."""


def event_file(*events: bytes) -> bytes:
    """An event file of TensorBoard."""
    return b"".join(map(frame, (VERSION, *events)))


def trainer_events(*steps: int) -> bytes:
    """The event file that the Hugging Face Trainer writes of some optimizer steps."""
    found = []
    for step in steps:
        values = {"train/loss": 3 - step / 100, "train/learning_rate": 1e-4, "train/epoch": step / 40}
        found += [event(1.7e9 + step + at / 100, step, scalar(*each)) for at, each in enumerate(values.items())]
    return event_file(*found)


def deepspeed_lines(*steps: int, minute: int = 0) -> str:
    """The lines that DeepSpeed and its timer print of some steps, of which 2 were skipped."""
    found = []
    for step in steps:
        begin = f"[2024-05-31 12:{minute:02d}:{step:02d},500] [INFO]"
        found.append(
            f"{begin} [logging.py:96:log_dist] [Rank 0] step={step}, skipped=2, lr=[0.001, 0.001], mom=[(0.9, 0.95)]"
        )
        rates = "RunningAvgSamplesPerSec=25.25, CurrSamplesPerSec=25.5, MemAllocated=4.32GB"
        found.append(f"{begin} [timer.py:260:stop] epoch=0/micro_step={4 * step}/global_step={step}, {rates}")
    return "\n".join([*found, ""])


DEEPSPEED = deepspeed_lines(10, 20, 30)
MAXTEXT = "".join(
    f"completed step: {step}, seconds: {seconds}, TFLOP/s/device: 100.0, Tokens/s/device: 1000.0, loss: {loss}\n"
    for step, seconds, loss in ((0, 44.5, 12.25), (1, 0.5, 12.25), (2, 5.5, 11.5), (3, 2.5, 11.25))
)
NEMO = "".join(
    f"Epoch 0: :   7%|7  | {step + 1}/700 [00:{step}<06:00, v_num=3, reduced_train_loss={loss}, global_step={step}.00, "
    f"consumed_samples={step * 64}.0, train_step_timing in s=2.500]\n"
    for step, loss in ((48, 7.5), (49, 7.25), (50, 7.125))
)


def files() -> dict[str, bytes]:
    """One small file of each format, by a name that such files have."""
    evaluated = {"epoch": 0.5, "eval_loss": 2.5, "eval_runtime": 3.5, "step": 20}
    return {
        "trainer_state.json": trainer_state([*trainer_entries(10, 20), evaluated, *trainer_entries(30, 40)]).encode(),
        "events.out.tfevents.1700000000.host.1.0": trainer_events(10, 20, 30),
        "metrics.csv": b"epoch,step,train_loss,val_loss\n0,9,2.5,\n0,19,2.25,\n0,19,,3.5\n",
        "history.csv": b"_step,_timestamp,train/global_step,train/loss\n0,1.7e9,10,2.5\n1,1700000005,20,2.25\n",
        "history.jsonl": b'{"_step": 0, "_timestamp": 1700000000.5, "train/epoch": 0.5, "train/loss": 2.5}\n' * 2,
        "deepspeed.log": DEEPSPEED.encode(),
        "maxtext.log": MAXTEXT.encode(),
        "nemo.log": NEMO.encode(),
        "loss": b"1700000000000 2.5 10\n1700000001000 2.25 20\n",
    }
