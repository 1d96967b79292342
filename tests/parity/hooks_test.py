"""DistributedDataParallel beside Python's, over 100 steps on two ranks: each communication hook, join(), ZeRO."""
import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import tempfile
import types
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (default_hooks, post_localSGD_hook, powerSGD_hook,
                                                           quantization_hooks)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import lockstep
from reference import free_port

RANKS, STEPS, RATE = 2, 100, 0.05
LIMIT = 1e-6  # of the largest weight


def network() -> torch.nn.Module:
    net = torch.nn.Sequential()
    for name, sizes in [("first", (12, 20)), ("second", (20, 20)), ("third", (20, 8))]:
        if len(net):
            net.append(torch.nn.Tanh())
        net.add_module(name, torch.nn.Linear(*sizes))
    return net


def make_cases() -> list[dict]:
    wanted = [(name, {}) for name in ("allreduce", "fp16_compress", "bf16_compress", "post_localSGD", "zero",
                                       "quantization_pertensor", "quantization_perchannel")]
    wanted += [("powerSGD", options) for options in (
        {}, {"matrix_approximation_rank": 2, "random_seed": 7}, {"matrix_approximation_rank": 4, "min_compression_rate": 0.5},
        {"warm_start": False}, {"use_error_feedback": False, "orthogonalization_epsilon": 1e-8},
        {"batch_tensors_with_same_shape": True, "min_compression_rate": 0.5})]
    wanted += [("batched_powerSGD", {}), ("batched_powerSGD", {"matrix_approximation_rank": 3, "warm_start": False}),
               ("fp16_powerSGD", {"orthogonalization_epsilon": 1e-4}),
               ("bf16_powerSGD", {"orthogonalization_epsilon": 1e-4})]
    wanted += [("join", {"divide_by_initial_world_size": yes}) for yes in (True, False)]
    torch.manual_seed(1)
    cases = []
    for what, options in wanted:
        inputs = torch.randn(RANKS, STEPS, 6 * 12)
        steps = [STEPS, STEPS - 30] if what == "join" else [STEPS, STEPS]
        cases.append({"what": what, "options": options,
                      "weights": {name: weight.flatten().tolist() for name, weight in network().state_dict().items()},
                      "inputs": [rows[:count].tolist() for rows, count in zip(inputs, steps)]})
    return cases


def orthogonalize_2d(original):
    """batched_powerSGD_hook of torch 2.11 hands matrices to a function that wants batches of them, and fails."""
    def fixed(matrices, epsilon=0):
        return original(matrices.unsqueeze(0) if matrices.dim() == 2 else matrices, epsilon)
    return fixed


class GlooGather:
    """The quantization hooks of torch 2.11 want what the future of NCCL's all_gather holds, all in one tensor; Gloo's
    holds one for each rank."""
    def __getattr__(self, name: str):
        return getattr(dist, name)

    def all_gather(self, gathered, tensor, group, async_op):
        dist.all_gather(gathered, tensor, group=group)
        future = torch.futures.Future()
        future.set_result([torch.stack(gathered)])
        return types.SimpleNamespace(get_future=lambda: future)


def perchannel_hook(group, bucket):
    """The first bucket of Python's DDP holds its parameters from the first on, later ones as their gradients come, from
    the last on, as ours always. By that it is cut into rows."""
    gradients = bucket.gradients()
    if gradients[0].shape != (20, 12):
        return quantization_hooks.quantization_perchannel_hook(group, bucket)
    turned = torch.cat([one.flatten() for one in reversed(gradients)])
    future = quantization_hooks.quantization_perchannel_hook(group, types.SimpleNamespace(buffer=lambda: turned))
    sizes = [one.numel() for one in reversed(gradients)]
    return future.then(lambda done: torch.cat(list(reversed(done.value().split(sizes)))))


def register(ddp: DistributedDataParallel, what: str, options: dict) -> None:
    def power():
        return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=10, **options)
    hooks = {
        "allreduce": lambda: (None, default_hooks.allreduce_hook),
        "fp16_compress": lambda: (None, default_hooks.fp16_compress_hook),
        "bf16_compress": lambda: (None, default_hooks.bf16_compress_hook),
        "powerSGD": lambda: (power(), powerSGD_hook.powerSGD_hook),
        "batched_powerSGD": lambda: (power(), powerSGD_hook.batched_powerSGD_hook),
        "fp16_powerSGD": lambda: (power(), default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "bf16_powerSGD": lambda: (power(), default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "quantization_pertensor": lambda: (dist.group.WORLD, quantization_hooks.quantization_pertensor_hook),
        "quantization_perchannel": lambda: (dist.group.WORLD, perchannel_hook),
        "post_localSGD": lambda: (post_localSGD_hook.PostLocalSGDState(None, None, 10, False),
                                  post_localSGD_hook.post_localSGD_hook),
    }
    if what in hooks:
        ddp.register_comm_hook(*hooks[what]())


def python_run(case: dict, rank: int) -> dict:
    model = network()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.tensor(case["weights"][name]).view_as(weight))
    ddp = DistributedDataParallel(model)
    register(ddp, case["what"], case["options"])
    if case["what"] == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=RATE / 10)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    if case["what"] == "post_localSGD":
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(4, 10))
    joining = ddp.join(**case["options"]) if case["what"] == "join" else contextlib.nullcontext()
    with joining:
        for numbers in case["inputs"][rank]:
            optimizer.zero_grad()
            ddp(torch.tensor(numbers).view(-1, 12)).square().mean().backward()
            optimizer.step()
    return {name: weight.flatten().tolist() for name, weight in model.state_dict().items()}


def worker(rank: int, port: int, cases: list[dict], output: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=60))
    with (unittest.mock.patch.object(powerSGD_hook, "_orthogonalize", orthogonalize_2d(powerSGD_hook._orthogonalize)),
          unittest.mock.patch.object(quantization_hooks, "dist", GlooGather())):
        results = [python_run(case, rank) for case in cases]
    if rank == 0:
        pathlib.Path(output).write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # as in reference.py


class Hooks(unittest.TestCase):
    def test_weights(self):
        cases = make_cases()
        with tempfile.TemporaryDirectory() as folder:
            request, answer = pathlib.Path(folder, "request.json"), pathlib.Path(folder, "answer.json")
            request.write_text(json.dumps(cases))
            done = subprocess.run([lockstep.BIN / "lockstep", "run", "-n", str(RANKS), lockstep.BIN / "hooks_probe",
                                   request], check=True, text=True, stdout=subprocess.PIPE, timeout=60)
            torch.multiprocessing.start_processes(worker, (free_port(), cases, str(answer)), RANKS, start_method="fork")
            reference = json.loads(answer.read_text())
        for case, line, theirs in zip(cases, done.stdout.splitlines(), reference, strict=True):
            with self.subTest(what=case["what"], **case["options"]):
                ours = json.loads(line)
                self.assertEqual(set(ours), set(theirs))
                for name, wanted in theirs.items():
                    wanted, found = torch.tensor(wanted), torch.tensor(ours[name])
                    self.assertLessEqual(float((found - wanted).abs().max() / wanted.abs().max()), LIMIT, name)
                    start = torch.tensor(case["weights"][name])
                    self.assertGreater(float((wanted - start).abs().max()), 1e-3, "nothing was learned")


if __name__ == "__main__":
    unittest.main()
