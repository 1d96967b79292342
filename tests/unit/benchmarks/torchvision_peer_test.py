"""The pictures that the batched peers make are the right ones: each has a crop and a flip of its own, its label stays with
it, and the numbers are those of torchvision's transforms."""
import importlib.util
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

if importlib.util.find_spec("torchvision") is None:
    print("torchvision is needed: scripts/bootstrap --tests installs it")
    sys.exit(77)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "benchmarks/input"))
import torch  # noqa: E402
import torchvision  # noqa: E402
import torchvision_peer as peer  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

CIFAR = {"kind": "memory", "transforms": "cifar", "in_memory": False, "mean": [0.4914, 0.4822, 0.4465],
         "std": [0.2470, 0.2435, 0.2616], "batch_size": 8, "workers": 2}
MNIST = {**CIFAR, "kind": "mnist", "transforms": "mnist", "mean": [0.1307], "std": [0.3081]}
COUNT = 40


def made_up(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def expected(config: dict, picture: torch.Tensor, top=peer.PADDING, left=peer.PADDING, flipped=False) -> torch.Tensor:
    """By torchvision's own functions, one picture at a time."""
    if config["transforms"] == "cifar":
        picture = functional.crop(functional.pad(picture, [peer.PADDING]), top, left, 32, 32)
        picture = functional.horizontal_flip(picture) if flipped else picture
    return v2.Normalize(config["mean"], config["std"])(v2.ToDtype(torch.float32, scale=True)(picture))


class Batches(unittest.TestCase):
    INDICES = [3, 0, 39, 3, 17, 21, 8, 5]

    def check(self, config: dict, data_set, pictures):
        """Against given draws."""
        top, left, flipped = peer.draw_crops(len(self.INDICES))
        with mock.patch.object(peer, "draw_crops", return_value=(top, left.clone(), flipped)):
            batch, labels = data_set.__getitems__(self.INDICES)
        self.assertEqual((batch.dtype, batch.shape[0]), (torch.float32, len(self.INDICES)))
        self.assertEqual(labels.tolist(), [index % 10 for index in self.INDICES])
        for place, index in enumerate(self.INDICES):
            right = expected(config, pictures[index], int(top[place]), int(left[place]), bool(flipped[place]))
            torch.testing.assert_close(batch[place], right, rtol=0, atol=1e-5)

    def test_pixels_without_augmentation(self):
        pixels, targets = made_up(COUNT, 1, 28, 28), [i % 10 for i in range(COUNT)]
        self.check(MNIST, peer.BatchedPixels(MNIST, pixels, targets), pixels)
        self.check(MNIST, peer.BatchedFloats(MNIST, pixels, targets), pixels)

    def test_crops_of_pixels_in_memory(self):
        pixels = made_up(COUNT, 3, 32, 32)
        self.check(CIFAR, peer.BatchedCrops(CIFAR, pixels, [i % 10 for i in range(COUNT)]), pixels)

    def test_crops_of_decoded_pictures(self):
        pixels = made_up(COUNT, 3, 32, 32)
        self.check(CIFAR, peer.BatchedPictures(CIFAR, [i % 10 for i in range(COUNT)], pixels.__getitem__), pixels)

    def test_photographs_have_crops_of_their_own(self):
        config = {**CIFAR, "kind": "folder", "transforms": "photos"}
        picture = made_up(3, 300, 200)
        data_set = peer.BatchedPictures(config, [0] * COUNT, lambda _: picture)
        batch, _ = data_set.__getitems__(list(range(4)))
        self.assertEqual(tuple(batch.shape), (4, 3, 224, 224))
        self.assertFalse(any(torch.equal(batch[0], other) for other in batch[1:]))
        limits = data_set.normalize(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1))
        self.assertTrue((batch >= limits[0]).all() and (batch <= limits[1]).all())

    def test_files_are_decoded(self):
        with tempfile.TemporaryDirectory() as folder:
            for index in range(4):
                (pathlib.Path(folder) / f"class{index}").mkdir()
                torchvision.io.write_png(made_up(4, 3, 32, 32)[index], f"{folder}/class{index}/a.png")
            config = {**CIFAR, "kind": "folder", "data_path": folder}
            for in_memory in (False, True):
                _, tuned = peer.data_sets(config)
                data_set = peer.batched_set({**config, "in_memory": in_memory}, tuned)
                with mock.patch.object(Batches, "INDICES", [3, 0, 2, 3]):
                    self.check(config, data_set, made_up(4, 3, 32, 32))


class Draws(unittest.TestCase):
    def test_are_of_each_picture_and_reach_every_place(self):
        top, left, flipped = (values.tolist() for values in peer.draw_crops(20_000))
        self.assertEqual(len(set(zip(top, left, flipped))), 9 * 9 * 2)
        self.assertEqual((min(top), max(top), min(left), max(left)), (0, 8, 0, 8))
        self.assertAlmostEqual(sum(flipped) / len(flipped), 0.5, delta=0.03)

    def test_order_meets_every_picture_once_an_epoch(self):
        order = peer.shuffled(COUNT, 2 * COUNT + 5).tolist()
        for epoch in range(2):
            self.assertEqual(sorted(order[epoch * COUNT:(epoch + 1) * COUNT]), list(range(COUNT)))
        self.assertEqual(len(order), 2 * COUNT + 5)


class Ways(unittest.TestCase):
    """By loader, loop and threads each picture comes as often, with its label."""

    def setUp(self):
        values = torch.arange(COUNT, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 28, 28).contiguous()
        self.data_set = peer.BatchedPixels(MNIST, values, list(range(COUNT)))

    def test_bring_every_picture(self):
        right = {index: expected(MNIST, torch.full((1, 28, 28), index, dtype=torch.uint8)) for index in range(COUNT)}
        whole = dict(batch_size=8, collate_fn=peer.as_it_is)
        ways = {"loader": peer.by_loader(self.data_set, **whole), "loop": peer.by_loop(self.data_set, 8),
                "workers": peer.by_loader(self.data_set, num_workers=1, **whole),
                "threads": peer.by_threads(self.data_set, 8, 2)}
        for name, batches in ways.items():
            with self.subTest(name):
                seen = []
                for pictures, labels in batches(COUNT):
                    seen += labels.tolist()
                    for picture, label in zip(pictures, labels.tolist()):
                        torch.testing.assert_close(picture, right[label], rtol=0, atol=1e-5)
                self.assertEqual(sorted(seen), list(range(COUNT)))

    def test_a_contender_that_makes_less_is_found(self):
        short = peer.Contender("short", "tuned", 1, 8, lambda samples: peer.by_loop(self.data_set, 8)(samples - 8))
        with self.assertRaisesRegex(SystemExit, "short: 32 pictures for 40"):
            short.seconds(COUNT)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
