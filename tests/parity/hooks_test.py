"""DistributedDataParallel beside Python's, over 100 steps on two ranks: its options, each communication hook, join(),
ZeRO, gradient accumulation, clipping, GradScaler, EMA, with optimizers of torch and with ours. And DataParallel."""
import contextlib
import copy
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
from torch.distributed.algorithms.ddp_comm_hooks import (debugging_hooks, default_hooks, post_localSGD_hook,
                                                           powerSGD_hook, quantization_hooks)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import swa_utils

import lockstep
from reference import free_port

RANKS, STEPS, RATE = 2, 100, 0.05
LIMIT = 1e-6  # of the largest weight


class Net(torch.nn.Module):
    def __init__(self, normalized: bool = False):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(*sizes) for sizes in ((12, 20), (20, 20), (20, 8)))
        self.norm = torch.nn.BatchNorm1d(20) if normalized else torch.nn.Identity()

    def forward(self, x, skip: bool = False):
        hidden = self.norm(torch.tanh(self.first(x)))
        return self.third(hidden if skip else torch.tanh(self.second(hidden)))


def hooks_and_others():
    """What there is with optimizers of torch only."""
    for what in ("allreduce", "fp16_compress", "bf16_compress", "noop", "post_localSGD", "zero",
                 "quantization_pertensor", "quantization_perchannel", "data_parallel"):
        yield what, {}
    yield "post_localSGD", {"post_local_gradient_allreduce": True}
    yield "zero", {"optimizer": "Adam", "groups": True}
    yield "zero", {"optimizer": "SGD"}
    yield "data_parallel", {"normalized": True}
    for options in ({}, {"matrix_approximation_rank": 2, "random_seed": 7},
                    {"matrix_approximation_rank": 4, "min_compression_rate": 0.5}, {"warm_start": False},
                    {"use_error_feedback": False, "orthogonalization_epsilon": 1e-8}, {"start_powerSGD_iter": 2},
                    {"batch_tensors_with_same_shape": True, "min_compression_rate": 0.5}):
        yield "powerSGD", options
    yield "batched_powerSGD", {}
    yield "batched_powerSGD", {"matrix_approximation_rank": 3, "warm_start": False}
    yield "fp16_powerSGD", {"orthogonalization_epsilon": 1e-4}
    yield "bf16_powerSGD", {"orthogonalization_epsilon": 1e-4}
    for options in ({"static_graph": True, "skips": "always"}, {"gradient_as_bucket_view": True},
                    {"broadcast_buffers": False, "normalized": True}, {"normalized": True},
                    {"init_sync": False, "apart": True}, {"apart": True}, {"bucket_cap_mb": 0.001},
                    {"bucket_cap_mb_list": [0.0005, 0.001]}, {"first_bucket_mb": 0.0005, "bucket_cap_mb": 0.001},
                    {"process_group": True}, {"passes": 2, "no_sync": True},
                    {"passes": 2, "no_sync": True, "local": "forward"},
                    {"passes": 2, "no_sync": True, "local": "backward"}, {"normalized": True, "evaluates": True},
                    {"normalized": True, "evaluates": True, "passes": 2, "no_sync": True},
                    {"normalized": True, "evaluates": True, "broadcast_buffers": False},
                    {"find_unused_parameters": True, "skip_all_reduce_unused_params": True, "bucket_cap_mb": 0.001,
                     "skips": "together"},
                    {"reduce_dtype": "float16"}, {"reduce_dtype": "bfloat16"}):
        yield "ddp", options
    # By an optimizer of ours a rank that adds up passes alone adds up means, where Python divides those of earlier passes
    # anew; and buffers are shard 0's, where Python takes those of the last rank that has inputs.
    yield "join", {"passes": 2}
    yield "join", {"passes": 2, "no_sync": True}
    yield "join", {"normalized": True}


def both_paths():
    for every in (True, False):
        yield "join", {"divide_by_initial_world_size": every}
    yield "ddp", {}
    for skips in ("apart", "together", "always"):
        yield "ddp", {"find_unused_parameters": True, "skips": skips}
    yield "ddp", {"passes": 3}
    yield "ddp", {"optimizer": "SGD", "groups": True}
    yield "ddp", {"optimizer": "Adam", "groups": True}
    for norm_type in (2, 1, 3, 0):  # 0 stands for infinity
        yield "ddp", {"max_norm": 0.05, "norm_type": norm_type}
    yield "ddp", {"max_value": 1e-3}
    yield "ddp", {"max_norm": 0.05, "max_value": 1e-3}
    yield "ddp", {"init_scale": 1024.0, "growth_interval": 3, "overflow_every": 8, "passes": 2, "max_norm": 0.05}
    yield "ddp", {"init_scale": 3.0, "growth_interval": 5, "overflow_every": 4}


def averages():
    yield "ddp", {"ema_decay": 0.9}
    yield "ddp", {"ema_decay": 0.9, "ema_interval": 4, "ema_warmup": 10}
    yield "ddp", {"ema_decay": 0.95, "normalized": True}


# In which steps of six the second layer is left out, for each rank.
SKIPS = {"never": [(), ()], "always": [range(6)] * 2, "together": [(0, 1)] * 2, "apart": [(0, 1), (1, 2)]}


def make_cases() -> list[dict]:
    wanted = [(what, False, options) for what, options in [*hooks_and_others(), *both_paths()]]
    wanted += [(what, True, options) for what, options in [*both_paths(), *averages()]]
    torch.manual_seed(1)
    cases = []
    for what, fused, options in wanted:
        inputs = torch.randn(RANKS, STEPS, 6 * 12)
        steps = [STEPS, STEPS - 30] if what == "join" else [STEPS, STEPS]
        weights = dict(Net(options.get("normalized", False)).named_parameters())
        cases.append({"what": what, "fused": fused, "options": options,
                      "weights": {name: weight.flatten().tolist() for name, weight in weights.items()},
                      "inputs": [rows[:count].tolist() for rows, count in zip(inputs, steps)],
                      "skips": [[step % 6 in left_out for step in range(STEPS)]
                                for left_out in SKIPS[options.get("skips", "never")]]})
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
        return powerSGD_hook.PowerSGDState(None, **{"start_powerSGD_iter": 10} | options)
    hooks = {
        "allreduce": lambda: (None, default_hooks.allreduce_hook),
        "noop": lambda: (None, debugging_hooks.noop_hook),
        "fp16_compress": lambda: (None, default_hooks.fp16_compress_hook),
        "bf16_compress": lambda: (None, default_hooks.bf16_compress_hook),
        "powerSGD": lambda: (power(), powerSGD_hook.powerSGD_hook),
        "batched_powerSGD": lambda: (power(), powerSGD_hook.batched_powerSGD_hook),
        "fp16_powerSGD": lambda: (power(), default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "bf16_powerSGD": lambda: (power(), default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "quantization_pertensor": lambda: (dist.group.WORLD, quantization_hooks.quantization_pertensor_hook),
        "quantization_perchannel": lambda: (dist.group.WORLD, perchannel_hook),
        "post_localSGD": lambda: (  # the subgroup of ours is that of the node
            post_localSGD_hook.PostLocalSGDState(None, dist.group.WORLD, 10,
                                                 options.get("post_local_gradient_allreduce", False)),
            post_localSGD_hook.post_localSGD_hook),
    }
    if what in hooks:
        ddp.register_comm_hook(*hooks[what]())


DDP_OPTIONS = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "broadcast_buffers", "init_sync",
               "skip_all_reduce_unused_params", "bucket_cap_mb", "bucket_cap_mb_list")


def wrapped(model: Net, options: dict) -> DistributedDataParallel:
    wanted = {name: options[name] for name in DDP_OPTIONS if name in options}
    if "process_group" in options:
        wanted["process_group"] = dist.new_group(range(RANKS))
    first_bucket = int(options.get("first_bucket_mb", 1) * 1024 * 1024)
    with unittest.mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", first_bucket):
        ddp = DistributedDataParallel(model, **wanted)
    # Python's MixedPrecision wants a stream of an accelerator; what it exchanges is what these hooks do.
    hooks = {"float16": default_hooks.fp16_compress_hook, "bfloat16": default_hooks.bf16_compress_hook}
    if "reduce_dtype" in options:
        ddp.register_comm_hook(None, hooks[options["reduce_dtype"]])
    return ddp


def chunked(model: Net):
    """DataParallel on two devices, by hand: Python's does not cut on the CPU. Buffers are those of the first chunk."""
    def forward(x, _):
        parts = x.chunk(2)
        others = dict(model.named_parameters()) | {name: copy.deepcopy(b) for name, b in model.named_buffers()}
        return torch.cat([model(parts[0]), torch.func.functional_call(model, others, parts[1])])
    return forward


def make_optimizer(case: dict, model: Net):
    options = case["options"]
    if "groups" in options:
        rest = [*model.second.parameters(), *model.third.parameters()]
        wanted = [{"params": [*model.first.parameters()]}, {"params": rest, "lr": RATE / 20, "weight_decay": 0.01}]
    else:
        wanted = model.parameters()
    is_zero = case["what"] == "zero"
    if options.get("optimizer", "Adam" if is_zero else "SGD") == "Adam":
        made, arguments = torch.optim.Adam, {"lr": RATE / 10}
    else:
        made, arguments = torch.optim.SGD, {"lr": RATE, "momentum": 0.9}
    if is_zero:
        return ZeroRedundancyOptimizer(wanted, made, **arguments)
    optimizer = made(wanted, **arguments)
    if case["what"] == "post_localSGD":
        return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(4, 10))
    return optimizer


def backward_passes(case: dict, rank: int, step: int, forward, scaler) -> None:
    options, passes = case["options"], case["options"].get("passes", 1)
    parts = torch.tensor(case["inputs"][rank][step]).view(-1, 12).chunk(passes)
    # Of the whole pass, not in the last one; of its forward or of its backward alone, in the last one, where that shows.
    local = options.get("local", "both")
    for i, part in enumerate(parts):
        def scope(half: str):
            is_local = options.get("no_sync") and local in ("both", half) and (i + 1 < passes) == (local == "both")
            return forward.no_sync() if is_local else contextlib.nullcontext()
        with scope("forward"):
            loss = forward(part, case["skips"][rank][step]).square().mean() / passes
        if rank == 1 and "overflow_every" in options and step % options["overflow_every"] == 2:
            loss = loss * float("inf")
        with scope("backward"):
            scaler.scale(loss).backward()


def evaluate(model: Net, forward, x, rank: int) -> list[float]:
    """By two forwards, between which the buffers of this rank become others."""
    model.eval()
    outputs = []
    with torch.no_grad():
        for _ in range(2):
            outputs += forward(x).flatten().tolist()
            model.norm.running_mean += 0.1 * rank
    model.train()
    return outputs


def clip(model: Net, options: dict) -> None:
    if "max_norm" in options:
        norm_type = options.get("norm_type", 2) or float("inf")
        torch.nn.utils.clip_grad_norm_(model.parameters(), options["max_norm"], norm_type)
    if "max_value" in options:
        torch.nn.utils.clip_grad_value_(model.parameters(), options["max_value"])


def joining(case: dict, forward, optimizer):
    options = case["options"]
    if case["what"] != "join":
        return contextlib.nullcontext()
    return forward.join(divide_by_initial_world_size=options.get("divide_by_initial_world_size", True))


def consolidated(model: Net, optimizer: ZeroRedundancyOptimizer, rank: int) -> dict:
    """What the optimizer keeps of each parameter: on rank 0, which has it all then; zeros elsewhere."""
    optimizer.consolidate_state_dict(0)
    states = optimizer.state_dict()["state"] if rank == 0 else {}
    found = {}
    for i, (name, weight) in enumerate(model.named_parameters()):
        state = states.get(i, {})
        found[f"state.{name}"] = state.get("exp_avg", state.get("momentum_buffer", torch.zeros_like(weight)))
    return found


def update_average(average: swa_utils.AveragedModel, model: Net, options: dict, step: int) -> None:
    """As torchvision's train.py."""
    if step % options.get("ema_interval", 1) == 0:
        average.update_parameters(model)
        if step < options.get("ema_warmup", 0):
            average.n_averaged.fill_(0)


def python_run(case: dict, rank: int) -> dict:
    """What this rank has behind the last step, by name."""
    options = case["options"]
    model = Net(options.get("normalized", False))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.tensor(case["weights"][name]).view_as(weight)).add_(rank * 0.01 * ("apart" in options))
    forward = chunked(model) if case["what"] == "data_parallel" else wrapped(model, options)
    if case["what"] != "data_parallel":
        register(forward, case["what"], options)
    optimizer = make_optimizer(case, model)
    decay = options.get("ema_decay", 0)
    average = swa_utils.AveragedModel(  # torchvision's ExponentialMovingAverage
        model, avg_fn=lambda one, new, _: decay * one + (1 - decay) * new, use_buffers=True)
    scaler = torch.amp.GradScaler("cpu", options.get("init_scale", 1.0), enabled="init_scale" in options,
                                  growth_interval=options.get("growth_interval", 1))
    scales, outputs = [], []
    with joining(case, forward, optimizer):
        for step in range(len(case["inputs"][rank])):
            optimizer.zero_grad()
            backward_passes(case, rank, step, forward, scaler)
            if scaler.is_enabled():
                scaler.unscale_(optimizer)
            clip(model, options)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            if "evaluates" in options and step % 3 == 1:
                outputs += evaluate(model, forward, torch.tensor(case["inputs"][rank][step]).view(-1, 12), rank)
            update_average(average, model, options, step)
    found = dict(model.state_dict())
    if "ema_decay" in options:
        found |= {f"ema.{name}": weight for name, weight in average.module.state_dict().items()}
    if case["what"] == "zero":
        found |= consolidated(model, optimizer, rank)
    if "init_scale" in options:
        found["scales"] = torch.tensor(scales)
    if "evaluates" in options:
        found["outputs"] = torch.tensor(outputs)
    return {name: tensor.flatten().float().tolist() for name, tensor in found.items()}


def of_all_ranks(found: dict) -> dict:
    """By name, what each rank has."""
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, found)
    return {name: [one[name] for one in gathered] for name in found}


def worker(rank: int, port: int, cases: list[dict], output: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=60))
    with (unittest.mock.patch.object(powerSGD_hook, "_orthogonalize", orthogonalize_2d(powerSGD_hook._orthogonalize)),
          unittest.mock.patch.object(quantization_hooks, "dist", GlooGather())):
        results = [of_all_ranks(python_run(case, rank)) for case in cases]
    if rank == 0:
        pathlib.Path(output).write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # as in reference.py


def our_lines(cases: list[dict], folder: str) -> list[str]:
    request = pathlib.Path(folder, "request.json")
    request.write_text(json.dumps(cases))
    done = subprocess.run([lockstep.BIN / "lockstep", "run", "-n", str(RANKS), lockstep.BIN / "hooks_probe", request],
                          check=True, text=True, stdout=subprocess.PIPE, timeout=60)
    return done.stdout.splitlines()


class Hooks(unittest.TestCase):
    def test_weights(self):
        cases = make_cases()
        with tempfile.TemporaryDirectory() as folder:
            answer = pathlib.Path(folder, "answer.json")
            # A group carries the state of a few models only, for as long as it lives.
            starts = [[case for case in cases if not case["fused"]], *([case] for case in cases if case["fused"])]
            lines = [line for some in starts for line in our_lines(some, folder)]
            torch.multiprocessing.start_processes(worker, (free_port(), cases, str(answer)), RANKS, start_method="fork")
            reference = json.loads(answer.read_text())
        for case, line, theirs in zip(cases, lines, reference, strict=True):
            with self.subTest(what=case["what"], fused=case["fused"], **case["options"]):
                self.compare(case, json.loads(line), theirs)

    def compare(self, case: dict, ours: dict, theirs: dict):
        self.assertEqual(set(ours), set(theirs))
        for name, wanted in theirs.items():
            wanted, found = torch.tensor(wanted), torch.tensor(ours[name])
            if case["fused"] and "norm.running" in name:  # one for all ranks: rank 0's
                wanted, found = wanted[:1], found[:1]
            # What an optimizer keeps are sums of gradients, which are differences of what has these bits.
            limit = 0 if name == "scales" else 10 * LIMIT if name.startswith("state.") else LIMIT
            self.assertLessEqual(float((found - wanted).abs().max() / wanted.abs().max()), limit, name)
            if name in case["weights"] and not (name.startswith("second") and case["options"].get("skips") == "always"):
                start = torch.tensor(case["weights"][name])
                self.assertGreater(float((wanted[0] - start).abs().max()), 1e-3, f"{name}: nothing was learned")
        if "scales" in theirs:
            self.assertGreater(len(set(theirs["scales"][0])), 2, "the scale did not move")


if __name__ == "__main__":
    unittest.main()
