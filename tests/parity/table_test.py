"""read_table gives the numbers that Python's csv, float() and torch give, to the bit."""
import csv
import math
import pathlib
import random
import struct
import tempfile
import unittest

import torch

import lockstep

DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


def any_double(rng: random.Random) -> float:
    while True:
        (value,) = struct.unpack("<d", rng.randbytes(8))
        if math.isfinite(value):
            return value


def number_text(rng: random.Random, dtype: str) -> str:
    if dtype == "int64":
        return str(rng.randint(-2**63, 2**63 - 1))
    value = any_double(rng) if dtype == "float64" else rng.gauss(0, 1) * 10.0**rng.randint(-46, 37)
    return rng.choice([repr(value), f"{value:.3e}", f" {value:+.17g}", f"{rng.gauss(0, 1):.25f}", f"{rng.random():.1f}",
                       "nan", "-inf", "1e-400", "-1e-5000", f"{'0.':0<5002}1", "0", "-0.0", f"{rng.randint(0, 10**30)}"])


def python_numbers(path, delimiter: str, dtype: str) -> torch.Tensor:
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    parse = int if dtype == "int64" else float
    return torch.tensor([[parse(field) for field in row] for row in rows[1:]], dtype=DTYPES[dtype])


class Tables(unittest.TestCase):
    def compare(self, path, delimiter: str, dtype: str, world_size: int):
        expected = python_numbers(path, delimiter, dtype)
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder, "numbers")
            lockstep.probe("table", path=str(path), delimiter=delimiter, dtype=dtype, world_size=world_size,
                           output=str(output))
            ours = torch.frombuffer(bytearray(output.read_bytes()), dtype=DTYPES[dtype]).reshape(expected.shape)
        self.assertGreater(expected.numel(), 0)
        bits = {"float32": torch.int32, "float64": torch.int64, "int64": torch.int64}[dtype]
        different = (ours.view(bits) != expected.view(bits)) & ~(ours.isnan() & expected.isnan())
        self.assertEqual(int(different.sum()), 0)

    def test_numbers_to_the_bit(self):
        rng = random.Random(1)
        for dtype in DTYPES:
            for delimiter, quoting, end in ((",", csv.QUOTE_MINIMAL, "\n"), ("\t", csv.QUOTE_ALL, "\r\n")):
                with self.subTest(dtype=dtype, delimiter=delimiter), tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder, "a.csv")
                    with open(path, "w", newline="", encoding="utf-8-sig") as file:
                        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end)
                        writer.writerow(["ä", 'say "x"', "two\nlines"])
                        for _ in range(5000):
                            writer.writerow([number_text(rng, dtype) for _ in range(3)])
                            if rng.random() < 0.01:
                                file.write(end)
                    for world_size in (1, 3):
                        self.compare(path, delimiter, dtype, world_size)


if __name__ == "__main__":
    unittest.main()
