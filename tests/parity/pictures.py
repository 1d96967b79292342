"""Pictures for the parity tests of lockstep/data, and what Lockstep makes of them."""
import io
import json
import pathlib
import struct
import subprocess
import tempfile
import unittest
import zlib

import numpy as np
import torch
from PIL import Image

from lockstep import BIN, DATA, DEADLINE_SECONDS, need_data


def image_probe(*arguments, **request) -> list[str]:
    return subprocess.run([BIN / "image_probe", *arguments], input=json.dumps(request), text=True, check=True,
                          timeout=DEADLINE_SECONDS, stdout=subprocess.PIPE).stdout.splitlines()


def numbers(line: dict, normalize: dict | None, content: bytes) -> np.ndarray | torch.Tensor:
    height, width, channels = line["shape"]
    if normalize is None:
        return np.frombuffer(content, np.uint8).reshape(height, width, channels)
    flat = torch.frombuffer(bytearray(content), dtype=torch.bfloat16 if normalize["bfloat16"] else torch.float32)
    if normalize["channels_last"]:
        return flat.reshape(height, width, channels).permute(2, 0, 1)
    return flat.reshape(channels, height, width)


def lockstep_pictures(cases: list[dict]) -> list:
    """What Lockstep makes of each {"file", "steps", "normalize"}: pixels [height, width, channels], or, if
    normalised, a tensor [channels, height, width], or the message of the refusal."""
    full = [{"steps": [], "normalize": None} | case | {"file": str(case["file"])} for case in cases]
    with tempfile.NamedTemporaryFile() as file:
        lines = [json.loads(line) for line in image_probe(output=file.name, cases=full)]
        content = file.read()
    results, offset = [], 0
    for case, line in zip(full, lines, strict=True):
        if "error" in line:
            results.append(line["error"])
            continue
        results.append(numbers(line, case["normalize"], content[offset:offset + line["bytes"]]))
        offset += line["bytes"]
    assert offset == len(content)
    return results


def load(path) -> Image.Image:
    """As torchvision's pil_loader."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def real_pictures(name: str, split: str, per_class: int) -> list[pathlib.Path]:
    """The first pictures of each class of a real set; the test is skipped when the set is not there."""
    need_data(f"{name}/{split}")
    folder = DATA / name / split
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    return [picture for one in classes for picture in sorted(one.iterdir())[:per_class]]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(size, depth: int, color: int, raw: bytes, before: bytes = b"") -> bytes:
    """A PNG of unfiltered rows `raw`, each beginning with its zero byte."""
    header = struct.pack(">IIBBBBB", *size, depth, color, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(raw))
            + chunk(b"IEND", b""))


def random_png(rng, depth: int, color: int, before: bytes = b"") -> bytes:
    width, height = 21, 9
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    row = (width * samples * depth + 7) // 8
    raw = b"".join(b"\0" + rng.bytes(row) for _ in range(height))
    return png((width, height), depth, color, raw, before)


def textured(rng, height: int, width: int, channels: int = 3) -> np.ndarray:
    """Smooth colours, edges and noise: something of everything that resampling meets."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        a, b, phase = rng.uniform(-0.3, 0.3, 2).tolist() + [rng.uniform(0, 6)]
        plane = 127 + 100 * np.sin(a * x + b * y + phase) + rng.normal(0, 12, (height, width))
        plane[(x * 0.7 + y > height) & (rng.random((height, width)) < 0.9)] *= 0.3
        planes.append(plane)
    pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    pixels[: height // 5, : width // 5] = 255
    pixels[-(height // 5):, -(width // 5):] = 0
    return pixels


def encode(pixels: np.ndarray, kind: str, mode: str = "RGB", **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, kind, **options)
    return file.getvalue()


def after(case: dict, functions: dict) -> Image.Image:
    """The case's picture after its steps, each a function by name with its arguments."""
    image = load(case["file"])
    for name, *arguments in case["steps"]:
        image = functions[name](image, *arguments)
    return image


class PictureComparison(unittest.TestCase):
    """Compares what Lockstep makes of cases with torchvision(case), which the tests define: equal, nothing less, but
    for what torchvision itself computes in floats: there samples may differ by LEVELS."""

    LEVELS = 0

    def setUp(self):
        self.rng = np.random.default_rng(7)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, height: int, width: int) -> pathlib.Path:
        path = self.folder / f"{height}x{width}.png"
        path.write_bytes(encode(textured(self.rng, height, width), "PNG"))
        return path

    def compare(self, cases: list[dict]):
        total = different = 0
        for case, ours in zip(cases, lockstep_pictures(cases), strict=True):
            with self.subTest(case=case):
                self.assertNotIsInstance(ours, str, ours)
                theirs = self.torchvision(case)
                self.assertEqual(ours.shape, theirs.shape)
                if self.LEVELS:
                    farthest = int(np.abs(ours.astype(int) - theirs.astype(int)).max())
                    self.assertLessEqual(farthest, self.LEVELS)
                    different += int((ours != theirs).sum())
                else:
                    self.assertTrue((torch.equal if isinstance(theirs, torch.Tensor) else np.array_equal)(ours, theirs))
                total += int(np.prod(theirs.shape))
        print(f"{len(cases)} cases, {total} numbers, {different} by at most {self.LEVELS} different", flush=True)
        self.assertGreater(total, 0)
