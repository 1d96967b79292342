"""Decoded pixels are Pillow's `Image.open(file).convert("RGB")`, and what it refuses is refused."""
import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import PIL
from PIL import Image, features

from pictures import chunk, encode, load, lockstep_pictures, random_png, real_pictures, textured


def png_files(rng) -> dict[str, bytes]:
    kinds = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    palette = chunk(b"PLTE", rng.bytes(3 * 200))
    files = {}
    for color, depths in kinds.items():
        for depth in depths:
            size = min(200, 2**depth) * 3
            before = chunk(b"PLTE", rng.bytes(size)) if color == 3 else b""
            files[f"color {color} depth {depth}"] = random_png(rng, depth, color, before)
    files["palette, transparent"] = random_png(rng, 8, 3, palette + chunk(b"tRNS", rng.bytes(100)))
    files["grey, transparent"] = random_png(rng, 8, 0, chunk(b"tRNS", b"\0\x32"))
    files["16-bit grey, transparent"] = random_png(rng, 16, 0, chunk(b"tRNS", b"\0\x32"))
    files["RGB, transparent"] = random_png(rng, 8, 2, chunk(b"tRNS", b"\0\x32\0\x32\0\x32"))
    files["gamma"] = random_png(rng, 8, 2, chunk(b"gAMA", b"\0\1\x86\xa0"))
    files["filtered"] = encode(textured(rng, 40, 31), "PNG")
    return files


def jpeg_files(rng) -> dict[str, bytes]:
    files = {}
    for quality in (30, 75, 95, 100):
        for subsampling in (0, 1, 2):
            for progressive in (False, True):
                files[f"quality {quality} subsampling {subsampling} progressive {progressive}"] = encode(
                    textured(rng, 67, 91), "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)
    files["grey"] = encode(textured(rng, 50, 33, 1), "JPEG", "L")
    files["cmyk"] = encode(textured(rng, 50, 33, 4), "JPEG", "CMYK")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned
    files["orientation"] = encode(textured(rng, 50, 33), "JPEG", exif=exif)
    files["one pixel"] = encode(textured(rng, 1, 1), "JPEG")
    return files


def untidy_jpeg_files(rng) -> dict[str, bytes]:
    """What libjpeg passes over."""
    tidy = encode(textured(rng, 120, 140), "JPEG", quality=90)

    def before(marker: int, junk: bytes) -> bytes:
        place = tidy.index(bytes([0xff, marker]))
        return tidy[:place] + junk + tidy[place:]

    return {"zeros before tables": before(0xdb, b"\0\0\0"), "text before frame": before(0xc0, b"hello"),
            "FF 00 between segments": before(0xdb, b"\xff\0"), "fill bytes": before(0xdb, b"\xff\xff\xff"),
            "short APP0": tidy[:4] + b"\0\2" + tidy[6:], "bytes behind the end": tidy + b"junk" * 50,
            "two pictures": tidy + tidy,
            "comment with markers": tidy[:2] + b"\xff\xfe\0\x0a" + b"\xff\xd8\xff\xc0\0\0\0\1" + tidy[2:]}


class Comparison(unittest.TestCase):
    def compare(self, paths: list[pathlib.Path]):
        """Pillow brings a libjpeg-turbo of its own, whose integer arithmetic is the same as that of Debian's."""
        total = 0
        cases = [{"file": path, "later": later} for path in paths for later in (False, True)]
        for case, ours in zip(cases, lockstep_pictures(cases), strict=True):
            path = case["file"]
            with self.subTest(path=path.name), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's word on transparent palettes
                theirs = np.asarray(load(path))
                self.assertIsInstance(ours, np.ndarray, ours)
                self.assertEqual(ours.shape, theirs.shape)
                total += theirs.size
                self.assertEqual(np.abs(ours.astype(int) - theirs).max(), 0)
        print(f"{len(paths)} pictures, {total} samples beside Pillow {PIL.__version__} with libjpeg-turbo "
              f"{features.version('libjpeg_turbo')}", flush=True)
        self.assertGreater(total, 0)


class Generated(Comparison):
    def compare_files(self, files: dict[str, bytes]):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in files.items():
                paths.append(pathlib.Path(folder, name))
                paths[-1].write_bytes(content)
            self.compare(paths)

    def test_png_of_every_kind(self):
        self.compare_files(png_files(np.random.default_rng(1)))

    def test_jpeg_of_every_kind(self):
        self.compare_files(jpeg_files(np.random.default_rng(2)))

    def test_untidy_jpeg(self):
        files = untidy_jpeg_files(np.random.default_rng(4))
        self.compare_files(files)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                with self.subTest(name=name):
                    path = pathlib.Path(folder, name)
                    path.write_bytes(content)
                    (ours,) = lockstep_pictures([{"file": path, "later": True, "steps": [["crop", 50, 60, 20, 30]]}])
                    self.assertIsInstance(ours, np.ndarray, ours)
                    np.testing.assert_array_equal(ours, np.asarray(load(path))[50:70, 60:90])

    def test_refusals(self):
        """What Pillow refuses, we refuse. (The converse does not hold: we also refuse wrong checksums.)"""
        rng = np.random.default_rng(3)
        jpeg = encode(textured(rng, 30, 30), "JPEG")
        progressive = encode(textured(rng, 30, 30), "JPEG", progressive=True)
        plain = encode(textured(rng, 30, 30), "PNG")
        files = {"empty": b"", "text": b"this is no picture", "huge": random_png(rng, 8, 0)[:16] + b"\x7f" * 40}
        for name, content in (("jpeg", jpeg), ("progressive", progressive), ("png", plain)):
            for kept in (3, 10, 30, len(content) // 2, len(content) - 40):
                files[f"{name} cut {kept}"] = content[:kept]
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.write_bytes(content)
                with self.subTest(name=name):
                    with self.assertRaises((OSError, SyntaxError, Image.DecompressionBombError)):
                        load(path)
                    (ours,) = lockstep_pictures([{"file": path}])
                    self.assertIsInstance(ours, str)
                    self.assertIn(str(path), ours)


class Real(Comparison):
    def test_photographs(self):
        self.compare(real_pictures("flowers", "val", 20) + real_pictures("cifar10-small", "val", 20))


if __name__ == "__main__":
    unittest.main()
