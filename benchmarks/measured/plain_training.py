"""Measures a plain training loop of PyTorch around models of transformers on one GPU: step time and memory.

Run with `python benchmarks/measured/plain_training.py llama-1.3b`, one run in one process. Weights and tokens are
random; nothing is compiled, AdamW is the default (foreach), attention is SDPA. `published/plain_training.csv` and the
rows `plain_pytorch` of `published/training_runs.csv` have what it printed on one NVIDIA H200 (16 cores of an Intel Xeon
of a virtual machine, driver 580.159.04) with Python 3.12.3, torch 2.11.0+cu130 and transformers 5.17.0 on 2026-11-29.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

NUM_STEPS, NUM_WARM_STEPS = 15, 5


@dataclass(frozen=True, slots=True)
class Job:
    """Shape, batch and precision of one run; a model without a feed-forward width is a GPT-2 with one of 4 h."""

    num_layers: int
    hidden_size: int
    num_heads: int
    vocabulary_size: int
    sequence_length: int
    micro_sequences: int
    ffn_hidden_size: int | None = None
    autocast: bool = True
    """Weights of fp32 under autocast to bf16; otherwise weights, gradients and moments of bf16."""


GPT2 = Job(24, 1024, 16, 50257, 1024, 16)
LLAMA_1B = Job(24, 2048, 16, 32000, 2048, 8, 5504)
JOBS = {
    "gpt2-350m": (GPT2, False),
    "gpt2-350m-checkpointed": (GPT2, True),
    "llama-1.3b": (LLAMA_1B, False),
    "llama-1.3b-checkpointed": (LLAMA_1B, True),
    "llama-7b": (Job(32, 4096, 32, 32000, 4096, 1, 11008, autocast=False), False),
    "llama-7b-checkpointed": (Job(32, 4096, 32, 32000, 4096, 2, 11008, autocast=False), True),
}
"""Runs by name, and whether each layer is checkpointed."""


def model_of(job: Job, torch: Any) -> Any:
    """The model of a job on the GPU, with random weights."""
    import transformers  # noqa: PLC0415

    if job.ffn_hidden_size is None:
        gpt2 = transformers.GPT2Config(
            vocab_size=job.vocabulary_size,
            n_positions=job.sequence_length,
            n_embd=job.hidden_size,
            n_layer=job.num_layers,
            n_head=job.num_heads,
        )
        config, make = gpt2, transformers.GPT2LMHeadModel
    else:
        llama = transformers.LlamaConfig(
            vocab_size=job.vocabulary_size,
            hidden_size=job.hidden_size,
            intermediate_size=job.ffn_hidden_size,
            num_hidden_layers=job.num_layers,
            num_attention_heads=job.num_heads,
            num_key_value_heads=job.num_heads,
            max_position_embeddings=job.sequence_length,
        )
        config, make = llama, transformers.LlamaForCausalLM
    config.use_cache = False
    torch.set_default_dtype(torch.float32 if job.autocast else torch.bfloat16)
    with torch.device("cuda"):
        model = make(config)
    torch.set_default_dtype(torch.float32)
    return model.train()


def steps(job: Job, model: Any, torch: Any) -> list[float]:
    """Seconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(NUM_STEPS):
        tokens = torch.randint(0, job.vocabulary_size, (job.micro_sequences, job.sequence_length), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=job.autocast):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Print what one run took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=JOBS)
    name = parser.parse_args().name
    job, checkpointed = JOBS[name]
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    model = model_of(job, torch)
    if checkpointed:
        model.gradient_checkpointing_enable()
    taken = steps(job, model, torch)[NUM_WARM_STEPS:]
    free, total = torch.cuda.mem_get_info()
    found = {
        "name": name,
        "step_seconds": median(taken),
        "least_seconds": min(taken),
        "most_seconds": max(taken),
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": total - free,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
