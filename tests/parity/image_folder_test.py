"""ImageFolder has the classes and samples of torchvision's, in its order."""
import json
import os
import pathlib
import tempfile
import unittest

from torchvision.datasets import ImageFolder

from lockstep import DATA, need_data
from pictures import image_probe


class Folders(unittest.TestCase):
    def compare(self, path):
        (line,) = image_probe("folder", path=str(path))
        ours, theirs = json.loads(line), ImageFolder(path)
        self.assertEqual(ours["classes"], theirs.classes)
        self.assertEqual([tuple(sample) for sample in ours["samples"]], theirs.samples)
        print(f"{len(theirs.classes)} classes, {len(theirs.samples)} samples", flush=True)
        self.assertGreater(len(theirs.samples), 0)

    def test_names_of_all_kinds(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
            names = ["b/2.png", "b/10.PNG", "b/deep/1.jpeg", "b/deep/sub/1.png", "b/deep-er/1.Jpg", "B/x.jpg", "ä/é.png",
                     "z/日本/語.jpg", "z/emoji 🌼.png", "z/\uff5a.png", ".hidden/.dot.png", "b/notes.txt", "10/a.jpg",
                     "9/a.jpg", "sp ace/a b.jpg", "sp-ace/a-b.jpg"]
            for name in names:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            pathlib.Path(elsewhere, "linked.png").touch()
            os.symlink(elsewhere, pathlib.Path(folder, "link"))
            os.symlink(elsewhere, pathlib.Path(folder, "b", "more"))
            os.symlink(pathlib.Path(elsewhere, "linked.png"), pathlib.Path(folder, "b", "3.png"))
            os.symlink("nowhere", pathlib.Path(folder, "b", "4.png"))
            self.compare(folder)


class Real(Folders):
    test_names_of_all_kinds = None

    def compare_real(self, name: str):
        need_data(f"{name}/train", f"{name}/val")
        for split in ("train", "val"):
            self.compare(DATA / name / split)

    def test_flowers(self):
        self.compare_real("flowers")

    def test_cifar(self):
        self.compare_real("cifar10-small")


if __name__ == "__main__":
    unittest.main()
