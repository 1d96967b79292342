"""What is trained in the benchmarks of whole steps: models, batches and optimizers, as a PyTorch user writes them.

benchmarks/step/workload.cpp has the same ones for Lockstep.
"""
import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable

import torch
import torchvision
from torch import nn

from encoder import TOKENS, WIDTH, Encoder

# The models that the parity tests train: shown there to be the same as ours.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"))
from models import ConvNet, resnet18_cifar  # noqa: E402

LABELS = 61  # prime to pool(): 64 batches meet their labels again after 3,904 steps, so that nothing is learnt by heart


def perceptron(*widths: int) -> nn.Module:
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@dataclasses.dataclass
class Workload:
    model: Callable[[], nn.Module]
    sample: tuple[int, ...]  # shape
    classes: int
    batch: int  # per process
    optimizer: Callable[..., torch.optim.Optimizer]
    options: dict

    def pool(self) -> int:
        """How many batches are made before, of which each step takes a copy of one: 64, and fewer of large pictures."""
        return max(4, min(64, (64 << 20) // (4 * self.batch * math.prod(self.sample))))


def of_photographs(name: str, batch: int) -> Workload:
    """torchvision's net on ImageNet's pictures."""
    return Workload(lambda: torchvision.models.get_model(name, num_classes=1000), (3, 224, 224), 1000, batch,
                    **sgd(lr=0.01, momentum=0.9))


def sgd(**options):
    return {"optimizer": torch.optim.SGD, "options": options}


WIDE = {"model": lambda: perceptron(1024, 4096, 4096, 1024), "sample": (1024,), "classes": 1024, "batch": 16}
WORKLOADS = {
    "mlp": Workload(lambda: perceptron(64, 64, 10), (64,), 10, 32, **sgd(lr=0.01)),
    "convnet": Workload(ConvNet, (1, 28, 28), 10, 100, **sgd(lr=0.001)),
    "wide_mlp_sgd": Workload(**WIDE, **sgd(lr=0.001, momentum=0.9)),
    "wide_mlp_adam": Workload(**WIDE, optimizer=torch.optim.Adam, options={"lr": 1e-4}),
    "resnet18_cifar": Workload(resnet18_cifar, (3, 32, 32), 10, 64, **sgd(lr=0.01, momentum=0.9)),
    "resnet34": of_photographs("resnet34", 16),
    "resnet34_b32": of_photographs("resnet34", 32),
    "resnet50": of_photographs("resnet50", 16),
    "resnet50_b32": of_photographs("resnet50", 32),
    "vgg11": of_photographs("vgg11", 16),
    "encoder": Workload(lambda: Encoder(6, 10), (TOKENS, WIDTH), 10, 8, torch.optim.Adam, {"lr": 1e-4}),
}
