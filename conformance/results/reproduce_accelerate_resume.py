"""Shows, without the suite, that a loop with dropout resumes inexactly after load_state."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed

NUM_STEPS, SAVED_AT = 6, 3


def losses(directory: str, dropout: float, *, resume: bool) -> list[float]:
    """Losses of the steps, from the beginning or from the saved state; one process, one epoch."""
    set_seed(7)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(dropout), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if resume:
        accelerator.load_state(directory)
    loader.set_epoch(0)
    found = []
    for (batch,) in accelerator.skip_first_batches(loader, SAVED_AT) if resume else loader:
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
        if len(found) == SAVED_AT and not resume:
            accelerator.save_state(directory)
        if len(found) == (NUM_STEPS - SAVED_AT if resume else NUM_STEPS):
            break
    return found


def main() -> None:
    """Compare with and without dropout."""
    for dropout in (0.0, 0.1):
        with TemporaryDirectory() as directory:
            whole = losses(directory, dropout, resume=False)[SAVED_AT:]
            resumed = losses(directory, dropout, resume=True)
        print(f"dropout {dropout}: uninterrupted {whole}, resumed {resumed}, equal: {whole == resumed}")  # noqa: T201


if __name__ == "__main__":
    main()
