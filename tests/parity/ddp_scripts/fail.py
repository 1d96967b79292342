"""Rank 1 raises at step 3, in the middle of what its peer waits for. Usage: fail.py [record]"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    for step in range(10):
        loss = model(torch.randn(4, 8)).square().mean()
        if step == 3 and dist.get_rank() == 1:
            raise ValueError("the loss of rank 1 is no number")
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    record(main)() if "record" in sys.argv else main()
