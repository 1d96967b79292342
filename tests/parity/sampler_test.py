"""Our samplers give the orders of Python's, index for index."""
import itertools
import pathlib
import tempfile
import unittest

import torch
from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler

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


def python_random(case: dict) -> list[int]:
    generator = torch.Generator().manual_seed(case["seed"] + case["epoch"])
    if case["sampler"] == "weighted":
        return list(WeightedRandomSampler(case["weights"], case["num_samples"], case["replacement"], generator))
    return list(RandomSampler(range(case["size"]), case["replacement"], case["num_samples"], generator))


def python_repeated(case: dict) -> list[int]:
    """RASampler of torchvision's reference trainer, all its ranks one behind the other, as it is defined there: a
    permutation, each entry `repetitions` times in a row, dealt out, of each rank as many as an epoch of whole 256s has.
    Here entries are numbered so that repetitions differ."""
    generator = torch.Generator().manual_seed(case["seed"] + case["epoch"])
    order = [index + r * case["size"] for index in torch.randperm(case["size"], generator=generator).tolist()
             for r in range(case["repetitions"])]
    total = -(-len(order) // case["replicas"]) * case["replicas"]
    order += order[:total - len(order)]
    selected = case["size"] // 256 * 256 // case["replicas"]
    ranks = [order[rank::case["replicas"]][:selected] for rank in range(case["replicas"])]
    return [entry for step in zip(*ranks) for entry in step]  # what all ranks take, in the order in which they do


class Sampler(unittest.TestCase):
    def compare(self, command: str, cases: list[dict], python):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "indices")
            lockstep.probe(command, cases=cases, output=str(file))
            ours = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.int64).tolist()
        for case in cases:
            theirs = python(case)
            self.assertEqual(ours[:len(theirs)], theirs, case)
            del ours[:len(theirs)]
        self.assertEqual(ours, [])

    def test_distributed(self):
        self.compare("sampler", [
            {"size": size, "replicas": replicas, "seed": seed, "epoch": epoch, "shuffle": shuffle, "drop_last": drop}
            for (size, replicas), (seed, epoch), shuffle, drop in itertools.product(
                SHAPES, SEEDS_AND_EPOCHS, (True, False), (True, False))
        ], python_order)

    def test_random(self):
        sizes = [(60000, 60000), (60000, 100), (1000, 2500), (31, 96), (10, 33), (7, 32), (1, 1), (1, 70)]
        self.compare("orders", [
            {"sampler": "random", "size": size, "num_samples": count, "replacement": replacement, "seed": seed,
             "epoch": epoch}
            for (size, count), replacement, (seed, epoch) in itertools.product(sizes, (True, False), SEEDS_AND_EPOCHS)
        ], python_random)

    def test_repeated(self):
        self.compare("orders", [
            {"sampler": "repeated", "size": size, "repetitions": repetitions, "replicas": replicas,
             "num_samples": size // 256 * 256 // replicas * replicas, "seed": seed, "epoch": epoch}
            for size, repetitions, replicas, (seed, epoch) in itertools.product(
                (256, 1001, 5000), (1, 2, 3, 5), (1, 2, 3, 4), SEEDS_AND_EPOCHS[2:])
        ], python_repeated)

    def test_weighted(self):
        generator = torch.Generator().manual_seed(1)
        sets = [[1.0], [0.1, 0.9, 0.4, 0.7, 3.0, 0.6], [0.0, 1e-12, 0.0, 5.0],
                torch.rand(1000, generator=generator, dtype=torch.float64).tolist(),
                torch.rand(100_000, generator=generator, dtype=torch.float64).tolist()]
        cases = []
        for weights, replacement, (seed, epoch) in itertools.product(sets, (True, False), SEEDS_AND_EPOCHS):
            possible = sum(weight > 0 for weight in weights)
            cases += [{"sampler": "weighted", "weights": weights, "num_samples": count, "replacement": replacement,
                       "seed": seed, "epoch": epoch} for count in {1, (possible + 1) // 2, possible}]
        self.compare("orders", cases, python_random)


if __name__ == "__main__":
    unittest.main()
