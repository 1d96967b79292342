"""The recipe finetune-resnet34 in Python with the random numbers of `lockstep train`: its weights, order and augmentation.

Both train on the same pictures then, and their losses differ by no more than rounding makes of it.
"""
import itertools
import json
import pathlib
import unittest.mock

import torch
import torchvision
from PIL import Image
from torch import nn
from torchvision.transforms import autoaugment
from torchvision.transforms import functional as F

from pictures import image_probe
from reference import ieee_sqrt

WORD = 2**32 - 1
TRANSFORMS = 0x61756732  # data/transforms/transform.cpp: what the seed is used for
BATCH = 16


def philox(counter: list[int], key: list[int]) -> list[int]:
    """base::philox."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & WORD, first >> 32 ^ counter[3] ^ key[1], first & WORD]
        key = [key[0] + 0x9E3779B9 & WORD, key[1] + 0xBB67AE85 & WORD]
    return counter


def words(number: int) -> list[int]:
    return [number & WORD, number >> 32]


class Stream:
    """data::transform_stream(): the draws of the transform at `position` of a list, for sample `index`."""

    def __init__(self, seed: int, epoch: int, index: int, position: int):
        mixed = philox([*words(epoch), position, TRANSFORMS], words(seed))
        blocks = (philox([block, *words(index), mixed[2]], mixed[:2]) for block in itertools.count())
        self.words = itertools.chain.from_iterable(blocks)

    def below(self, count: int) -> int:
        return next(self.words) * count >> 32

    def happens(self, probability: float) -> bool:
        return (next(self.words) >> 8) / 2**24 < probability


class DrawnAutoAugment(autoaugment.AutoAugment):
    """Takes its draws from a Stream. Magnitudes are ours, for torch.linspace leaves the last bit open."""

    def __init__(self):
        super().__init__()
        (line,) = image_probe("policies", image=(32, 32))  # of any size: ImageNet's policy does not translate
        self.space = json.loads(line)["tables"]["auto"]

    def forward(self, picture: Image.Image, draws: Stream) -> Image.Image:
        signed = {name for name, (_, is_signed) in self._augmentation_space(10, (32, 32)).items() if is_signed}
        for name, probability, bin_ in self.policies[draws.below(len(self.policies))]:
            if not draws.happens(probability):
                continue
            magnitude = 0.0 if bin_ is None else self.space[name]["magnitudes"][bin_]
            if name in signed and draws.below(2):
                magnitude = -magnitude
            picture = autoaugment._apply_op(picture, name, magnitude, self.interpolation, self.fill)
        return picture


def resnet34(classes: int, seed: int) -> nn.Module:
    """With the recipe's head, and in the format of --channels-last."""
    torch.manual_seed(seed)
    model = torchvision.models.resnet34(num_classes=classes)  # whose last layer is drawn, too
    model.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, classes))
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last, copy=True)
    return model


def finetune_losses(folder: pathlib.Path, side: int, seed: int, epochs: int, steps: int | None = None) -> list[list[float]]:
    """The loss of each step of each epoch; `steps` of it, or all. `folder` has one of each class."""
    pictures = torchvision.datasets.ImageFolder(folder)
    augment = DrawnAutoAugment()
    model = resnet34(len(pictures.classes), seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def batch(epoch: int, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        samples = [(augment(picture, Stream(seed, epoch, index, position=0)), label)
                   for index, (picture, label) in ((index, pictures[index]) for index in indices)]
        images = torch.stack([F.to_tensor(F.resize(picture, [side, side])) for picture, _ in samples])
        return images.contiguous(memory_format=torch.channels_last), torch.tensor([label for _, label in samples])

    def step(images: torch.Tensor, labels: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        with unittest.mock.patch.object(torch.Tensor, "sqrt", ieee_sqrt):
            optimizer.step()
        return loss.item()

    found = []
    for epoch in range(epochs):
        order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(seed + epoch))
        found.append([step(*batch(epoch, indices.tolist())) for indices in order.split(BATCH)[:steps]])
    return found
