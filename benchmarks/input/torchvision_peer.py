"""torchvision's data set + torch's DataLoader, measured turn by turn for lockstep-bench-input.

The program starts it with one argument, a JSON object: data_path, kind (folder, memory, mnist), transforms (cifar,
photos, mnist), mean, std, batch_size, workers. Prints {"contenders": [...], "about": ...}; then answers each line
"NUMBER-OF-CONTENDER SAMPLES" with the seconds that so many samples took.
"""
import json
import sys
import time

import numpy
import PIL
import PIL.Image
import torch
import torchvision
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms as v1
from torchvision.datasets import CIFAR10, MNIST, ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2


def steps(module, name: str) -> list:
    if name == "cifar":
        return [module.RandomCrop(32, padding=4), module.RandomHorizontalFlip()]
    if name == "photos":
        return [module.RandomResizedCrop(224), module.RandomHorizontalFlip()]
    return []


def installed_transform(config: dict):
    """As the tutorials write it."""
    return v1.Compose([*steps(v1, config["transforms"]), v1.ToTensor(), v1.Normalize(config["mean"], config["std"])])


def tuned_transform(config: dict):
    """For tensors of bytes: no Pillow in between."""
    return v2.Compose([*steps(v2, config["transforms"]), v2.ToDtype(torch.float32, scale=True),
                       v2.Normalize(config["mean"], config["std"])])


class CifarPixels(CIFAR10):
    """CIFAR10 with the pixels of a folder in the place of its own files; reading a sample is CIFAR10's."""

    def __init__(self, folder: ImageFolder, transform):
        pictures = [numpy.asarray(folder.loader(path)) for path, _ in folder.samples]
        self.data, self.targets = numpy.stack(pictures), folder.targets
        self.transform, self.target_transform = transform, None


class PixelTensors(torch.utils.data.Dataset):
    """The least that a Python data set can do: [N, channels, height, width] bytes, indexed."""

    def __init__(self, pixels: torch.Tensor, targets: list[int], transform):
        self.pixels, self.targets, self.transform = pixels, targets, transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(self.pixels[index]), self.targets[index]


def mnist(config: dict) -> MNIST:
    """MNIST of the IDX files in the folder, wherever they lie."""
    from torchvision.datasets.mnist import read_image_file, read_label_file
    import gzip, pathlib, tempfile
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
            places = [pathlib.Path(config["data_path"], inner) for inner in ("", "MNIST/raw")]
            file = next(place / (name + end) for place in places for end in ("", ".gz") if (place / (name + end)).exists())
            if file.suffix == ".gz":
                pathlib.Path(scratch, name).write_bytes(gzip.decompress(file.read_bytes()))
                file = pathlib.Path(scratch, name)
            files.append(str(file))
        data_set = MNIST.__new__(MNIST)
        data_set.data, data_set.targets = read_image_file(files[0]), read_label_file(files[1])
    data_set.transform, data_set.target_transform = installed_transform(config), None
    return data_set


def data_sets(config: dict):
    """The same samples, as installed and tuned."""
    if config["kind"] == "mnist":
        plain = mnist(config)
        return plain, PixelTensors(plain.data[:, None], plain.targets.tolist(), tuned_transform(config))
    folder = ImageFolder(config["data_path"], installed_transform(config))
    if config["kind"] == "memory":
        plain = CifarPixels(folder, installed_transform(config))
        pixels = torch.from_numpy(plain.data).permute(0, 3, 1, 2).contiguous()
        return plain, PixelTensors(pixels, plain.targets, tuned_transform(config))
    return folder, ImageFolder(config["data_path"], tuned_transform(config),
                               loader=lambda path: decode_image(read_file(path), ImageReadMode.RGB))


class Contender:
    def __init__(self, name: str, data_set, threads: int, **loading):
        self.name, self.threads, self.loading = name, threads, loading
        self.sampler = RandomSampler(data_set, num_samples=1)
        self.loader = DataLoader(data_set, sampler=self.sampler, drop_last=True, **loading)

    def seconds(self, samples: int) -> float:
        """One pass over so many samples in random order; workers of an earlier turn are kept."""
        torch.set_num_threads(self.threads)
        self.sampler._num_samples = samples
        began = time.monotonic()
        batches = sum(1 for _ in self.loader)
        took = time.monotonic() - began
        if batches * self.loading["batch_size"] != samples:
            raise SystemExit(f"{self.name}: {batches} batches for {samples} samples")
        return took


def contenders(config: dict) -> list[Contender]:
    installed, tuned = data_sets(config)
    batch, workers, cores = config["batch_size"], config["workers"], torch.get_num_threads()
    some = dict(num_workers=workers, persistent_workers=True)
    return [
        Contender("torchvision, 0 workers", installed, cores, batch_size=batch),
        Contender(f"torchvision, {workers} workers", installed, cores, batch_size=batch, **some),
        Contender("torchvision tuned, 0 workers", tuned, 1, batch_size=batch),
        Contender(f"torchvision tuned, {workers} workers", tuned, 1, batch_size=batch, prefetch_factor=4, **some),
    ]


def main():
    config = json.loads(sys.argv[1])
    everyone = contenders(config)
    about = f"torchvision {torchvision.__version__}, torch {torch.__version__}, Pillow {PIL.__version__}"
    print(json.dumps({"contenders": [contender.name for contender in everyone], "about": about}), flush=True)
    for line in sys.stdin:
        number, samples = map(int, line.split())
        print(everyone[number].seconds(samples), flush=True)


if __name__ == "__main__":
    main()
