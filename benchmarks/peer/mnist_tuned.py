"""MNIST on DistributedDataParallel, tuned by somebody who knows PyTorch well: torchrun --nproc-per-node 2 mnist_tuned.py.

Pixels are tensors in memory, a batch is one index_select; fused optimizer, one bucket, static graph, flushed denormals;
channels-last, bf16 by autocast and torch.compile when asked for. No torchvision, whose import takes a second, and no garbage collection meanwhile.
Run it with tcmalloc.

Rank 0 prints a line "mark NAME SECONDS" (of the monotonic clock) at each place that the benchmarks ask for.
"""
import time

STARTED = time.monotonic()

import gc  # noqa: E402
import os  # noqa: E402

gc.disable()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import pathlib  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

TEST_BATCH = 500


def make_model() -> nn.Module:
    def layer(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, kernel_size=5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*layer(1, 16), *layer(16, 32), nn.Flatten(), nn.Linear(7 * 7 * 32, 10))


def mark(name: str, when: float | None = None):
    if dist.get_rank() == 0:
        print("mark", name, time.monotonic() if when is None else when, flush=True)


class Pictures:
    """A set of MNIST as two tensors."""

    def __init__(self, path: pathlib.Path, kind: str, memory_format: torch.memory_format):
        def read(name: str, header: int):
            content = bytearray((path / "MNIST" / "raw" / name).read_bytes())
            return torch.frombuffer(content, dtype=torch.uint8, offset=header)

        self.memory_format = memory_format
        self.pixels = read(f"{kind}-images-idx3-ubyte", 16).view(-1, 1, 28, 28)
        self.labels = read(f"{kind}-labels-idx1-ubyte", 8).long()

    def batch(self, indices: torch.Tensor):
        return self.pixels[indices].to(torch.float32, memory_format=self.memory_format).div_(255), self.labels[indices]


def order(size: int, epoch: int) -> torch.Tensor:
    """This rank's part of the epoch's permutation, as DistributedSampler deals it."""
    whole = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))
    return whole[dist.get_rank()::dist.get_world_size()]


@torch.no_grad()
def evaluate(model: nn.Module, pictures: Pictures, autocast) -> float:
    model.eval()
    counts = torch.zeros(2)
    mine = torch.arange(dist.get_rank(), len(pictures.labels), dist.get_world_size())
    for indices in mine.split(TEST_BATCH):
        images, labels = pictures.batch(indices)
        with autocast():
            counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder that torchvision's MNIST takes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100, help="per process")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--one-step", action="store_true", help="end after the first step")
    arguments = parser.parse_args()
    imported = time.monotonic()
    gc.enable()
    gc.freeze()

    torch.set_flush_denormal(True)
    dist.init_process_group("gloo")
    mark("python", STARTED)
    mark("imports", imported)
    mark("process group")
    torch.manual_seed(0)
    run(arguments)
    gc.collect()  # a process group that ends before the model that uses it waits for ever, now and then
    dist.destroy_process_group()


def run(arguments: argparse.Namespace):
    memory_format = torch.channels_last if arguments.channels_last else torch.contiguous_format
    train = Pictures(arguments.data, "train", memory_format)
    test = Pictures(arguments.data, "t10k", memory_format) if not arguments.one_step else None
    mark("data")
    plain = make_model()
    for parameter in plain.parameters():
        if parameter.dim() == 4:  # also where there is one channel, for which Module.to() changes no strides
            parameter.data = parameter.data.to("cpu", copy=True, memory_format=memory_format)
    model = DistributedDataParallel(plain, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, fused=True)
    forward = torch.compile(model) if arguments.compile else model
    autocast = (lambda: torch.autocast("cpu", torch.bfloat16)) if arguments.bf16 else contextlib.nullcontext
    mark("model")
    for epoch in range(arguments.epochs):
        for number, indices in enumerate(order(len(train.labels), epoch).split(arguments.batch_size)):
            images, labels = train.batch(indices)
            with autocast():
                loss = F.cross_entropy(forward(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 0 and number == 0:
                mark("first step")
                if arguments.one_step:
                    os._exit(0)  # all is measured, and a process group may wait for ever when it ends
        mark("epoch")
        accuracy = evaluate(plain, test, autocast)
        if dist.get_rank() == 0:
            print("accuracy", accuracy, flush=True)
        mark("evaluation")


if __name__ == "__main__":
    main()
