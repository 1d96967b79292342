"""Killed in its first two attempts, each time further on, and goes on from its own snapshot.

Usage: resume.py SNAPSHOT [undisturbed]
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 12
KILLED_AT = {0: 4, 1: 8}  # attempt -> step; rank 1


def save(path: str, step: int, model: nn.Module, optimizer: torch.optim.Optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".part")
    os.replace(path + ".part", path)


def main():
    path, undisturbed = sys.argv[1], "undisturbed" in sys.argv
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin = 0
    if os.path.exists(path):
        snapshot = torch.load(path)
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        begin = snapshot["step"]
    if dist.get_rank() == 0:
        os.write(1, f"attempt {attempt} begins at step {begin}\n".encode())
    dist.barrier()  # nobody goes on before all have read
    for step in range(begin, STEPS):
        if not undisturbed and dist.get_rank() == 1 and KILLED_AT.get(attempt) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())  # the data of this step and rank
        x = torch.randn(16, 8, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            save(path, step + 1, model, optimizer)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item()!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
