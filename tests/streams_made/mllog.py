"""Makes and takes apart logs in the MLPerf text format: a marker and one JSON object in a line."""

from __future__ import annotations

import json
import random
from typing import Any

MARKER = ":::MLLOG "
Entry = dict[str, Any]
POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
START_MS = 1_772_000_000_000
NUM_RANKS = 64
SEQUENCES = 1152
NUM_STEPS = 180
EVALUATION_INTERVAL = 60
SETTINGS: dict[str, Any] = {
    "submission_benchmark": "llama31_405b",
    "submission_org": "Example",
    "submission_division": "closed",
    "submission_status": "onprem",
    "submission_platform": "8xExample",
    "seed": 1234,
    "global_batch_size": SEQUENCES,
    "gradient_accumulation_steps": 144,
    "max_sequence_length": 8192,
    "eval_samples": 5760,
    "train_samples": 1574207408,
    "init_checkpoint_step": 0,
    "opt_name": "adamw",
    "opt_base_learning_rate": 8e-05,
    "opt_adamw_beta_1": 0.9,
    "opt_adamw_beta_2": 0.95,
    "opt_adamw_epsilon": 1e-05,
    "opt_adamw_weight_decay": 0.1,
    "opt_gradient_clip_norm": 1.0,
    "opt_end_learning_rate": 8e-07,
    "opt_learning_rate_warmup_steps": 8000,
    "opt_learning_rate_decay_steps": 1192000,
    "max_steps": 600,
    "opt_learning_rate_decay_schedule": "cosine with linear warmup",
    "target_accuracy": 5.6,
    "tensor_parallel_degree": 8,
}


def entries(text: str) -> list[Entry]:
    """The objects of all marked lines; other lines have none."""
    return [json.loads(line.split(MARKER, 1)[1]) for line in text.splitlines() if MARKER in line]


def text_of(log: list[Entry]) -> str:
    """The log as text."""
    return "".join(f"{MARKER}{json.dumps(entry)}\n" for entry in log)


def make_log(seed: int = 1) -> list[Entry]:
    """A log of one run that keeps the format and the rules of its benchmark."""
    return _Log(seed).write()


class _Log:
    """Writes one log."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(f"{seed}/mllog")
        self.now = float(START_MS)
        self.log: list[Entry] = []

    def _say(self, event: str, key: str, value: Any = None, **metadata: Any) -> None:
        self.log.append(
            {
                "namespace": "",
                "time_ms": round(self.now),
                "event_type": event,
                "key": key,
                "value": value,
                "metadata": {"file": "train.py", "lineno": 100 + len(key), **metadata},
            }
        )

    def write(self) -> list[Entry]:
        for _ in range(NUM_RANKS):
            self.now += self.source.random()
            self._say(POINT, "cache_clear", True)
        for _ in range(NUM_RANKS):
            self.now += self.source.random()
            self._say(START, "init_start")
        for key, value in SETTINGS.items():
            self._say(POINT, key, value)
        self.now += 240_000
        self._say(END, "init_stop")
        self._say(START, "run_start")
        for first in range(0, NUM_STEPS, EVALUATION_INTERVAL):
            self._block(first)
        last = NUM_STEPS * SEQUENCES
        self._say(END, "run_stop", step=NUM_STEPS, samples_count=last, status="success")
        return self.log

    def _block(self, first: int) -> None:
        length = EVALUATION_INTERVAL * SEQUENCES
        self._say(START, "block_start", samples_count=length, step=first)
        for step in range(first, first + EVALUATION_INTERVAL):
            seconds = (11.0 if step == 0 else 4.0) * self.source.uniform(0.98, 1.02)
            self.now += seconds * 1000
            loss = 7.9 - 2.4 * (step / NUM_STEPS) ** 0.5 + self.source.gauss(0, 0.02)
            stats = {"train_step_time": seconds, "reduced_train_loss": loss}
            self._say(POINT, "tracked_stats", stats, step=float(step), samples_count=float((step + 1) * SEQUENCES))
        done = (first + EVALUATION_INTERVAL) * SEQUENCES
        place = {"samples_count": done, "step": first + EVALUATION_INTERVAL}
        self._say(END, "block_stop", **place)
        self._say(START, "eval_start", **place)
        self.now += 9_000
        self._say(POINT, "eval_accuracy", 5.4 + 1.2 * (1 - done / (NUM_STEPS * SEQUENCES)), samples_count=done)
        self._say(END, "eval_stop", **place)
