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

from files import read_cifar10, read_images, read_safetensors
from models import MODELS

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclasses.dataclass
class Job:
    """One training run; the fields bear the names of the flags of `lockstep train`."""
    model: str
    dataset: str  # "digits", "mnist", "cifar10" or "imagefolder"; read from data_path here in all cases
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
    label_smoothing: float = 0
    clip_grad_norm: float | None = None
    bias_weight_decay: float | None = None
    lr_scheduler: str | None = None  # "steplr"; one step of it per epoch
    lr_step_size: int | None = None
    lr_warmup_epochs: int = 0
    lr_warmup_method: str | None = None
    lr_warmup_decay: float | None = None
    amp: str | None = None  # "bf16", "fp16": forward and loss under autocast; fp16 with a GradScaler
    channels_last: bool = False
    device: str | None = None  # "cuda:0", for all ranks; None: the CPU
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


def groups_of(job: Job, model) -> list:
    if job.bias_weight_decay is None:
        return list(model.parameters())
    named = list(model.named_parameters())
    biases = [parameter for name, parameter in named if name.endswith("bias")]
    return [{"params": biases, "weight_decay": job.bias_weight_decay},
            {"params": [parameter for name, parameter in named if not name.endswith("bias")]}]


def make_scheduler(job: Job, optimizer):
    """As torchvision's reference trainer makes it."""
    if not job.lr_scheduler:
        return None
    schedulers = torch.optim.lr_scheduler
    main = schedulers.StepLR(optimizer, step_size=job.lr_step_size)
    if not job.lr_warmup_epochs:
        return main
    warmup = schedulers.LinearLR(optimizer, start_factor=job.lr_warmup_decay, total_iters=job.lr_warmup_epochs)
    return schedulers.SequentialLR(optimizer, schedulers=[warmup, main], milestones=[job.lr_warmup_epochs])


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
    if dataset == "cifar10":
        return read_cifar10(data_path)
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


def compute_deterministically():
    """As `lockstep train` computes on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def train(job: Job) -> dict:
    """Runs in every rank. The loss of each step is the mean over ranks, before the update."""
    device = torch.device(job.device or "cpu")
    if device.type != "cpu":
        compute_deterministically()
    torch.manual_seed(job.seed)
    model = MODELS[job.model]()
    if job.weights:
        model.load_state_dict(read_safetensors(job.weights))
    model.to(device)
    formatted = memory_format(job)
    for parameter in model.parameters():
        parameter.data = formatted(parameter.data)
    ddp = DistributedDataParallel(model)
    optimizer = make_optimizer(job, groups_of(job, model))
    scheduler = make_scheduler(job, optimizer)
    scaler = torch.amp.GradScaler(device.type, enabled=job.amp == "fp16")
    losses, scales = [], []
    pictures, targets = read_set(job.dataset, job.data_path)
    epoch_steps = -(-len(DistributedSampler(targets)) // job.batch_size)
    for step, (images, labels) in zip(range(job.max_steps), batches(job, pictures, targets)):
        images, labels = images.to(device), labels.to(device)
        with torch.autocast(device.type, DTYPES.get(job.amp), enabled=job.amp is not None):
            loss = F.cross_entropy(ddp(formatted(images)), labels, label_smoothing=job.label_smoothing)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if job.clip_grad_norm:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), job.clip_grad_norm)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach().double().cpu())
        scales.append(scaler.get_scale())
        if scheduler and (step + 1) % epoch_steps == 0:
            scheduler.step()
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    result = {"losses": (losses / dist.get_world_size()).tolist(), "scales": scales}
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
    # Forked, they need not import torch again; nothing has run here that would have left threads behind. CUDA is of no
    # use behind a fork of a process that has asked for it.
    start_method = "spawn" if any(job.device for job in jobs) else "fork"
    torch.multiprocessing.start_processes(worker, (world_size, free_port(), jobs, output), world_size,
                                          start_method=start_method)
    return json.loads(pathlib.Path(output).read_text())
