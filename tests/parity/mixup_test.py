"""MixUp and CutMix are torchvision.transforms.v2's to the bit, given the same lambda and centre; lambda has the
distribution of torch's."""
import itertools
import pathlib
import tempfile
import unittest
from unittest import mock

import numpy as np
import torch
from torchvision.transforms import v2

from pictures import image_probe
from transforms_test import kolmogorov_smirnov

CLASSES = 7


class Mixes(unittest.TestCase):
    def setUp(self):
        self.generator = torch.Generator().manual_seed(5)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def cases(self, how: str):
        """Cases, and the batches that belong to them."""
        lambdas = [0.0, 1.0, 0.5, 0.1, *torch.rand(8, generator=self.generator).tolist()]
        for shape, last, half, lam in itertools.product(
                [(5, 3, 32, 40), (1, 3, 7, 9), (4, 1, 28, 28)], (False, True), (False, True), lambdas):
            batch = torch.randn(shape, generator=self.generator).to(torch.bfloat16 if half else torch.float32)
            batch = batch.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
            row, column = (int(torch.randint(side, (1,), generator=self.generator)) for side in shape[2:])
            labels = torch.randint(CLASSES, shape[:1], generator=self.generator)
            case = {"how": how, "lambda": lam, "row": row, "column": column, "shape": shape, "channels_last": last,
                    "bfloat16": half, "labels": labels.tolist(), "classes": CLASSES}
            yield case, batch

    def compare(self, how: str, theirs):
        cases, batches = zip(*self.cases(how))
        (self.folder / "input").write_bytes(b"".join(raw(case, batch) for case, batch in zip(cases, batches)))
        image_probe("mix", input=str(self.folder / "input"), output=str(self.folder / "output"), cases=cases)
        ours = (self.folder / "output").read_bytes()
        for case, batch in zip(cases, batches):
            samples, targets = theirs(case, batch)
            expected = raw(case, samples) + targets.numpy().tobytes()
            with self.subTest(case=case):
                self.assertEqual(targets.dtype, torch.float32)
                self.assertTrue(ours[:len(expected)] == expected)
            ours = ours[len(expected):]
        self.assertEqual(len(ours), 0)
        print(f"{len(cases)} batches, all equal", flush=True)

    def test_mixup(self):
        def theirs(case, batch):
            mix = v2.MixUp(num_classes=CLASSES)
            with mock.patch.object(mix._dist, "sample", lambda shape: torch.tensor(case["lambda"], dtype=torch.float64)):
                return mix(batch, torch.tensor(case["labels"]))
        self.compare("mixup", theirs)

    def test_cutmix(self):
        def theirs(case, batch):
            mix = v2.CutMix(num_classes=CLASSES)
            centre = iter([case["column"], case["row"]])  # in the order in which it draws
            with (mock.patch.object(mix._dist, "sample", lambda shape: torch.tensor(case["lambda"], dtype=torch.float64)),
                  mock.patch("torch.randint", lambda high, size: torch.tensor([next(centre)]))):
                return mix(batch, torch.tensor(case["labels"]))
        self.compare("cutmix", theirs)


def raw(case: dict, batch: torch.Tensor) -> bytes:
    """The numbers as they lie in memory."""
    if case["channels_last"]:
        batch = batch.permute(0, 2, 3, 1)
    batch = batch.contiguous()
    return (batch.view(torch.int16) if case["bfloat16"] else batch).numpy().tobytes()


class Lambda(unittest.TestCase):
    COUNT = 20000
    LIMIT = 2.69 * (2 / COUNT) ** 0.5  # exceeded once in a million times when the distributions are equal

    def test_distribution(self):
        torch.manual_seed(6)
        for alpha in (0.1, 0.2, 0.8, 1.0, 3.0):
            ours = np.array(image_probe("betas", alpha=alpha, count=self.COUNT), dtype=float)
            theirs = torch.distributions.Beta(torch.tensor([alpha]), torch.tensor([alpha])).sample((self.COUNT,))
            distance = kolmogorov_smirnov(ours, theirs.numpy().astype(float).ravel())
            print(f"alpha {alpha}: distance {distance:.4f}, limit {self.LIMIT:.4f}", flush=True)
            self.assertLess(distance, self.LIMIT)


class Shares(unittest.TestCase):
    def test_distribution(self):
        """One of several shares has a Beta distribution of its own."""
        torch.manual_seed(7)
        for alpha, of in ((0.1, 2), (1.0, 2), (1.0, 3), (2.5, 4)):
            ours = np.array(image_probe("shares", alpha=alpha, count=Lambda.COUNT, of=of), dtype=float)
            theirs = torch._sample_dirichlet(torch.full((Lambda.COUNT, of), alpha))[:, -1]
            # Near 1 torch's sum of floats rounds in a way of its own.
            self.assertLess(kolmogorov_smirnov(ours.round(6), theirs.double().numpy().round(6)), Lambda.LIMIT)


if __name__ == "__main__":
    unittest.main()
