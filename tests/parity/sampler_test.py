"""Our DistributedSampler gives Python's order, index for index."""
import itertools
import pathlib
import tempfile
import unittest

import torch
from torch.utils.data import DistributedSampler

import lockstep

SHAPES = [(60000, 2), (60000, 7), (1001, 4), (10, 1), (10, 4), (3, 8), (1, 5)]  # samples, replicas
SEEDS_AND_EPOCHS = [(0, 0), (0, 3), (42, 0), (2**33 + 1, 11)]


def python_order(case: dict) -> list[int]:
    order = []
    for rank in range(case["replicas"]):
        sampler = DistributedSampler(range(case["size"]), case["replicas"], rank, shuffle=case["shuffle"],
                                     seed=case["seed"], drop_last=case["drop_last"])
        sampler.set_epoch(case["epoch"])
        order += list(sampler)
    return order


class Sampler(unittest.TestCase):
    def test_index_for_index(self):
        cases = [
            {"size": size, "replicas": replicas, "seed": seed, "epoch": epoch, "shuffle": shuffle, "drop_last": drop}
            for (size, replicas), (seed, epoch), shuffle, drop in itertools.product(
                SHAPES, SEEDS_AND_EPOCHS, (True, False), (True, False))
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "indices")
            lockstep.probe("sampler", cases=cases, output=str(file))
            ours = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.int64).tolist()
        for case in cases:
            theirs = python_order(case)
            self.assertEqual(ours[:len(theirs)], theirs, case)
            del ours[:len(theirs)]
        self.assertEqual(ours, [])


if __name__ == "__main__":
    unittest.main()
