"""MNIST on DistributedDataParallel, as PyTorch's tutorials have it: torchrun --nproc-per-node 2 mnist_tutorial.py.

Rank 0 prints a line "mark NAME SECONDS" (of the monotonic clock) at each place that the benchmarks ask for.
"""
import time

STARTED = time.monotonic()

import argparse  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torchvision  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.make_layer(1, 16)
        self.layer2 = self.make_layer(16, 32)
        self.fc = nn.Linear(7 * 7 * 32, 10)

    @staticmethod
    def make_layer(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
                             nn.MaxPool2d(2))

    def forward(self, images):
        return self.fc(self.layer2(self.layer1(images)).flatten(1))


def mark(name: str, when: float | None = None):
    if dist.get_rank() == 0:
        print("mark", name, time.monotonic() if when is None else when, flush=True)


def make_loader(path: str, train: bool, batch_size: int) -> DataLoader:
    data = torchvision.datasets.MNIST(path, train=train, transform=torchvision.transforms.ToTensor())
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data, shuffle=train))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    """The share of right answers, of all ranks."""
    model.eval()
    counts = torch.zeros(2)
    for images, labels in loader:
        counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder that torchvision's MNIST takes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100, help="per process")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--one-step", action="store_true", help="end after the first step")
    arguments = parser.parse_args()
    imported = time.monotonic()

    dist.init_process_group("gloo")
    mark("python", STARTED)
    mark("imports", imported)
    mark("process group")
    torch.manual_seed(0)
    run(arguments)
    gc.collect()  # a process group that ends before the model that uses it waits for ever, now and then
    dist.destroy_process_group()


def run(arguments: argparse.Namespace):
    train_loader = make_loader(arguments.data, True, arguments.batch_size)
    test_loader = make_loader(arguments.data, False, arguments.batch_size)
    mark("data")
    model = DistributedDataParallel(ConvNet())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
    mark("model")
    for epoch in range(arguments.epochs):
        train_loader.sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(train_loader):
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 0 and number == 0:
                mark("first step")
                if arguments.one_step:
                    os._exit(0)  # all is measured, and a process group may wait for ever when it ends
            if (number + 1) % 100 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch + 1}/{arguments.epochs} step {number + 1} loss {loss.item():.4f}", flush=True)
        mark("epoch")
        accuracy = evaluate(model, test_loader)
        if dist.get_rank() == 0:
            print("accuracy", accuracy, flush=True)
        mark("evaluation")


if __name__ == "__main__":
    main()
