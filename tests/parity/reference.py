"""Data-parallel training as PyTorch does it: DistributedDataParallel over Gloo, one process per rank."""
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import socket
import unittest.mock

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DistributedSampler

from files import read_images, read_safetensors
from models import MODELS


@dataclasses.dataclass
class Job:
    """One training run; the fields bear the names of the flags of `lockstep train`."""
    model: str
    dataset: str  # "digits", "mnist" or "imagefolder"; read from data_path here in all cases
    data_path: str
    opt: str
    lr: float
    batch_size: int
    max_steps: int
    weights: str | None = None  # a safetensors file; None: the initial weights of the seed
    momentum: float = 0
    weight_decay: float = 0
    seed: int = 0
    evaluate: bool = False
    transforms: str | None = None
    amp: str | None = None  # "bf16": forward and loss under autocast
    channels_last: bool = False
    ieee_sqrt: bool = False  # replace torch's square root by ieee_sqrt() below


def ieee_sqrt(tensor: torch.Tensor) -> torch.Tensor:
    """Correctly rounded. torch.sqrt on CPU is MKL's: up to a unit in the last place off, by type of CPU."""
    return torch.from_numpy(numpy.sqrt(tensor.numpy()))


def make_optimizer(job: Job, parameters) -> torch.optim.Optimizer:
    common = {"lr": job.lr, "weight_decay": job.weight_decay}
    if job.opt == "adam":
        return torch.optim.Adam(parameters, **common)
    if job.opt == "adamw":
        return torch.optim.AdamW(parameters, **common)
    return torch.optim.SGD(parameters, momentum=job.momentum, nesterov=job.opt == "sgd_nesterov", **common)


def batches(job: Job, images: torch.Tensor, labels: torch.Tensor):
    """This rank's batches, epoch after epoch, without end."""
    sampler = DistributedSampler(labels, seed=job.seed)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for indices in BatchSampler(sampler, job.batch_size, drop_last=False):
            yield images[indices].to(torch.float32).div(255), labels[indices]
        epoch += 1


@functools.cache
def read_set(dataset: str, data_path: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The training half: pixels uint8 [N, channels, height, width] and labels int64 [N]."""
    if dataset != "imagefolder":
        return read_images(data_path, "train")
    pictures = torchvision.datasets.ImageFolder(f"{data_path}/train", torchvision.transforms.PILToTensor())
    pixels, labels = zip(*pictures)
    return torch.stack(pixels), torch.tensor(labels)


def memory_format(job: Job):
    """copy=True: without it a tensor of one channel keeps its strides and is computed as before."""
    def to_channels_last(tensor):
        return tensor.to(memory_format=torch.channels_last, copy=True) if tensor.dim() == 4 else tensor
    return to_channels_last if job.channels_last else lambda tensor: tensor


def accuracy(model, images, labels) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(pixels.float().div(255)).argmax(1) == target).sum())
            for pixels, target in zip(images.split(500), labels.split(500)))
    return right / len(labels)


def train(job: Job) -> dict:
    """Runs in every rank. The loss of each step is the mean over ranks, before the update."""
    torch.manual_seed(job.seed)
    model = MODELS[job.model]()
    if job.weights:
        model.load_state_dict(read_safetensors(job.weights))
    formatted = memory_format(job)
    for parameter in model.parameters():
        parameter.data = formatted(parameter.data)
    ddp = DistributedDataParallel(model)
    optimizer = make_optimizer(job, ddp.parameters())
    losses = []
    for _, (images, labels) in zip(range(job.max_steps), batches(job, *read_set(job.dataset, job.data_path))):
        with torch.autocast("cpu", torch.bfloat16, enabled=job.amp == "bf16"):
            loss = F.cross_entropy(ddp(formatted(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().double())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    result = {"losses": (losses / dist.get_world_size()).tolist()}
    if job.evaluate:
        result["top1"] = accuracy(model, *read_images(job.data_path, "t10k"))
    return result


def worker(rank: int, world_size: int, port: int, jobs: list[Job], output: str):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size,
                            timeout=datetime.timedelta(seconds=120))
    results = []
    for job in jobs:
        with unittest.mock.patch.object(torch.Tensor, "sqrt", ieee_sqrt if job.ieee_sqrt else torch.Tensor.sqrt):
            results.append(train(job))
    if rank == 0:
        pathlib.Path(output).write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
    # Gloo's threads may still hold tensors when the interpreter ends, which then aborts now and then
    # ("terminate called without an active exception"): all is written, so leave without its clean-up.
    os._exit(0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(jobs: list[Job], output: str, world_size: int = 2) -> list[dict]:
    """Trains the jobs one after the other on world_size processes, which are started once."""
    # Forked, they need not import torch again; nothing has run here that would have left threads behind.
    torch.multiprocessing.start_processes(worker, (world_size, free_port(), jobs, output), world_size,
                                          start_method="fork")
    return json.loads(pathlib.Path(output).read_text())
