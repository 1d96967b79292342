"""`lockstep train --seed S` starts from the bits that torch.manual_seed(S) gives to the same module."""
import tempfile
import unittest
import unittest.mock

import torch
import torchvision
from torch import nn

import lockstep
from files import read_safetensors
from models import COLOUR_MODELS, GREY_MODELS


class SmallStem(nn.Conv2d):
    """In nn.Conv2d's place it gives torchvision's ResNet the stem of the CIFAR tutorials before weights are drawn."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, **options):
        if kernel_size == 7:
            kernel_size, options = 3, options | {"stride": 1, "padding": 1}
        super().__init__(inputs, outputs, kernel_size, **options)


def resnet18_cifar() -> nn.Module:
    with unittest.mock.patch.object(nn, "Conv2d", SmallStem):
        return torchvision.models.resnet18(num_classes=10)


def linear() -> nn.Module:
    return nn.ModuleDict({"fc": nn.Linear(784, 10)})


GREY = GREY_MODELS | {"linear": linear}
COLOUR = COLOUR_MODELS | {"resnet18_cifar": resnet18_cifar}


class InitialWeights(unittest.TestCase):
    def test_bits_from_seed(self):
        for model, make in (GREY | COLOUR).items():
            # No picture is read: the data set only tells channels and classes.
            task = ("--dataset", "cifar10", "--data-path", ".") if model in COLOUR else ()
            for seed in (0, 1, 42, 2**40 + 7):
                with self.subTest(model=model, seed=seed), tempfile.NamedTemporaryFile() as file:
                    lockstep.initial_weights(model, seed, file.name, *task)
                    torch.manual_seed(seed)
                    self.compare(read_safetensors(file.name), make().state_dict())

    def compare(self, ours: dict, theirs: dict):
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(ours[name], tensor), name)


if __name__ == "__main__":
    unittest.main()
