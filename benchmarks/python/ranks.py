"""A rank of benchmarks/python/python.py: all-reduces by one of several process groups, or steps of DDP, when told to.

Started by `lockstep run`, with two pipes for each rank in a folder (../support/turns.py). All process groups are of the same
two ranks: what else the machine does meets all of them alike.
"""
import argparse
import gc
import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401: registers the backend

import lockstep_torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "peer"))
import ddp_step  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

LONGEST_SECONDS = 900  # nobody waits for ever, whatever happens to the others


class Rank:
    def __init__(self):
        self.groups = {"lockstep": dist.group.WORLD, "gloo": dist.new_group(backend="gloo"),
                       "fake": dist.new_group(backend="fake")}
        self.tensors, self.trainers = {}, {}

    def all_reduce(self, group: str, elements: int, calls: int, shared: bool) -> dict:
        """Seconds of each call, one behind the other; the first, which brings the caches back, does not count."""
        key = (group, elements, shared)
        if key not in self.tensors:
            self.tensors[key] = lockstep_torch.shared_empty(elements) if shared else torch.zeros(elements)
        tensor, process_group = self.tensors[key], self.groups[group]
        tensor.fill_(1)
        dist.barrier()
        seconds = []
        for _ in range(calls + 1):
            began = time.perf_counter_ns()
            dist.all_reduce(tensor, group=process_group)
            seconds.append((time.perf_counter_ns() - began) / 1e9)
        if group != "fake" and not (tensor[::1 + elements // 61] == float(dist.get_world_size()) ** (calls + 1)).all():
            raise SystemExit(f"bench: the sum of {group} is wrong")
        return {"seconds": seconds[1:]}

    def train(self, group: str, workload: str, way: dict, noop: bool, steps: int) -> dict:
        key = (group, workload, ddp_step.Way(**way), noop)
        if key not in self.trainers:
            trainer = ddp_step.Trainer(WORKLOADS[workload], key[2], self.groups[group])
            if noop:
                trainer.model.register_comm_hook(None, noop_hook)
            self.trainers[key] = trainer
        return {"times": self.trainers[key].turn(steps)}

    def forget(self):
        self.tensors.clear()
        self.trainers.clear()
        gc.collect()


def serve(turns: pathlib.Path):
    rank, number = Rank(), dist.get_rank()
    with open(turns / f"to.{number}") as commands, open(turns / f"from.{number}", "w") as answers:
        for line in commands:
            command = json.loads(line)
            if "end" in command:
                break
            if "forget" in command:
                rank.forget()
                continue
            what = {"all_reduce": rank.all_reduce, "train": rank.train}[command.pop("do")]
            answers.write(json.dumps(what(**command)) + "\n")
            answers.flush()
    rank.forget()  # a process group must not end before the models that use it


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=pathlib.Path, required=True, help="folder of the pipes")
    arguments = parser.parse_args()
    signal.alarm(LONGEST_SECONDS)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("lockstep")
    serve(arguments.turns)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
