"""Recipes on small pictures have the losses that Python has with the same random numbers.

What losses_test.py leaves out: the settings of a recipe, an order and an augmentation that are ours from the first draw
to the picture, and evaluations between the epochs.
"""
import itertools
import json
import pathlib
import subprocess
import tempfile
import unittest

import torch
import torchvision
from torch import nn
from torch.utils.data import DistributedSampler
from torchvision.transforms import functional as F

import lockstep
import models
import same_draws
from files import read_safetensors

SEED, EPOCHS, STEPS = 3, 2, 5
SIDE = 48  # of a flower
RANKS, BATCH = 2, 8  # of the recipe for CIFAR, of each rank
LIMIT = 1e-4  # relative: what Adam makes of the last bits in ten steps. Another picture in a batch is 1e-2 and more
CIFAR = [(0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)]


def losses_of_ours(*words, **flags) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        flags |= {"epochs": EPOCHS, "limit_train_batches": STEPS, "seed": SEED, "threads": 1, "print_freq": 1,
                  "output_dir": folder}
        named = [word for name, value in flags.items() for word in ("--" + name.replace("_", "-"), value)]
        subprocess.run(lockstep.command_line(*words, *named), check=True, timeout=lockstep.DEADLINE_SECONDS,
                       stdout=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return lockstep.losses([json.loads(line) for line in lines])


def drawn_picture(pictures: torchvision.datasets.ImageFolder, epoch: int, index: int) -> torch.Tensor:
    """By --transforms cifar: RandomCrop(32, padding=4), RandomHorizontalFlip, ToTensor, Normalize."""
    crop = same_draws.Stream(SEED, epoch, index, position=0)
    top, left = crop.below(9), crop.below(9)
    picture = F.crop(F.pad(pictures[index][0], [4]), top, left, 32, 32)
    if same_draws.Stream(SEED, epoch, index, position=1).happens(0.5):
        picture = F.hflip(picture)
    return F.normalize(F.to_tensor(picture), *CIFAR)


def cifar_losses(folder: pathlib.Path, weights: pathlib.Path) -> list[float]:
    """Of cifar100-resnet18; its ranks, with batches and statistics of their own, are computed one after the other."""
    pictures = torchvision.datasets.ImageFolder(folder)
    model = models.resnet18_cifar()
    model.load_state_dict(read_safetensors(weights))
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last, copy=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=1)

    def backward(epoch: int, indices: list[int]) -> float:
        images = torch.stack([drawn_picture(pictures, epoch, index) for index in indices])
        labels = torch.tensor([pictures.targets[index] for index in indices])
        loss = nn.functional.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
        (loss / RANKS).backward()
        return loss.item()

    found = []
    for epoch in range(EPOCHS):
        batches = []  # of each rank
        for rank in range(RANKS):
            sampler = DistributedSampler(pictures, RANKS, rank, seed=SEED)
            sampler.set_epoch(epoch)
            batches.append(torch.tensor(list(sampler)).split(BATCH))
        for step in itertools.islice(zip(*batches), STEPS):
            optimizer.zero_grad()
            found.append(sum(backward(epoch, indices.tolist()) for indices in step) / RANKS)
            optimizer.step()
        warm_up.step()
    return found


class Steps(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def compare(self, recipe: str, ours: list[float], theirs: list[float]) -> list[float]:
        """The relative differences of the steps."""
        self.assertEqual(len(theirs), EPOCHS * STEPS)
        apart = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
        print(f"{recipe}: loss {theirs[0]:.4f} to {min(theirs):.4f}, relative differences "
              + " ".join(f"{one:.1e}" for one in apart), flush=True)
        self.assertLessEqual(apart[0], 1e-6)
        return apart

    def test_of_finetune_resnet34(self):
        lockstep.need_data("flowers/train", "flowers/val")
        ours = losses_of_ours(recipe="finetune-resnet34", data_path=lockstep.DATA / "flowers", train_split="train",
                              val_split="val", head="512,relu,5",
                              transforms=f"auto_augment,resize={SIDE}x{SIDE},to_tensor")
        theirs = sum(same_draws.finetune_losses(lockstep.DATA / "flowers" / "train", SIDE, SEED, EPOCHS, STEPS), [])
        self.assertLessEqual(max(self.compare("finetune-resnet34", ours, theirs)), LIMIT)

    def test_of_cifar100_resnet18(self):
        """On CIFAR-10's pictures. The first epoch is the warm-up; the rate of the second one, a hundred times as large,
        is too much for so few pictures, and makes much of a last bit."""
        lockstep.need_data("cifar10-small/train")
        with tempfile.TemporaryDirectory() as folder:
            weights = pathlib.Path(folder) / "weights.safetensors"
            lockstep.initial_weights("resnet18_cifar", SEED, weights, "--dataset", "cifar10", "--data-path", ".")
            ours = losses_of_ours("--no-eval", recipe="cifar100-resnet18", dataset="imagefolder",
                                  data_path=lockstep.DATA / "cifar10-small", transforms="cifar", batch_size=BATCH)
            theirs = cifar_losses(lockstep.DATA / "cifar10-small" / "train", weights)
        apart = self.compare("cifar100-resnet18", ours, theirs)
        self.assertLessEqual(max(apart[:STEPS + 1]), LIMIT)
        self.assertLessEqual(max(apart), 1e-3)


if __name__ == "__main__":
    unittest.main()
