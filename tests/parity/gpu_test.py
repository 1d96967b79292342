"""Training on a GPU beside Python's PyTorch on the same GPU: the same losses, the same scales of the loss.

  gpu_test.Training | gpu_test.Scaler

Skipped where there is no GPU. By hand, where nothing is built, with lockstep, lockstep-trainer and scaler_probe in
FOLDER and libtorch's folder in LD_LIBRARY_PATH, each for itself:

  LOCKSTEP_BIN=FOLDER python3 tests/parity/run_tests.py gpu_test.Training gpu_test.Scaler

Weights and pictures are in files that both sides read. Both compute by deterministic algorithms and without TF32, so
forward and backward are the same kernels; our update is made on the CPU, Python's on the GPU, which may round
otherwise. float16 and bfloat16 make much of that: a weight that differs in its last bit may be another one in 16 bits.
So there the measure is Python itself, from weights with other last bits.
"""
import dataclasses
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

import lockstep
import reference
import scaler_test
from files import read_safetensors
from reference import Job

STEPS = 20
BATCH = 32
# Differences of a loss, as a part of the first one, since all come near 0: of the first, before any update, and of all,
# in 16 bits as a multiple of what Python differs by from itself, up to a tenth: one odd run of it would let all pass.
FIRST_LIMITS = {None: 1e-5, "bf16": 1e-3, "fp16": 1e-3}
LIMIT = 1e-4
TIMES_ITSELF = 3
MOST = 0.1
# In a process of its own: this one is to know nothing of CUDA.
COUNT_GPUS = """
import ctypes, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
sys.exit(driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0)
"""


def need_gpu():
    if torch.version.cuda is None:
        raise unittest.SkipTest("this torch is for CPUs only")
    if subprocess.run([sys.executable, "-c", COUNT_GPUS], capture_output=True, timeout=60, check=False).returncode != 0:
        raise unittest.SkipTest("no CUDA device: the driver (libcuda.so.1) is not there, or tells of none")


def pictures(count: int, channels: int, side: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of ten classes, each a pattern of its own under noise; bytes, of the same classes for each seed."""
    patterns = torch.randint(128, (10, channels, side, side), generator=torch.Generator().manual_seed(1))
    noise = torch.randint(128, (count, channels, side, side), generator=torch.Generator().manual_seed(seed))
    labels = torch.arange(count) % 10
    return (patterns[labels] + noise).to(torch.uint8), labels.to(torch.uint8)


def write_idx(path: pathlib.Path, content: torch.Tensor):
    head = struct.pack(f">I{content.dim()}I", 0x0800 | content.dim(), *content.shape)
    path.write_bytes(head + content.numpy().tobytes())


def write_sets(folder: pathlib.Path):
    """MNIST's files and CIFAR-10's, an epoch of STEPS batches."""
    for split, count, seed in (("train", STEPS * BATCH, 2), ("t10k", 10, 3)):
        images, labels = pictures(count, 1, 28, seed)
        write_idx(folder / f"{split}-images-idx3-ubyte", images.squeeze(1))
        write_idx(folder / f"{split}-labels-idx1-ubyte", labels)
    images, labels = pictures(STEPS * BATCH, 3, 32, 4)
    records = torch.cat([labels.unsqueeze(1), images.flatten(1)], dim=1)
    for number, part in enumerate(records.chunk(5), 1):
        (folder / f"data_batch_{number}.bin").write_bytes(part.numpy().tobytes())
    (folder / "test_batch.bin").write_bytes(records[:10].numpy().tobytes())


def flip_last_bits(path: str, every: int) -> str:
    """A copy beside the file with another last bit in one of `every` float32 numbers."""
    content = bytearray(pathlib.Path(path).read_bytes())
    (header_size,) = struct.unpack_from("<Q", content)
    for name, entry in json.loads(content[8:8 + header_size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
            torch.frombuffer(content, dtype=torch.int32, count=(end - begin) // 4, offset=begin)[::every] ^= 1
    copy = pathlib.Path(path).with_suffix(f".{every}.safetensors")
    copy.write_bytes(content)
    return str(copy)


def differences_of(losses: list[float], others: list[float]) -> list[float]:
    return [abs(a - b) / others[0] for a, b in zip(losses, others, strict=True)]


def make_jobs(folder: pathlib.Path) -> dict[str, Job]:
    weights = {model: folder / f"{model}.safetensors" for model in ("convnet", "resnet18_cifar")}
    lockstep.initial_weights("convnet", 5, weights["convnet"])
    lockstep.initial_weights("resnet18_cifar", 5, weights["resnet18_cifar"], "--dataset", "cifar10", "--data-path", ".")
    convnet = Job("convnet", "mnist", str(folder), "sgd", lr=1e-2, momentum=0.9, batch_size=BATCH, max_steps=STEPS,
                  seed=7, weights=str(weights["convnet"]), device="cuda:0")
    resnet = dataclasses.replace(convnet, model="resnet18_cifar", dataset="cifar10", transforms="none",
                                 weights=str(weights["resnet18_cifar"]))
    mixed = {"amp": "bf16", "channels_last": True}
    return {"convnet": convnet, "convnet, bf16": dataclasses.replace(convnet, **mixed),
            "convnet, fp16": dataclasses.replace(convnet, amp="fp16"),
            "resnet18": resnet,
            "resnet18, bf16": dataclasses.replace(resnet, **mixed),
            "resnet18, fp16": dataclasses.replace(resnet, amp="fp16", channels_last=True)}


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need_gpu()
        # TF32 rounds weights to 10 bits, so that a last bit would be seen in the loss.
        cls.enterClassContext(unittest.mock.patch.dict(
            os.environ, {"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}))
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        write_sets(cls.folder)
        cls.jobs = make_jobs(cls.folder)
        jobs = dict(cls.jobs)
        for name, job in cls.jobs.items():
            if job.amp:
                jobs |= {(name, every): dataclasses.replace(job, weights=flip_last_bits(job.weights, every))
                         for every in (1, 2, 3)}
        expected = reference.run(list(jobs.values()), cls.folder / "reference.json", world_size=1)
        cls.expected = dict(zip(jobs, expected, strict=True))

    def limit(self, name: str) -> float:
        others = [run["losses"] for key, run in self.expected.items() if key[0] == name]
        if not others:
            return LIMIT
        itself = max(max(differences_of(losses, self.expected[name]["losses"])) for losses in others)
        print(f"GPU, {name}: Python differs from itself by {itself:.1e}")
        return min(TIMES_ITSELF * itself, MOST)

    def trained(self, job: Job, *more, ranks: int = 1, folder: str | None = None) -> list[dict]:
        return lockstep.train(job, folder or tempfile.mkdtemp(dir=self.folder), *more, world_size=ranks)

    def compare(self, name: str, job: Job, events: list[dict], expected: dict):
        theirs = expected["losses"]
        differences = differences_of(lockstep.losses(events), theirs)
        print(f"GPU, {name}: loss {theirs[0]:.4f} to {min(theirs):.4f}, difference of the first {differences[0]:.1e}, "
              f"of the worst {max(differences):.1e}", flush=True)
        self.assertEqual(len(theirs), job.max_steps)
        self.assertEqual(lockstep.scales(events), expected["scales"])
        self.assertLess(min(theirs), 0.9 * theirs[0], "nothing was learned: the comparison shows little")
        self.assertLessEqual(differences[0], FIRST_LIMITS[job.amp])
        self.assertLessEqual(max(differences), self.limit(name))

    def test_losses_of_every_step(self):
        for name, job in self.jobs.items():
            with self.subTest(name):
                self.compare(name, job, self.trained(job), self.expected[name])

    def test_losses_of_two_ranks_on_one_gpu(self):
        """Python's DistributedDataParallel on Gloo, for NCCL refuses that."""
        job = dataclasses.replace(self.jobs["convnet"], batch_size=BATCH // 2)
        expected = reference.run([job], self.folder / "two.json", world_size=2)[0]
        self.compare("convnet, two ranks", job, self.trained(job, ranks=2), expected)

    def test_two_ranks_on_one_gpu_have_the_bits_of_one(self):
        found = []
        for ranks in (1, 2):
            job = dataclasses.replace(self.jobs["resnet18, bf16"], batch_size=BATCH // ranks)
            file = self.folder / f"{ranks}-ranks.safetensors"
            events = self.trained(job, "--logical-shards", 2, "--save-weights", file, ranks=ranks)
            found.append((lockstep.losses(events), read_safetensors(file)))
        (losses, weights), (their_losses, their_weights) = found
        self.assertEqual(losses, their_losses)
        self.assertEqual(weights.keys(), their_weights.keys())
        self.assertTrue(all(torch.equal(weights[name], their_weights[name]) for name in weights))

    def test_resumed_it_goes_on_as_undisturbed(self):
        job, half = self.jobs["convnet, fp16"], STEPS // 2
        whole = self.trained(job)
        folder = tempfile.mkdtemp(dir=self.folder)
        begun = self.trained(dataclasses.replace(job, max_steps=half), "--save-every", half, folder=folder)
        resumed = self.trained(job, "--save-every", half, "--resume", "auto", folder=folder)
        self.assertEqual(lockstep.losses(begun), lockstep.losses(whole)[:half])
        self.assertEqual(lockstep.losses(resumed)[-half:], lockstep.losses(whole)[half:])
        self.assertEqual(lockstep.scales(resumed)[-half:], lockstep.scales(whole)[half:])


class Scaler(scaler_test.Scaler):
    device = "cuda:0"
    limit = 1e-5

    @classmethod
    def setUpClass(cls):
        need_gpu()


if __name__ == "__main__":
    unittest.main()
