"""Crops, padding, flips, greys and normalised batches are torchvision's, given the same choice; random
choices have the same distribution."""
import itertools
import unittest

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import Grayscale, RandomErasing, RandomResizedCrop
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

from pictures import PictureComparison, after, image_probe, load, real_pictures

STEPS = {
    "crop": lambda image, *box: F.crop(image, *box),
    "pad": lambda image, *border: F.pad(image, border[:4], tuple(border[5]), border[4]),
    "center_crop": lambda image, *size: F.center_crop(image, size),
    "hflip": lambda image: F.hflip(image),
    "vflip": lambda image: F.vflip(image),
    "five_crop": lambda image, which, *size: F.five_crop(image, size)[which],
    "ten_crop": lambda image, which, height, width, vertical: F.ten_crop(image, [height, width], vertical)[which],
    "grayscale": lambda image, channels: Grayscale(channels)(image),
    "resize": lambda image, height, width, how: F.resize(image, [height, width], InterpolationMode(how)),
}
FILL = [10, 20, 30]


class Comparison(PictureComparison):
    def torchvision(self, case: dict) -> np.ndarray | torch.Tensor:
        image = after(case, STEPS)
        options = case.get("normalize")
        if options is None:
            return np.atleast_3d(np.asarray(image))
        tensor = F.normalize(F.to_tensor(image), options["mean"], options["std"])
        if "erase" in options:
            tensor = F.erase(tensor, *options["erase"], torch.tensor(options["value"])[:, None, None])
        return tensor.bfloat16() if options["bfloat16"] else tensor


class Generated(Comparison):
    def test_center_crop(self):
        shapes = [(20, 31), (8, 8), (9, 50), (3, 5)]
        sizes = [(8, 8), (7, 6), (21, 12), (40, 40), (1, 1), (9, 31)]
        self.compare([{"file": self.file(*shape), "steps": [["center_crop", *size]]}
                      for shape, size in itertools.product(shapes, sizes)])

    def test_resize_and_crop(self):
        shapes, sizes = [(20, 31), (1, 90), (200, 3), (64, 40)], [(40, 50), (12, 8), (20, 90), (3, 300), (150, 2)]
        self.compare([{"file": self.file(*shape), "steps": [*before, ["resize", *size, how], ["center_crop", *crop]]}
                      for shape, size in itertools.product(shapes, sizes) for crop in ((7, 6), (30, 2), (2, 41))
                      for how in ("nearest", "bilinear", "bicubic") for before in ([], [["hflip"]])])

    def test_padding(self):
        modes = ("constant", "edge", "reflect", "symmetric")
        paddings = [(0, 0, 0, 0), (4, 4, 4, 4), (1, 2, 3, 0), (0, 0, 9, 8), (25, 30, 17, 12)]
        self.compare([{"file": self.file(*shape), "steps": [["pad", *padding, mode, FILL]]}
                      for shape, padding, mode in itertools.product([(12, 9), (2, 30)], paddings, modes)])

    def test_crops_and_flips_in_any_order(self):
        path = self.file(30, 41)
        steps = [["crop", 3, 5, 8, 9], ["hflip"], ["crop", 2, 1, 4, 6], ["pad", 1, 2, 3, 4, "reflect", FILL],
                 ["resize", 16, 17, "bilinear"], ["center_crop", 14, 14], ["grayscale", 3]]
        self.compare([{"file": path, "steps": [steps[i] for i in self.rng.permutation(len(steps))
                                               if steps[i][0] != "crop" or steps[i][1] == first]}
                      for first in (3, 2) for _ in range(20)])

    def test_vertical_flips(self):
        self.compare([{"file": self.file(*shape), "steps": steps} for shape in ((20, 31), (1, 5), (4, 1))
                      for steps in ([["vflip"]], [["hflip"], ["vflip"]], [["vflip"], ["center_crop", 3, 3]])])

    def test_five_and_ten_crops(self):
        shapes, sizes = [(20, 31), (9, 50)], [(8, 8), (7, 6), (9, 31), (1, 1)]
        self.compare([{"file": self.file(*shape), "steps": [*before, [*step]]}
                      for shape, size, before in itertools.product(shapes, sizes, ([], [["hflip"]]))
                      for step in [["five_crop", which, *size] for which in range(5)]
                      + [["ten_crop", which, *size, flip] for which in range(10) for flip in (False, True)]])

    def test_grey(self):
        colors = self.rng.integers(0, 256, (256, 256, 3), dtype=np.uint8)
        path = self.folder / "colors.png"
        Image.fromarray(colors).save(path)
        self.compare([{"file": path, "steps": [["grayscale", channels]]} for channels in (1, 3)])

    def test_normalized_bits(self):
        options = [{"mean": mean, "std": std, "channels_last": last, "bfloat16": half}
                   for mean, std in (([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]), ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
                                     ([0.1307, 0.1307, 0.1307], [0.3081, 0.3081, 0.3081]))
                   for last in (False, True) for half in (False, True)]
        path = self.folder / "every value.png"
        Image.fromarray(np.arange(768, dtype=np.uint16).reshape(16, 16, 3).astype(np.uint8)).save(path)
        crop, flip = ["crop", 2, 3, 9, 10], ["hflip"]
        self.compare([{"file": path, "steps": steps, "normalize": one}
                      for steps, one in itertools.product([[], [crop], [flip], [crop, flip], [flip, crop]], options)])
        grey = {"mean": [0.1307], "std": [0.3081], "channels_last": False, "bfloat16": False}
        self.compare([{"file": path, "steps": [["grayscale", 1]], "normalize": grey}])


    def test_erasing_given_the_box(self):
        path = self.file(20, 30)
        self.compare([{"file": path, "steps": [], "normalize": {
            "mean": [0.5], "std": [0.25], "channels_last": last, "bfloat16": half, "erase": box, "value": value}}
            for last in (False, True) for half in (False, True) for value in ([0.5], [1.0, 2.0, 3.0])
            for box in ([0, 0, 20, 30], [3, 5, 7, 2], [19, 29, 1, 1], [5, 5, 0, 4])])


class Real(Comparison):
    def test_random_resized_crop_given_the_box(self):
        normalize = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "channels_last": False,
                     "bfloat16": False}
        torch.manual_seed(11)
        cases = []
        for path in real_pictures("flowers", "train", 10):
            box = RandomResizedCrop.get_params(load(path), [0.08, 1.0], [3 / 4, 4 / 3])
            for how in ("bilinear", "bicubic"):
                steps = [["crop", *box], ["resize", 224, 224, how], ["hflip"]]
                cases += [{"file": path, "steps": steps}, {"file": path, "steps": steps, "normalize": normalize}]
        self.compare(cases)

    def test_evaluation_preset(self):
        self.compare([{"file": path, "steps": [["resize", 256, 256, "bilinear"], ["center_crop", 224, 224]]}
                      for path in real_pictures("flowers", "val", 10)])


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance of the two empirical distributions."""
    places = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(x), places, side="right") / len(x) for x in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


class Distribution(unittest.TestCase):
    COUNT = 20000
    LIMIT = 2.69 * (2 / COUNT) ** 0.5  # exceeded once in a million times when the distributions are equal

    def compare(self, ours: list[str], theirs: list, name: str):
        for what, a, b in zip(("top", "left", "height", "width"),
                              np.array([line.split() for line in ours], dtype=int).T, np.array(theirs).T):
            distance = kolmogorov_smirnov(a, b)
            print(f"{name} {what}: distance {distance:.4f}, limit {self.LIMIT:.4f}", flush=True)
            self.assertLess(distance, self.LIMIT)

    def test_random_resized_crop(self):
        for height, width in ((333, 500), (500, 250), (32, 32), (20, 400)):
            ours = image_probe("crops", image=[height, width], count=self.COUNT)
            torch.manual_seed(3)
            image = Image.new("RGB", (width, height))
            theirs = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(self.COUNT)]
            self.compare(ours, theirs, f"crop of {height}x{width}")

    def test_random_erasing(self):
        for height, width in ((224, 224), (32, 32), (20, 90)):
            ours = image_probe("erasings", image=[height, width], count=self.COUNT)
            torch.manual_seed(4)
            image = torch.zeros(1, height, width)
            drawn = [RandomErasing.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])[:4] for _ in range(self.COUNT)]
            # torchvision "erases" the whole picture with itself when no box fits; we draw none.
            theirs = [(0, 0, 0, 0) if box[2:] == (height, width) else box for box in drawn]
            self.compare(ours, theirs, f"erasing of {height}x{width}")


if __name__ == "__main__":
    unittest.main()
