"""`lockstep train --seed S` starts from the bits that torch.manual_seed(S) gives to the same module."""
import tempfile
import unittest

import torch

import lockstep
from files import read_safetensors
from models import COLOUR_MODELS, GREY_MODELS, MODELS


class InitialWeights(unittest.TestCase):
    def test_bits_from_seed(self):
        for model in GREY_MODELS | COLOUR_MODELS:
            # No picture is read: the data set only tells channels and classes.
            task = ("--dataset", "cifar10", "--data-path", ".") if model in COLOUR_MODELS else ()
            for seed in (0, 1, 42, 2**40 + 7):
                with self.subTest(model=model, seed=seed), tempfile.NamedTemporaryFile() as file:
                    lockstep.initial_weights(model, seed, file.name, *task)
                    self.compare(model, seed, read_safetensors(file.name))

    def compare(self, model, seed, ours):
        torch.manual_seed(seed)
        theirs = MODELS[model]().state_dict()
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(ours[name], tensor), name)


if __name__ == "__main__":
    unittest.main()
