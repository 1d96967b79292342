"""Training steps by Python's DistributedDataParallel on Gloo, when told to.

Started by torchrun for benchmarks/step/step.py, which writes a line of JSON for each turn: what to train, which way,
how many steps. The answer has the time of the turn's start and of each step's end. Between turns it blocks.
"""
import argparse
import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from workloads import LABELS, WORKLOADS, Workload


@dataclasses.dataclass(frozen=True)
class Way:
    """The defaults are PyTorch's."""
    bf16: bool = False
    channels_last: bool = False
    own_strides: bool = False  # channels-last also where there is one channel and contiguous() changes nothing
    compile: bool = False
    optimizer: str = ""  # fused or foreach
    ddp: bool = False  # gradient_as_bucket_view, static_graph
    bucket_mb: int = 200  # with ddp: the default is as big as the model
    compress: bool = False  # gradients are averaged in bf16


class Trainer:
    def __init__(self, workload: Workload, way: Way, group: dist.ProcessGroup | None = None):
        torch.manual_seed(0)
        self.memory_format = torch.channels_last if way.channels_last else torch.contiguous_format
        if not way.channels_last:
            self.memory_format = torch.preserve_format
        model = workload.model().to(memory_format=self.memory_format)
        if way.own_strides:
            for parameter in model.parameters():
                if parameter.dim() == 4:
                    parameter.data = parameter.data.to("cpu", copy=True, memory_format=torch.channels_last)
        options = {way.optimizer: True} if way.optimizer else {}
        ddp = {"gradient_as_bucket_view": True, "static_graph": True, "bucket_cap_mb": way.bucket_mb}
        self.model = DistributedDataParallel(model, process_group=group, **(ddp if way.ddp else {}))
        if way.compress:
            self.model.register_comm_hook(None, bf16_compress_hook)
        if way.compile:
            self.model = torch.compile(self.model)
        self.optimizer = workload.optimizer(self.model.parameters(), **workload.options, **options)
        generator = torch.Generator().manual_seed(1 + dist.get_rank())
        self.data = [torch.randn(workload.batch, *workload.sample, generator=generator)
                     for _ in range(workload.pool())]
        self.target = [torch.randint(workload.classes, (workload.batch,), generator=generator) for _ in range(LABELS)]
        self.autocast = (lambda: torch.autocast("cpu", torch.bfloat16)) if way.bf16 else contextlib.nullcontext
        self.steps = 0

    def step(self):
        # A batch of its own for each step, as a loader makes it.
        data = self.data[self.steps % len(self.data)].to("cpu", copy=True, memory_format=self.memory_format)
        target = self.target[self.steps % LABELS]
        self.steps += 1
        self.optimizer.zero_grad()
        with self.autocast():
            loss = F.cross_entropy(self.model(data), target)
        loss.backward()
        self.optimizer.step()

    def turn(self, steps: int) -> list[float]:
        times = [time.monotonic()]
        for _ in range(steps):
            self.step()
            times.append(time.monotonic())
        return times


def serve(turns: pathlib.Path):
    rank = dist.get_rank()
    trainers = {}
    with open(turns / f"to.{rank}") as commands, open(turns / f"from.{rank}", "w") as answers:
        for line in commands:
            command = json.loads(line)
            if "end" in command:
                return
            if "forget" in command:
                has_compiled = any(way.compile for _, way in trainers)
                trainers.clear()
                if has_compiled:  # dynamo counts what it compiled of a forward, and runs it eagerly beyond a limit
                    torch.compiler.reset()
                continue
            key = (command["workload"], Way(**command["way"]))
            if key not in trainers:
                trainers[key] = Trainer(WORKLOADS[key[0]], key[1])
            times = trainers[key].turn(command["steps"])
            answers.write(json.dumps({"times": times}) + "\n")
            answers.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=pathlib.Path, required=True, help="folder of the pipes")
    parser.add_argument("--pin", action="store_true", help="a core of its own for each rank")
    parser.add_argument("--flush-denormal", action="store_true")
    arguments = parser.parse_args()
    if arguments.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    if arguments.flush_denormal:
        torch.set_flush_denormal(True)
    dist.init_process_group("gloo")
    serve(arguments.turns)
    gc.collect()  # a process group must not end before the models that use it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
