"""A small GPT-2 is trained by the Trainer of Transformers: OUT MODE."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import trainspec_record
from trainspec_record.adapters.transformers import TrainspecCallback

OUT, MODE = Path(sys.argv[1]), sys.argv[2]
NUM_SAMPLES, TOKENS, BATCH, ACCUMULATED = 48, 16, 4, 2


class Truth(TrainerCallback):
    """What the Trainer tells."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if MODE == "fail" and state.global_step == 3:
            raise ValueError("by the test")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self.logs.append({**logs, "step": state.global_step})


def main() -> None:
    set_seed(0)
    sizes = {"vocab_size": 32, "n_positions": TOKENS, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, 32, (NUM_SAMPLES, TOKENS))
    data = [{"input_ids": row, "labels": row} for row in ids]
    arguments = TrainingArguments(
        output_dir=str(OUT / "saves"),
        num_train_epochs=3 if MODE == "resume" else 2,
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        learning_rate=1e-3,
        logging_steps=5 if MODE == "rarely" else 1,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        eval_strategy="epoch" if MODE == "epochs" else "steps",
        eval_steps=3,
    )
    truth = Truth()

    def train(callback: TrainspecCallback) -> Trainer:
        trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[callback, truth])
        trainer.train(resume_from_checkpoint=str(OUT / "saves" / "checkpoint-8") if MODE == "resume" else None)
        return trainer

    if MODE == "fail":
        with trainspec_record.run() as run:
            train(TrainspecCallback(run))
    trainer = train(TrainspecCallback())
    if trainer.is_world_process_zero():
        (OUT / "truth.json").write_text(json.dumps({"logs": truth.logs, "steps": trainer.state.global_step}))


if __name__ == "__main__":
    main()
