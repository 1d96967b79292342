"""Goes on from its own snapshot, whatever has ended it.

Usage: resume.py SNAPSHOT [HOW [STEPS]]

HOW is what the last rank kills at step 4 of the first attempt, at step 8 of the second, ...: "worker" itself, "agent"
its launcher, "node" that and all of its workers; with "host" rank 0 kills its launcher; "worker,worker" unless it is
given. With "wait" a rank that is alone waits at step 4 until it is ended; with "undisturbed" nothing happens.
"""
import contextlib
import glob
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path: str, step: int, model: nn.Module, optimizer: torch.optim.Optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".part")
    os.replace(path + ".part", path)


def disturb(what: str):
    """Does not return."""
    launcher = os.getppid()
    killed = [os.getpid()] if what == "worker" else [launcher]
    if what == "node":
        for children in glob.glob(f"/proc/{launcher}/task/*/children"):
            killed += map(int, pathlib.Path(children).read_text().split())
    for process in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    time.sleep(1000)


def disturbs(what: str) -> bool:
    """Whether it is this rank that does."""
    return dist.get_rank() == (0 if what == "host" else dist.get_world_size() - 1)


def main():
    path = sys.argv[1]
    how = sys.argv[2] if len(sys.argv) > 2 else "worker,worker"
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    disturbances = [] if how in ("undisturbed", "wait") else how.split(",")  # by attempt
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
    for step in range(begin, steps):
        if how == "wait" and dist.get_world_size() == 1 and step == 4:
            os.write(1, b"waits at step 4\n")
            time.sleep(1000)
        if attempt < len(disturbances) and step == 4 * (attempt + 1) and disturbs(disturbances[attempt]):
            while torch.load(path)["step"] < step:  # rank 0 may be about to write it, and cannot get further
                time.sleep(0.01)
            disturb(disturbances[attempt])
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
