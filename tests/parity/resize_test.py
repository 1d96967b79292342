"""Resized pixels are Pillow's, to the bit; sizes are torchvision's."""
import itertools
import pathlib
import tempfile
import unittest

import numpy as np
from PIL import Image
from torchvision.transforms import Resize
from torchvision.transforms.functional import InterpolationMode

from pictures import encode, load, lockstep_pictures, real_pictures, textured

RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
              "bicubic": Image.Resampling.BICUBIC, "box": Image.Resampling.BOX,
              "hamming": Image.Resampling.HAMMING, "lanczos": Image.Resampling.LANCZOS}
SHAPES = [(40, 60), (61, 37), (16, 16), (15, 15), (7, 100), (1, 1), (1, 40), (33, 2), (200, 300)]
SIZES = [(1, 1), (5, 3), (16, 16), (24, 24), (40, 60), (40, 31), (77, 60), (224, 224)]


def random_box(rng, height: int, width: int) -> list[float]:
    x, y = np.sort(rng.uniform(0, width, 2)), np.sort(rng.uniform(0, height, 2))
    return [float(np.float32(value)) for value in (x[0], y[0], x[1], y[1])]


class Resizing(unittest.TestCase):
    def compare(self, cases, expected):
        """`expected` makes Pillow's picture of a case."""
        largest, total = 0, 0
        for case, ours in zip(cases, lockstep_pictures(cases), strict=True):
            with self.subTest(case=case):
                theirs = np.asarray(expected(case))
                self.assertIsInstance(ours, np.ndarray, ours)
                self.assertEqual(ours.shape, theirs.shape)
                difference = np.abs(ours.astype(int) - theirs).max()
                largest, total = max(largest, difference), total + theirs.size
                self.assertEqual(difference, 0)
        print(f"{len(cases)} cases, {total} samples, largest difference {largest}", flush=True)
        self.assertGreater(total, 0)

    def setUp(self):
        self.rng = np.random.default_rng(4)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def files(self):
        for shape in SHAPES:
            path = self.folder / f"{shape[0]}x{shape[1]}.png"
            path.write_bytes(encode(textured(self.rng, *shape), "PNG"))
            yield path

    @staticmethod
    def pillow(case):
        (name, height, width, how, *box), = case["steps"]
        return load(case["file"]).resize((width, height), RESAMPLING[how], box or None)


class Generated(Resizing):
    def test_shapes_and_sizes(self):
        self.compare([{"file": path, "steps": [["resize", *size, how]]}
                      for path, size, how in itertools.product(self.files(), SIZES, RESAMPLING)], self.pillow)

    def test_boxes(self):
        cases = []
        for path, size, how in itertools.product(self.files(), SIZES, RESAMPLING):
            width, height = load(path).size
            cases.append({"file": path, "steps": [["resize_box", *size, how, *random_box(self.rng, height, width)]]})
        self.compare(cases, self.pillow)

    def test_edges(self):
        def torchvision(case):
            (name, edge, max_size, how), = case["steps"]
            return Resize(edge, InterpolationMode(how), max_size)(load(case["file"]))

        settings = [(8, None), (32, None), (57, None), (32, 33), (32, 50)]
        paths = [path for path in self.files() if min(load(path).size) > 2]
        self.compare([{"file": path, "steps": [["resize_edge", *setting, how]]}
                      for path, setting, how in itertools.product(paths, settings, RESAMPLING)], torchvision)


class Real(Resizing):
    def test_photographs(self):
        paths = real_pictures("flowers", "val", 8) + real_pictures("cifar10-small", "val", 3)
        cases = []
        for path, how in itertools.product(paths, RESAMPLING):
            width, height = load(path).size
            cases += [{"file": path, "steps": [["resize", 224, 224, how]]},
                      {"file": path, "steps": [["resize_box", 176, 160, how, *random_box(self.rng, height, width)]]}]
        self.compare(cases, self.pillow)


if __name__ == "__main__":
    unittest.main()
