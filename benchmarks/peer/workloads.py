"""What is trained in the benchmarks of whole steps: models, batches and optimizers, as a PyTorch user writes them.

benchmarks/step/workload.cpp has the same ones for Lockstep.
"""
import dataclasses
import pathlib
import sys
from collections.abc import Callable

import torch
from torch import nn

# The models that the parity tests train: shown there to be the same as ours.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"))
from models import ConvNet, resnet18_cifar  # noqa: E402

POOL = 64  # batches made before; each step takes a copy of one
LABELS = 61  # no divisor of POOL: a batch meets its labels again after 3,904 steps, so that nothing is learnt by heart


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


def sgd(**options):
    return {"optimizer": torch.optim.SGD, "options": options}


WIDE = {"model": lambda: perceptron(1024, 4096, 4096, 1024), "sample": (1024,), "classes": 1024, "batch": 16}
WORKLOADS = {
    "mlp": Workload(lambda: perceptron(64, 64, 10), (64,), 10, 32, **sgd(lr=0.01)),
    "convnet": Workload(ConvNet, (1, 28, 28), 10, 100, **sgd(lr=0.001)),
    "wide_mlp_sgd": Workload(**WIDE, **sgd(lr=0.001, momentum=0.9)),
    "wide_mlp_adam": Workload(**WIDE, optimizer=torch.optim.Adam, options={"lr": 1e-4}),
    "resnet18_cifar": Workload(resnet18_cifar, (3, 32, 32), 10, 64, **sgd(lr=0.01, momentum=0.9)),
}
