"""Saves and loads of a model that trains, by Python's torch, when told to: benchmarks/checkpoint/checkpoint.py's peer.

ResNet-50 on small pictures with Adam, as benchmarks/checkpoint/trainee.cpp has it. Commands come in by to.0, a line of
JSON each, answers go out by from.0.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
import torchvision
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

BATCH, SIDE, CLASSES = 4, 64, 1000


def resident_bytes() -> int:
    """Private and shared memory of this process, without pages of files."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def sync(path: pathlib.Path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


class InLoop:
    """A way that writes one file while the step waits; a new one takes the old one's name when it is whole."""

    def __init__(self, folder: pathlib.Path, trainee):
        self.file, self.trainee = folder / "state", trainee

    def begin(self):
        aside = self.file.with_suffix(".part")
        self.write(aside)
        aside.replace(self.file)

    def is_done(self) -> bool:
        return True

    def wait(self):
        pass

    def bytes(self) -> int:
        return self.file.stat().st_size


class TorchSave(InLoop):
    mmap = False

    def write(self, path):
        torch.save({"model": self.trainee.model.state_dict(), "optimizer": self.trainee.optimizer.state_dict()}, path)

    def load_all(self, model, optimizer):
        state = torch.load(self.file, mmap=self.mmap)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def load_weights(self, model):
        model.load_state_dict(torch.load(self.file, mmap=self.mmap)["model"])


class TorchSaveMapped(TorchSave):
    mmap = True


class TorchSaveSynced(TorchSave):
    """What a checkpoint that outlives the machine needs, and torch.save does not do."""

    def write(self, path):
        super().write(path)
        sync(path)


class Safetensors(InLoop):
    """Moments as tensors beside the weights, since the format knows nothing else."""

    def write(self, path):
        from safetensors.torch import save_file
        names = {parameter: name for name, parameter in self.trainee.model.named_parameters()}
        tensors = dict(self.trainee.model.state_dict())
        for parameter, state in self.trainee.optimizer.state.items():
            tensors |= {f"{names[parameter]}/{key}": value for key, value in state.items()}
        save_file(tensors, path)

    def load_all(self, model, optimizer):
        from safetensors.torch import load_file
        found = load_file(self.file)
        model.load_state_dict({name: value for name, value in found.items() if "/" not in name})
        for name, parameter in model.named_parameters():
            optimizer.state[parameter] = {key: found[f"{name}/{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}

    def load_weights(self, model):
        from safetensors import safe_open
        with safe_open(self.file, "pt") as file:
            model.load_state_dict({name: file.get_tensor(name) for name in file.keys() if "/" not in name})


class Async:
    """torch.distributed.checkpoint, which copies the state and writes while steps go on."""
    way = AsyncCheckpointerType.THREAD

    def __init__(self, folder: pathlib.Path, trainee):
        self.folder, self.trainee, self.number, self.future = folder, trainee, 0, None

    def place(self) -> pathlib.Path:
        return self.folder / f"step-{self.number}"

    def state(self, model, optimizer):
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    def begin(self):
        self.number += 1
        self.future = dcp.async_save(self.state(self.trainee.model, self.trainee.optimizer), checkpoint_id=self.place(),
                                     async_checkpointer_type=self.way)

    def is_done(self) -> bool:
        return self.future.done()

    def wait(self):
        self.future.result()
        for older in self.folder.glob("step-*"):
            if older != self.place():
                shutil.rmtree(older)

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.place().rglob("*") if file.is_file())

    def load_all(self, model, optimizer):
        state = self.state(model, optimizer)
        dcp.load(state, checkpoint_id=self.place())
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def load_weights(self, model):
        dcp.load({"model": model.state_dict()}, checkpoint_id=self.place())


class AsyncProcess(Async):
    """The writing in a process of its own: no step waits for Python's lock."""
    way = AsyncCheckpointerType.PROCESS


WAYS = {"torch.save": TorchSave, "torch.save, mmap": TorchSaveMapped, "torch.save, fsync": TorchSaveSynced,
        "safetensors": Safetensors, "dcp.async_save": Async, "dcp.async_save, process": AsyncProcess}


class Trainee:
    def __init__(self, model: str):
        self.name = model
        self.model, self.optimizer = self.fresh()
        torch.manual_seed(1)
        self.data, self.target = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))

    def fresh(self):
        torch.manual_seed(0)
        model = torchvision.models.get_model(self.name)
        return model, torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(self):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.data), self.target).backward()
        self.optimizer.step()

    def steps(self, count: int) -> dict:
        times = [time.monotonic()]
        for _ in range(count):
            self.step()
            times.append(time.monotonic())
        return {"times": times}

    def save(self, way, count: int) -> dict:
        resident, most, whole = resident_bytes(), 0, 0
        times = [time.monotonic()]
        way.begin()
        for _ in range(count):
            self.step()
            times.append(time.monotonic())
            most = max(most, resident_bytes() - resident)
            if not whole and way.is_done():
                whole = times[-1]
        way.wait()
        return {"times": times, "whole": whole or time.monotonic(), "additional_bytes": most, "bytes": way.bytes()}

    def load(self, what: str, way) -> dict:
        model, optimizer = (self.model, None) if what == "load weights" else self.fresh()
        began = time.monotonic()
        if optimizer is None:
            way.load_weights(model)
        else:
            way.load_all(model, optimizer)
        return {"seconds": time.monotonic() - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=pathlib.Path, required=True, help="folder of the pipes")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="where checkpoints go")
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--packages", default="", help="folder of more Python packages")
    arguments = parser.parse_args()
    if arguments.packages:
        sys.path.append(arguments.packages)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{arguments.turns}/meet", rank=0, world_size=1)
    trainee = Trainee(arguments.model)
    way = WAYS[arguments.way](arguments.folder, trainee)
    with open(arguments.turns / "to.0") as commands, open(arguments.turns / "from.0", "w") as answers:
        for line in commands:
            command = json.loads(line)
            if "end" in command:
                break
            what = command["do"]
            if what == "steps":
                answer = trainee.steps(command["steps"])
            elif what == "save":
                answer = trainee.save(way, command["steps"])
            else:
                answer = trainee.load(what, way)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
