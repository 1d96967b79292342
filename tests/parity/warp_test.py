"""Affine and perspective pictures are torchvision's to the byte given the same choice; blurred and elastic ones, which
torchvision computes in floats, to one level."""
import itertools
import json
import unittest

import numpy as np
import torch
from torchvision.transforms import ElasticTransform, RandomAffine, RandomPerspective
from torchvision.transforms import _functional_pil
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

from pictures import PictureComparison, after, image_probe, load, real_pictures

FILL = [10, 20, 30]
KINDS = ("nearest", "bilinear", "bicubic")


def elastic(image, right: list[float], down: list[float], how: str, fill: list[int]):
    shape = (1, image.height, image.width)
    displacement = torch.stack([torch.tensor(right).reshape(shape), torch.tensor(down).reshape(shape)], -1)
    return F.elastic_transform(image, displacement, InterpolationMode(how), [float(x) for x in fill])


STEPS = {
    "affine": lambda image, angle, translate, scale, shear, how, fill: F.affine(
        image, angle, translate, scale, shear, InterpolationMode(how), fill),
    "perspective": lambda image, matrix, how, fill: _functional_pil.perspective(
        image, matrix, F.pil_modes_mapping[InterpolationMode(how)], fill),
    "blur": lambda image, kernel, sigma: F.gaussian_blur(image, kernel, sigma),
    "elastic": elastic,
    "grayscale": lambda image, channels: F.to_grayscale(image, channels),
}


def drawn_affine(size: list[int]) -> list:
    """What RandomAffine draws, as a step takes it."""
    ranges = [-180, 180], [0.3, 0.3], [0.4, 2.5], [-30, 30, -30, 30]
    angle, translate, scale, shear = RandomAffine.get_params(*ranges, size)
    return [angle, list(translate), scale, list(shear)]


def drawn_corners(height: int, width: int, scale: float) -> tuple[list, list]:
    return RandomPerspective.get_params(width, height, scale)


def drawn_displacement(height: int, width: int, alpha: float, sigma: float) -> list[list[float]]:
    field = ElasticTransform.get_params([alpha, alpha], [sigma, sigma], [height, width])
    return [field[0, :, :, axis].flatten().tolist() for axis in (0, 1)]


class Comparison(PictureComparison):
    def torchvision(self, case: dict) -> np.ndarray:
        return np.atleast_3d(np.asarray(after(case, STEPS)))


class Generated(Comparison):
    def test_affine(self):
        torch.manual_seed(5)
        plain = [[0, [0, 0], 1, [0, 0]], [0, [3, -2], 1, [0, 0]], [90, [0, 0], 1, [0, 0]], [0, [0, 0], 2, [0, 0]],
                 [0, [1, 1], 0.3, [0, 0]], [45, [0, 0], 1, [10, 0]], [-30.5, [5, 0], 0.9, [0, 20]]]
        cases = []
        for shape in ((32, 32), (23, 51), (1, 9), (7, 2)):
            path = self.file(*shape)
            choices = plain + [drawn_affine([shape[1], shape[0]]) for _ in range(20)]
            cases += [{"file": path, "steps": [["affine", *choice, how, FILL]]}
                      for choice, how in itertools.product(choices, KINDS)]
        self.compare(cases)

    def test_perspective(self):
        torch.manual_seed(6)
        cases = []
        for height, width in ((32, 32), (23, 51)):
            path = self.file(height, width)
            for scale in (0.0, 0.2, 0.5, 0.9):
                for _ in range(8):
                    matrix = F._get_perspective_coeffs(*drawn_corners(height, width, scale))
                    cases += [{"file": path, "steps": [["perspective", matrix, how, FILL]]} for how in KINDS]
        self.compare(cases)

    def test_perspective_of_corners(self):
        """Each coefficient is a float32 of the solution, on both sides of another solver."""
        torch.manual_seed(7)
        for height, width in ((32, 32), (224, 224), (333, 500)):
            for _ in range(30):
                start, end = drawn_corners(height, width, 0.6)
                (line,) = image_probe("perspective", **{"from": start, "to": end})
                for ours, theirs in zip(json.loads(line), F._get_perspective_coeffs(start, end), strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=1e-6 * abs(theirs) + 1e-10)


class Floats(Comparison):
    LEVELS = 1

    def test_blur(self):
        kernels, sigmas = ([1, 1], [3, 3], [5, 5], [3, 7], [23, 9]), ([0.1, 0.1], [0.5, 2.0], [1.3, 1.3], [7.0, 3.0])
        self.compare([{"file": path, "steps": [["grayscale", channels], ["blur", kernel, sigma]]}
                      for path in (self.file(32, 32), self.file(23, 51)) for channels in (1, 3)
                      for kernel, sigma in itertools.product(kernels, sigmas)])

    def test_elastic(self):
        torch.manual_seed(8)
        cases = []
        for height, width in ((24, 24), (29, 31)):
            path = self.file(height, width)
            for alpha, sigma in ((0.0, 5.0), (50.0, 5.0), (300.0, 4.0), (8.0, 0.0)):
                field = drawn_displacement(height, width, alpha, sigma)
                cases += [{"file": path, "steps": [["elastic", *field, how, FILL]]} for how in ("nearest", "bilinear")]
        self.compare(cases)


class Real(Comparison):
    LEVELS = 1

    def test_blurred_photographs(self):
        self.compare([{"file": path, "steps": [["blur", [9, 9], [sigma, sigma]]]}
                      for path in real_pictures("flowers", "train", 2) for sigma in (0.3, 1.7)])


class RealWarps(Comparison):
    def test_photographs(self):
        torch.manual_seed(9)
        cases = []
        for path in real_pictures("flowers", "train", 1):
            width, height = load(path).size
            matrix = F._get_perspective_coeffs(*drawn_corners(height, width, 0.5))
            for how in KINDS:
                cases += [{"file": path, "steps": [["affine", *drawn_affine([width, height]), how, FILL]]},
                          {"file": path, "steps": [["perspective", matrix, how, FILL]]}]
        self.compare(cases)


if __name__ == "__main__":
    unittest.main()
