"""Colour and affine operations are torchvision's on Pillow pictures, given the same choice; so are the
tables of AutoAugment, RandAugment, TrivialAugmentWide and AugMix, and what AugMix makes of given draws."""
import itertools
import json
import unittest
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import autoaugment
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

from pictures import PictureComparison, after, image_probe, load, real_pictures

FILL = [10, 20, 30]
KINDS = ("nearest", "bilinear", "bicubic")
TORCH_OP = autoaugment._apply_op


def picture_op(image: Image.Image, name: str, magnitude: float, interpolation: InterpolationMode, fill: list):
    """The operation on a picture. Pillow alone refuses AugMix's strongest Posterize, which leaves no bit."""
    if name == "Posterize" and magnitude == 0:
        return Image.new(image.mode, image.size)
    return TORCH_OP(image, name, magnitude, interpolation, fill)


STEPS = {
    "augment": lambda image, name, magnitude, how, fill: picture_op(
        image, name, magnitude, InterpolationMode(how), fill),
    "rotate": lambda image, degrees, how, expand, fill: F.rotate(
        image, degrees, InterpolationMode(how), expand, None, fill),
    "hue": lambda image, factor: F.adjust_hue(image, factor),
    "grayscale": lambda image, channels: F.to_grayscale(image, channels),
}
# Operations that happen with some probability, here always, and their arguments.
RANDOM = {"RandomInvert": [[]], "RandomPosterize": [[bits] for bits in range(1, 9)],
          "RandomSolarize": [[0], [100.5], [128], [255]], "RandomAdjustSharpness": [[0], [0.3], [1], [2], [3.7]],
          "RandomAutocontrast": [[]], "RandomEqualize": [[]], "RandomGrayscale": [[]]}
STEPS |= {name: lambda image, *arguments, name=name: getattr(transforms, name)(*arguments, p=1)(image)
          for name in RANDOM}
SPACES = {"auto": (autoaugment.AutoAugment(), 10), "rand": (autoaugment.RandAugment(), 31),
          "trivial": (autoaugment.TrivialAugmentWide(), 31), "mix": (autoaugment.AugMix(), 10)}


def on_pillow(image: torch.Tensor, *arguments, **named) -> torch.Tensor:
    """AugMix hands its operations tensors, the other policies hand them the picture."""
    return F.pil_to_tensor(picture_op(F.to_pil_image(image[0]), *arguments, **named))[None]


def augmix(image: Image.Image, draws: dict, how: str, fill: list, op=on_pillow) -> Image.Image:
    """torchvision's AugMix with these draws."""
    transform = autoaugment.AugMix(severity=10, mixture_width=len(draws["chains"]), interpolation=InterpolationMode(how),
                                   fill=fill)
    numbers = iter([number for chain, all_of_it in zip(draws["chains"], draws["integers"])
                    for number in [len(chain), *all_of_it]])
    shares = iter([draws["balance"], draws["shares"]])
    with (mock.patch.object(transform, "_sample_dirichlet", lambda _: torch.tensor([next(shares)])),
          mock.patch("torch.randint", lambda *_, **__: torch.tensor([next(numbers)])),
          mock.patch.object(autoaugment, "_apply_op", op)):
        return transform(image)


STEPS["augmix"] = augmix


def torch_magnitudes(space: str, size: tuple[int, int]) -> dict:
    policy, bins = SPACES[space]
    return policy._augmentation_space(bins) if space == "trivial" else policy._augmentation_space(bins, size)


def operations(space: str, size: tuple[int, int]):
    """Every operation with every magnitude, of either sign."""
    for name, (magnitudes, signed) in torch_magnitudes(space, size).items():
        for magnitude in magnitudes.tolist() if magnitudes.ndim else [0.0]:
            yield name, float(magnitude)
            if signed:
                yield name, -float(magnitude)


class Comparison(PictureComparison):
    def torchvision(self, case: dict) -> np.ndarray:
        return np.atleast_3d(np.asarray(after(case, STEPS)))


class Generated(Comparison):
    def test_every_operation_and_magnitude(self):
        cases = []
        for shape in ((32, 32), (45, 67)):
            path = self.file(*shape)
            for space, how in itertools.product(SPACES, KINDS):
                cases += [{"file": path, "steps": [["augment", name, magnitude, how, FILL]]}
                          for name, magnitude in operations(space, shape)]
        self.compare(cases)

    def test_invert_and_grey_pictures(self):
        path = self.file(20, 30)
        names = ["Invert", "AutoContrast", "Equalize", "Contrast", "Color", "Sharpness", "Brightness"]
        self.compare([{"file": path, "steps": [["grayscale", channels], ["augment", name, 0.7, "nearest", FILL]]}
                      for name, channels in itertools.product(names, (1, 3))])

    def test_random_operations(self):
        steps = [[name, *arguments] for name, all_of_it in RANDOM.items() for arguments in all_of_it]
        self.compare([{"file": path, "steps": [*before, step]} for path in (self.file(20, 30), self.file(45, 67))
                      for before in ([], [["grayscale", 1]]) for step in steps])

    def test_rotations(self):
        degrees = [0, 90, 180, 270, 360, -90, 450, 1, 33.3, -77.7, 123.4, 359.5]
        degrees += self.rng.uniform(-200, 200, 20).tolist()
        self.compare([{"file": path, "steps": [["rotate", angle, how, expand, FILL]]}
                      for path in (self.file(40, 40), self.file(23, 51))
                      for angle, how, expand in itertools.product(degrees, KINDS, (False, True))])

    def test_hues_of_many_colors(self):
        colors = self.rng.integers(0, 256, (400, 500, 3), dtype=np.uint8)
        steps = np.linspace(0, 255, 16).astype(np.uint8)
        colors[:16, :256] = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(16, 256, 3)
        path = self.folder / "colors.png"
        Image.fromarray(colors).save(path)
        factors = [-0.5, -0.3, -0.001, 0.0, 0.004, 0.1, 0.25, 0.49, 0.5]
        self.compare([{"file": path, "steps": [["hue", factor]]} for factor in factors])

    def test_blends_of_every_pair_of_values(self):
        """Contrast blends with one value, here each in turn; factors on both sides of 0 and 1."""
        path = self.folder / "ramp.png"
        Image.fromarray(np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)).save(path)
        cases = [{"file": path, "steps": [["augment", "Contrast", float(factor) - 1, "nearest", FILL]]}
                 for factor in np.linspace(0, 2, 301)]
        self.compare(cases)


class AugMixed(Comparison):
    def draws(self, size: tuple[int, int], width: int, names: list[str]) -> dict:
        """Draws as AugMix makes them, and the integers that torchvision asks for on the way to the operations."""
        space = torch_magnitudes("mix", size)
        chains, integers = [], []
        for _ in range(width):
            chain, drawn = [], []
            for name in self.rng.choice(names, self.rng.integers(1, 4)).tolist():
                magnitudes, signed = space[name]
                drawn.append(list(space).index(name))
                magnitude = 0.0
                if magnitudes.ndim:
                    drawn.append(int(self.rng.integers(10)))
                    magnitude = float(magnitudes[drawn[-1]])
                if signed:
                    drawn.append(int(self.rng.integers(2)))
                chain.append([name, -magnitude if signed and drawn[-1] else magnitude])
            chains.append(chain)
            integers.append(drawn)
        shares = [self.rng.dirichlet([1] * count).astype(np.float32).tolist() for count in (2, width)]
        return {"balance": shares[0], "shares": shares[1], "chains": chains, "integers": integers}

    def cases(self, names: list[str], count: int) -> list[dict]:
        for shape in ((32, 32), (45, 67)):
            path = self.file(*shape)
            for width, how in itertools.product((1, 3, 4), KINDS):
                for _ in range(count):
                    yield {"file": path, "steps": [["augmix", self.draws(shape, width, names), how, FILL]]}

    def test_mixes_of_given_chains(self):
        self.compare(list(self.cases(list(torch_magnitudes("mix", (8, 8))), 10)))

    def test_where_tensors_and_pictures_are_treated_alike(self):
        """Here nothing stands between torchvision and its operations."""
        plain = lambda *arguments: augmix(*arguments, op=TORCH_OP)
        with mock.patch.dict(STEPS, augmix=plain):
            self.compare(list(self.cases(["Posterize", "Solarize"], 3)))


class Tables(unittest.TestCase):
    def compare(self, ours: list[float], theirs: list[float]):
        """torch.linspace sums in another order on each instruction set, so the last bit of a float is open."""
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs):
            self.assertAlmostEqual(a, b, delta=abs(b) * 2e-7)

    def test_tables(self):
        for size in ((32, 32), (333, 500), (224, 224)):
            (line,) = image_probe("policies", image=size)
            ours = json.loads(line)
            for space in SPACES:
                for name, (magnitudes, signed) in torch_magnitudes(space, size).items():
                    entry = ours["tables"][space][name]
                    theirs = [float(x) for x in magnitudes.tolist()] if magnitudes.ndim else None
                    self.compare(entry["magnitudes"], theirs or [])
                    if theirs:  # without a strength there is nothing to negate
                        self.assertEqual(entry["signed"], signed, name)

    def test_pairs(self):
        (line,) = image_probe("policies", image=(32, 32))
        ours = json.loads(line)["pairs"]
        self.assertEqual(set(ours), {policy.value for policy in autoaugment.AutoAugmentPolicy})
        for name, pairs in ours.items():
            policy = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy(name))
            theirs = [[[op, p, magnitude or 0] for op, p, magnitude in pair] for pair in policy.policies]
            self.assertEqual(pairs, theirs)
            self.assertEqual(len(pairs), 25)


class Real(Comparison):
    def test_photographs(self):
        cases = []
        for path in real_pictures("flowers", "train", 1) + real_pictures("cifar10-small", "train", 2):
            width, height = load(path).size
            cases += [{"file": path, "steps": [["augment", name, magnitude, "nearest", FILL]]}
                      for name, magnitude in operations("auto", (height, width))]
        self.compare(cases)


if __name__ == "__main__":
    unittest.main()
