"""A small Llama is trained by torchtitan: OUT STEPS MODE. It wants an accelerator; what it asks of one is put here."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
import torch.distributed as dist
import torch.distributed.tensor._random
from torch.distributed.fsdp import FSDPModule

OUT, NUM_STEPS, MODE = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
MEMORY = 2**33


def pretend() -> None:
    """Let torchtitan take the processor for its device."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment] # TensorBoard loads it where it is installed
    torch._utils._get_available_device_type = lambda: "cpu"
    device = SimpleNamespace(total_memory=MEMORY, name="CPU", multi_processor_count=2)
    answers = {
        "get_device_name": lambda *_: "CPU",
        "get_device_properties": lambda *_: device,
        "reset_peak_memory_stats": lambda *_: None,
        "memory_stats": lambda *_: {},
        "empty_cache": lambda: None,
        "manual_seed_all": torch.manual_seed,
    }
    for name, answer in answers.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, answer)
    torch.distributed.tensor._random.manual_seed = lambda seed, mesh=None: torch.manual_seed(seed)
    divide, barrier = FSDPModule.set_gradient_divide_factor, dist.barrier

    def set_gradient_divide_factor(module: Any, factor: float) -> None:
        divide(module, factor)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no sum that scales

    FSDPModule.set_gradient_divide_factor = set_gradient_divide_factor
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)


def write_assets() -> None:
    """A text and a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    random.seed(0)
    words = ["".join(random.choices("abcdefghij", k=5)) for _ in range(200)]
    texts = [" ".join(random.choices(words, k=300)) for _ in range(100)]
    folder = OUT / "tests" / "assets"
    (folder / "c4_test").mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "c4_test" / "data.json").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    ends = dict(zip(("bos_token", "eos_token"), special, strict=True))
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(ends))


def main() -> None:
    if os.environ["RANK"] == "0" and not (OUT / "tests").exists():
        write_assets()
    os.chdir(OUT)
    pretend()
    sys.argv[1:] = [
        *("--model.name=llama3", "--model.flavor=debugmodel", "--model.hf_assets_path=tests/assets/tokenizer"),
        *("--training.local_batch_size=2", "--training.global_batch_size=8", "--training.seq_len=32"),
        *(f"--training.steps={NUM_STEPS}", "--training.dataset=c4_test", "--job.dump_folder=dump"),
        *("--metrics.log_freq=1", "--activation_checkpoint.mode=none", "--lr_scheduler.warmup_steps=2"),
        *("--checkpoint.enable", "--checkpoint.interval=3", "--checkpoint.no-last-save-model-only"),
        *("--comm.init_timeout_seconds=60", "--comm.train_timeout_seconds=60", f"--checkpoint.async_mode={MODE}"),
    ]
    from torchtitan.components.metrics import BaseLogger

    from trainspec_record.adapters.torchtitan import main as train

    truth: list[dict[str, float]] = []
    told = BaseLogger.log
    BaseLogger.log = lambda self, found, step: (truth.append({**found, "step": step}), told(self, found, step))[1]
    train()
    if os.environ["RANK"] == "0":
        Path("truth.json").write_text(json.dumps({"logs": truth}))


if __name__ == "__main__":
    main()
