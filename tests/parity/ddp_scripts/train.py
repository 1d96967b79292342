"""Data-parallel training as in PyTorch's tutorial: environment variables, Gloo, DistributedSampler."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_dataset():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(make_dataset(), seed=7)
    loader = DataLoader(make_dataset(), batch_size=16, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print(f"final loss {loss.item()!r} of {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
