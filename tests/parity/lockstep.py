"""Starts the programs under test. LOCKSTEP_BIN (set by CTest) is the folder they are in."""
import dataclasses
import json
import os
import pathlib
import subprocess
import unittest

from reference import Job

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"]).resolve()
DEADLINE_SECONDS = 1800
DATA = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA") or os.environ.get("LOCKSTEP_DATA", ""))
MNIST_FILES = [f"mnist/{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]


def need_data(*names: str) -> None:
    """The test is skipped when one of these files and folders of the real sets is not there."""
    for name in names:
        if not (DATA / name).exists():
            raise unittest.SkipTest(f"no {DATA / name}")


def probe(command: str, **request):
    subprocess.run([BIN / "parity_probe", command], input=json.dumps(request), text=True, check=True,
                   timeout=DEADLINE_SECONDS)


def command_line(*arguments) -> list[str]:
    return [str(BIN / "lockstep"), "train", *map(str, arguments)]


def initial_weights(model: str, seed: int, file, *more) -> None:
    """Writes the weights that `lockstep train --seed` starts from."""
    subprocess.run(command_line("--model", model, "--seed", seed, "--max-steps", 0, "--save-weights", file, *more),
                   check=True, timeout=DEADLINE_SECONDS, stdout=subprocess.DEVNULL)


def flags(job: Job) -> list[str]:
    """The job's fields as flags of `lockstep train`; what is not set is left to the defaults."""
    values = {name: value for name, value in dataclasses.asdict(job).items() if value}
    values.pop("ieee_sqrt", None)  # always so in Lockstep
    if not values.pop("evaluate", False):
        values["no_eval"] = ""
    if job.dataset == "digits":
        values.pop("data_path")  # built in
    named = [("--" + name.replace("_", "-"), "" if value is True else str(value)) for name, value in values.items()]
    return [text for pair in named for text in pair if text]


def train(job: Job, folder, *more, world_size: int = 2) -> list[dict]:
    """Trains, and returns the events of metrics.jsonl; one train event per step."""
    subprocess.run(command_line("-n", world_size, "--print-freq", 1, "--output-dir", folder, *flags(job), *more),
                   check=True, timeout=DEADLINE_SECONDS, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


def losses(events: list[dict]) -> list[float]:
    return [event["loss"] for event in events if event["event"] == "train"]


def scales(events: list[dict]) -> list[float]:
    """What the loss is scaled by behind each step."""
    return [event.get("loss_scale", 1) for event in events if event["event"] == "train"]


def last_accuracy(events: list[dict]) -> float:
    return [event["top1"] for event in events if event["event"] == "eval"][-1]
