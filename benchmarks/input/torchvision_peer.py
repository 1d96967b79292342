"""torchvision's data set + torch's DataLoader, and batches as an expert makes them, measured turn by turn for
lockstep-bench-input.

The program starts it with one argument, a JSON object: data_path, kind (folder, memory, mnist), in_memory, transforms
(cifar, photos, mnist), mean, std, batch_size, workers. Prints {"contenders": [{"name", "kind"}...], "about": ...}; then
answers each line "NUMBER-OF-CONTENDER SAMPLES" with the seconds that so many samples took.
"""
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

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


def as_it_is(batch):
    return batch


class Batched(torch.utils.data.Dataset):
    """Whole batches at once: the indices of a batch in, [batch, channels, height, width] float32 and labels out. Each
    picture has a crop and a flip of its own; what does not depend on the picture is done for all of them together."""

    def __init__(self, config: dict, targets: list[int]):
        mean, std = (torch.tensor(config[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.targets = torch.tensor(targets)

    def __len__(self):
        return len(self.targets)

    def __getitems__(self, indices):
        indices = torch.as_tensor(indices)
        return self.normalize(self.pixels(indices)), self.targets[indices]

    def normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """ToDtype(float32, scale) and Normalize, in two passes over memory that is there."""
        return pixels.to(torch.float32).mul_(self.scale).add_(self.shift)


class BatchedPixels(Batched):
    """Pixels in memory that are not augmented."""

    def __init__(self, config: dict, pixels: torch.Tensor, targets: list[int]):
        super().__init__(config, targets)
        self.all = pixels

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        return self.all.index_select(0, indices)


class BatchedFloats(BatchedPixels):
    """Normalised before the clock: not the work that is measured, but what its end costs."""

    def __init__(self, config: dict, pixels: torch.Tensor, targets: list[int]):
        super().__init__(config, pixels, targets)
        self.all = self.normalize(pixels)

    def __getitems__(self, indices):
        indices = torch.as_tensor(indices)
        return self.pixels(indices), self.targets[indices]


PADDING = 4


def windows(pixels: torch.Tensor) -> torch.Tensor:
    """All crops of pictures that are padded: [picture, channel, top, left, height, width], a view."""
    height, width = (side - 2 * PADDING for side in pixels.shape[2:])
    return pixels.unfold(2, height, 1).unfold(3, width, 1)


def pad(pixels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(pixels, 4 * (PADDING,))


def draw_crops(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each picture: top, left, whether it is flipped."""
    top, left = torch.randint(2 * PADDING + 1, (2, count))
    return top, left, torch.randint(2, (count,))


class BatchedCrops(Batched):
    """RandomCrop(32, padding=4) and RandomHorizontalFlip of pixels in memory, which are padded before, and flipped."""

    def __init__(self, config: dict, pixels: torch.Tensor, targets: list[int]):
        super().__init__(config, targets)
        padded = pad(pixels)
        self.windows = windows(torch.cat([padded, padded.flip(-1)]))

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        top, left, flipped = draw_crops(len(indices))
        left += flipped * (2 * PADDING - 2 * left)  # counted from the other side
        return self.windows[indices + len(self) * flipped, :, top, left]


class BatchedPictures(Batched):
    """Pictures that come one by one, from files or of different sizes: cifar's are of one size, and what follows is done
    for the whole batch; others are augmented one by one and normalised together."""

    def __init__(self, config: dict, targets: list[int], picture: Callable[[int], torch.Tensor]):
        super().__init__(config, targets)
        self.picture, self.alike = picture, config["transforms"] == "cifar"
        each = steps(v2, config["transforms"])
        self.augment = v2.Compose(each) if each else as_it_is

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        pictures = [self.picture(index) for index in indices.tolist()]
        if not self.alike:
            return torch.stack([self.augment(picture) for picture in pictures])
        top, left, flipped = draw_crops(len(pictures))
        pixels = windows(pad(torch.stack(pictures)))[torch.arange(len(pictures)), :, top, left]
        return torch.where(flipped.bool().view(-1, 1, 1, 1), pixels.flip(-1), pixels)


def batched_set(config: dict, tuned) -> Batched:
    """The samples of `tuned`, which has them one by one."""
    def decode(index: int) -> torch.Tensor:
        return decode_image(read_file(tuned.samples[index][0]), ImageReadMode.RGB)

    if config["kind"] == "folder":
        picture = [decode(index) for index in range(len(tuned))].__getitem__ if config["in_memory"] else decode
        return BatchedPictures(config, tuned.targets, picture)
    if config["transforms"] == "photos":
        return BatchedPictures(config, tuned.targets, tuned.pixels.__getitem__)
    return {"mnist": BatchedPixels, "cifar": BatchedCrops}[config["transforms"]](config, tuned.pixels, tuned.targets)


def shuffled(size: int, samples: int) -> torch.Tensor:
    """Epoch after epoch, cut off."""
    return torch.cat([torch.randperm(size) for _ in range(-(-samples // size))])[:samples]


class Contender:
    """`batches(samples)` makes one pass over so many samples in random order."""

    def __init__(self, name: str, kind: str, threads: int, batch_size: int, batches: Callable[[int], Iterable]):
        self.name, self.kind, self.threads, self.batch_size, self.batches = name, kind, threads, batch_size, batches

    def seconds(self, samples: int) -> float:
        torch.set_num_threads(self.threads)
        began = time.monotonic()
        made = 0
        for pictures, labels in self.batches(samples):
            made += len(labels)
        took = time.monotonic() - began
        if made != samples or len(pictures) != self.batch_size or pictures.dtype != torch.float32:
            raise SystemExit(f"{self.name}: {made} pictures for {samples}, the last batch {tuple(pictures.shape)}")
        return took


def by_loader(data_set, **loading) -> Callable[[int], Iterable]:
    """torch's DataLoader; workers of an earlier turn are kept."""
    sampler = RandomSampler(data_set, num_samples=1)
    loader = DataLoader(data_set, sampler=sampler, drop_last=True, **loading)

    def batches(samples: int) -> Iterable:
        sampler._num_samples = samples
        return loader

    return batches


def by_loop(data_set: Batched, batch_size: int) -> Callable[[int], Iterable]:
    """No DataLoader: a permutation, cut into batches."""
    return lambda samples: map(data_set.__getitems__, shuffled(len(data_set), samples).split(batch_size))


def by_threads(data_set: Batched, batch_size: int, threads: int) -> Callable[[int], Iterable]:
    """Batches made ahead by threads, for torch's operators leave Python to others; no process has to be sent anything."""
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def batches(samples: int) -> Iterable:
        ahead = deque()
        for indices in shuffled(len(data_set), samples).split(batch_size):
            ahead.append(pool.submit(data_set.__getitems__, indices))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    return batches


def contenders(config: dict) -> list[Contender]:
    installed, tuned = data_sets(config)
    batch, workers, cores = config["batch_size"], config["workers"], torch.get_num_threads()
    some = dict(num_workers=workers, persistent_workers=True)
    found = [
        ("torchvision, 0 workers", "installed", cores, by_loader(installed, batch_size=batch)),
        (f"torchvision, {workers} workers", "installed", cores, by_loader(installed, batch_size=batch, **some)),
        ("torchvision tuned, 0 workers", "tuned", 1, by_loader(tuned, batch_size=batch)),
        (f"torchvision tuned, {workers} workers", "tuned", 1,
         by_loader(tuned, batch_size=batch, prefetch_factor=4, **some)),
    ]
    data_set, whole = batched_set(config, tuned), dict(batch_size=batch, collate_fn=as_it_is)
    found += [
        ("batched, DataLoader of 0 workers", "tuned", 1, by_loader(data_set, **whole)),
        (f"batched, DataLoader of {workers} workers", "tuned", 1,
         by_loader(data_set, prefetch_factor=4, **whole, **some)),
        ("batched, a loop", "tuned", 1, by_loop(data_set, batch)),
        (f"batched, a loop, torch with {cores} threads", "tuned", cores, by_loop(data_set, batch)),
        (f"batched, {workers} threads ahead", "tuned", 1, by_threads(data_set, batch, workers)),
    ]
    if isinstance(data_set, BatchedPixels):
        floats = BatchedFloats(config, tuned.pixels, tuned.targets)
        found.append(("less work: floats normalised before, a loop", "floor", 1, by_loop(floats, batch)))
    return [Contender(name, kind, threads, batch, batches) for name, kind, threads, batches in found]


def main():
    config = json.loads(sys.argv[1])
    everyone = contenders(config)
    about = f"torchvision {torchvision.__version__}, torch {torch.__version__}, Pillow {PIL.__version__}"
    names = [{"name": contender.name, "kind": contender.kind} for contender in everyone]
    print(json.dumps({"contenders": names, "about": about}), flush=True)
    for line in sys.stdin:
        number, samples = map(int, line.split())
        print(everyone[number].seconds(samples), flush=True)


if __name__ == "__main__":
    main()
