"""What the steps of `--transforms` lists make of a picture is what torchvision's transforms of these names make of it
by default: their interpolation, too. The draws differ, so a policy's picture is looked for among all that it can make."""
import itertools
import json
import pathlib
import tempfile
import unittest

import numpy as np
from PIL import Image
from torchvision import transforms
from torchvision.transforms import autoaugment
from torchvision.transforms import functional as F

import lockstep
from pictures import encode, textured

SIDE, EPOCHS, DEGREES = 24, 60, 40


def signed_magnitudes(space: dict, name: str, bin_: int | None) -> list[float]:
    """Of either sign. torch.linspace leaves the last bit open (augment_test.py), by which 16 pixels may be 15."""
    magnitudes, signed = space[name]
    if not magnitudes.ndim or bin_ is None:
        return [0.0]
    value = np.float32(magnitudes[bin_].item())
    near = [float(np.nextafter(value, np.float32(end))) for end in (-np.inf, value, np.inf)]
    return [sign * number for number in near for sign in ((1, -1) if signed else (1,))]


def auto_augmented(image: Image.Image):
    """All that AutoAugment() can make."""
    policy = transforms.AutoAugment()
    space = policy._augmentation_space(10, (SIDE, SIDE))
    for pair in policy.policies:
        ways = [[None] + [(name, size) for size in signed_magnitudes(space, name, bin_)] for name, _, bin_ in pair]
        for steps in itertools.product(*ways):
            made = image
            for step in filter(None, steps):
                made = autoaugment._apply_op(made, *step, interpolation=policy.interpolation, fill=policy.fill)
            yield made


def rand_augmented(image: Image.Image):
    policy = transforms.RandAugment()
    space = policy._augmentation_space(policy.num_magnitude_bins, (SIDE, SIDE))
    steps = [(name, size) for name in space for size in signed_magnitudes(space, name, policy.magnitude)]
    for both in itertools.product(steps, repeat=policy.num_ops):
        made = image
        for step in both:
            made = autoaugment._apply_op(made, *step, interpolation=policy.interpolation, fill=policy.fill)
        yield made


def trivially_augmented(image: Image.Image):
    policy = transforms.TrivialAugmentWide()
    space = policy._augmentation_space(policy.num_magnitude_bins)
    for name, (magnitudes, _) in space.items():
        for bin_ in range(policy.num_magnitude_bins) if magnitudes.ndim else [None]:
            for size in signed_magnitudes(space, name, bin_):
                yield autoaugment._apply_op(image, name, size, interpolation=policy.interpolation, fill=policy.fill)


class Lists(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        pixels = textured(np.random.default_rng(3), SIDE, SIDE)
        self.image = Image.fromarray(pixels)
        for part in ("train", "val"):
            (self.folder / part / "one").mkdir(parents=True)
            (self.folder / part / "one" / "0.png").write_bytes(encode(pixels, "PNG"))

    def made(self, steps: str) -> tuple[list[np.ndarray], list[float]]:
        """The picture of each epoch, and the first number that was drawn for it, from 0 to 1."""
        output = self.folder / "pixels"
        lockstep.probe("list", path=str(self.folder), transforms=steps, epochs=EPOCHS, output=str(output))
        pixels = np.frombuffer(output.read_bytes(), np.uint8).reshape(EPOCHS, SIDE, SIDE, 3)
        return list(pixels), json.loads(output.with_suffix(".json").read_text())

    def test_policies(self):
        for name, can_make in (("imagenet", auto_augmented), ("ra", rand_augmented), ("ta_wide", trivially_augmented)):
            with self.subTest(policy=name):
                ours = {picture.tobytes() for picture in self.made(f"auto_augment={name}")[0]}
                self.assertGreater(len(ours), EPOCHS // 4)
                theirs = {np.asarray(picture).tobytes() for picture in can_make(self.image)}
                self.assertEqual(len(ours - theirs), 0, f"of {len(ours)}")

    def test_rotation(self):
        how = transforms.RandomRotation(DEGREES)
        pictures, draws = self.made(f"rotation={DEGREES}")
        for picture, draw in zip(pictures, draws, strict=True):
            degrees = float(np.float32(-DEGREES) + np.float32(2 * DEGREES) * np.float32(draw))
            theirs = F.rotate(self.image, degrees, how.interpolation, how.expand, how.center, how.fill)
            self.assertTrue(np.array_equal(picture, np.asarray(theirs)), degrees)


if __name__ == "__main__":
    unittest.main()
