"""Rank 1 never comes to step 3: its peer waits in the all-reduce, as long as Gloo's half hour lasts."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(8, 1))
    for step in range(10):
        if step == 3:
            os.write(1, f"rank {dist.get_rank()} is at step 3\n".encode())
            if dist.get_rank() == 1:
                time.sleep(100_000)
        model(torch.randn(4, 8)).square().mean().backward()


if __name__ == "__main__":
    main()
