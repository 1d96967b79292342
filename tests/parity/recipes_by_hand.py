"""Recipes and scripts of Python with the same settings, seed by seed: the mean loss of each epoch.

  make recipe-parity RECIPES="finetune cifar"
  make recipe-parity RECIPES=finetune SEEDS=3-5      adds these seeds to those that were measured before

Too long for `make test`. Each side draws its own weights, order and augmentation from the seed, so the losses differ
by what seeds do: a recipe passes when, in each epoch, means and spreads of both sides' seeds differ by no more than
those of two sides that are alike (seeds.verdict). Rows are kept from run to run, and count while the code, torch and
the machine are the same. Writes a report of all that count.

  finetune         finetune-resnet34 on the folders of flowers, from weights that are drawn
  finetune-paired  the same, Python's with the weights, the order and the augmentation of ours (same_draws.py): it passes
                   when the losses of each seed are no further apart than a standard deviation of seeds
  cifar            cifar100-resnet18 on two processes, --dataset imagefolder with CIFAR-10's pictures
"""
import argparse
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import torch
import torchvision
from torch import nn
from torchvision import transforms

import models
import same_draws
import seeds

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"]).resolve()
THREADS = 2  # of a job: of its one process, or one of each of two
CIFAR_STEPS = 40  # of an epoch
EPOCHS = {"finetune": 2, "finetune-paired": 2, "cifar": 3}


def our_flags(recipe: str, data: pathlib.Path) -> list:
    if recipe != "cifar":
        return ["--recipe", "finetune-resnet34", "--data-path", data, "--train-split", "train", "--val-split", "val",
                "--head", "512,relu,5", "--threads", THREADS]
    return ["--recipe", "cifar100-resnet18", "--dataset", "imagefolder", "--data-path", data, "--transforms", "cifar",
            "--limit-train-batches", CIFAR_STEPS, "--no-eval"]


def run_ours(recipe: str, data: pathlib.Path, epochs: int, seed: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([BIN / "lockstep", "train", *map(str, our_flags(recipe, data)), "--epochs", str(epochs), "--seed",
                        str(seed), "--print-freq", "1", "--output-dir", folder],
                       check=True, stdout=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    steps = [event for event in map(json.loads, lines) if event["event"] == "train"]
    return [statistics.fmean(event["loss"] for event in epoch)
            for _, epoch in itertools.groupby(steps, lambda event: event["epoch"])]


def train(model, loader, optimizer, criterion, steps: int, each_step=lambda: None) -> float:
    losses = []
    for pictures, labels in itertools.islice(loader, steps):
        optimizer.zero_grad()
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        each_step()
        losses.append(loss.item())
    return statistics.fmean(losses)


def python_finetune(data: pathlib.Path, epochs: int, seed: int) -> list[float]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(seed)
    pictures = torchvision.datasets.ImageFolder(data / "train", transforms.Compose(
        [transforms.AutoAugment(), transforms.Resize((244, 244)), transforms.ToTensor()]))
    loader = torch.utils.data.DataLoader(pictures, batch_size=16, shuffle=True)
    model = torchvision.models.resnet34()
    model.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, len(pictures.classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    return [train(model, loader, optimizer, criterion, len(loader)) for _ in range(epochs)]  # no plateau so early


def python_finetune_paired(data: pathlib.Path, epochs: int, seed: int) -> list[float]:
    torch.set_num_threads(THREADS)
    return [statistics.fmean(losses) for losses in same_draws.finetune_losses(data / "train", 244, seed, epochs)]


def python_cifar_rank(rank: int, data: pathlib.Path, epochs: int, seed: int, file: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}.meeting", rank=rank, world_size=2)
    torch.manual_seed(seed)
    network = models.resnet18_cifar()
    # Which makes its first layer anew, so not as torchvision draws it.
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    model = nn.parallel.DistributedDataParallel(network)
    torch.manual_seed(1000 * seed + rank)
    pictures = torchvision.datasets.ImageFolder(data / "train", transforms.Compose(
        [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
         transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))]))
    sampler = torch.utils.data.distributed.DistributedSampler(pictures, seed=seed)
    loader = torch.utils.data.DataLoader(pictures, batch_size=128, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    # The first epoch is a warm-up, from a hundredth of the rate as torchvision's.
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=1)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses.append(train(model, loader, optimizer, nn.CrossEntropyLoss(), CIFAR_STEPS))
        warm_up.step()
    means = torch.tensor(losses)
    torch.distributed.all_reduce(means)
    if rank == 0:
        pathlib.Path(file).write_text(json.dumps((means / 2).tolist()))
    torch.distributed.destroy_process_group()


def python_cifar(data: pathlib.Path, epochs: int, seed: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/losses.json"
        torch.multiprocessing.spawn(python_cifar_rank, (data, epochs, seed, file), nprocs=2)
        return json.loads(pathlib.Path(file).read_text())


RUN_PYTHON = {"finetune": python_finetune, "finetune-paired": python_finetune_paired, "cifar": python_cifar}
SIDES = ("Python", "Lockstep")


def section(recipe: str, rows: list[dict], text: str) -> list[str]:
    columns = " | ".join(f"epoch {epoch + 1}" for epoch in range(EPOCHS[recipe]))
    return ["", f"## {recipe}", "", f"| side | seed | {columns} | s |", "|---|---|" + "---|" * (EPOCHS[recipe] + 1),
            *(f"| {row['side']} | {row['seed']} | " + "".join(f"{loss:.4f} | " for loss in row["losses"])
              + f"{row['seconds']:.0f} |" for row in rows), "", text]


def measure(recipe: str, data: pathlib.Path, wanted: list[int], rows: seeds.Rows) -> None:
    """What there is no row of."""
    runs = dict(zip(SIDES, (RUN_PYTHON[recipe], lambda *job: run_ours(recipe, *job))))
    for seed, side in itertools.product(wanted, SIDES):
        if rows.find(recipe=recipe, side=side, seed=seed):
            continue
        start = time.monotonic()
        losses = runs[side](data, EPOCHS[recipe], seed)
        assert len(losses) == EPOCHS[recipe]
        rows.add(recipe=recipe, side=side, seed=seed, losses=losses, seconds=time.monotonic() - start)
        print(recipe, side, seed, losses, flush=True)


def judged(recipe: str, rows: seeds.Rows) -> tuple[bool, list[str]]:
    """Of all seeds that both sides have rows of."""
    by_seed = {(row["side"], row["seed"]): row for row in rows.find(recipe=recipe)}
    both = sorted(seed for side, seed in by_seed if side == "Python" and ("Lockstep", seed) in by_seed)
    if len(both) < 2:
        return True, []  # another recipe's run was asked for, and this one's was cut off
    verdict = seeds.verdict_of_pairs if recipe == "finetune-paired" else seeds.verdict
    passed, text = verdict(*([by_seed[side, seed]["losses"] for seed in both] for side in SIDES))
    print(f"{recipe}: {text}", flush=True)
    return passed, section(recipe, [by_seed[side, seed] for seed in both for side in SIDES], text)


def place(commit: str) -> dict:
    """What rows of one comparison have in common. The code alone outlives commits of other things."""
    code = re.search(r"\(code (\w+)\)", commit)
    info = pathlib.Path("/proc/cpuinfo")
    processor = re.search(r"^model name\s*: (.*)", info.read_text() if info.exists() else "", re.M)
    return {"code": code[1] if code else commit, "torch": torch.__version__,
            "machine": f"{processor[1] if processor else platform.machine()}, {os.cpu_count()} cores"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", choices=RUN_PYTHON)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the real sets")
    parser.add_argument("--seeds", default="3", help="how many, or the first and last of them: 3-5")
    parser.add_argument("--rows", type=pathlib.Path, required=True, help="file of the rows, which grows")
    parser.add_argument("--report", type=pathlib.Path, required=True)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    try:
        wanted = seeds.parsed(arguments.seeds)
    except ValueError as error:
        parser.error(f"--seeds {error}")
    rows = seeds.Rows(arguments.rows, place(arguments.commit))
    lines = ["# Recipes beside Python's scripts", "",
             f"The mean loss of each epoch; torch {torch.__version__}, {rows.place['machine']},",
             f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}, two threads in all. Written by",
             f"`make recipe-parity`, commit {arguments.commit}.",
             "`finetune` is `finetune-resnet34` on 800 photographs of flowers, from weights that are drawn;",
             "`finetune-paired` the same, Python's with the random numbers of ours; `cifar` is `cifar100-resnet18` on CIFAR-10's",
             f"pictures, two processes, {CIFAR_STEPS} steps an epoch. Seconds are of the whole command: no benchmark."]
    with tempfile.TemporaryDirectory() as folder:
        for recipe in arguments.recipes:
            data = arguments.data / "flowers"
            if recipe == "cifar":
                data = pathlib.Path(folder)
                with tarfile.open(arguments.data / "cifar10-jpeg" / "train.tar.gz") as pictures:
                    pictures.extractall(data, filter="data")
            measure(recipe, data, wanted, rows)
    found = [judged(recipe, rows) for recipe in RUN_PYTHON]
    lines += itertools.chain.from_iterable(table for _, table in found)
    arguments.report.write_text("\n".join(lines) + "\n")
    return 0 if all(passed for passed, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
