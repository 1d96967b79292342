"""ResNet-50 on one GPU: our programs and eager PyTorch, in turns in one run.

    python3 benchmarks/gpu/gpu.py PROGRAM [--batch N] [--rounds N] [--steps N]

PROGRAM is lockstep-bench-gpu-step. Each contender is measured in each round; a row is its median milliseconds a step,
their spread, and the median of its ratio to the best eager Python of the same round. torch.compile is shown beside, and
is no part of that. Behind the rounds each contender has a long turn, in which the driver is asked how much of the time a
kernel ran: "idle" is the rest, in percent, of samples that the driver takes some times a second.
"""
import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

import torch
import torchvision


class Ours:
    def __init__(self, program, contender, batch, amp, channels_last, *more):
        layout = ["--channels-last"] if channels_last else []
        self.process = subprocess.Popen([program, "--contender", contender, "--batch", str(batch), "--amp", amp,
                                         *layout, *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def turn(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended: {self.process.args}")
        return float(line)


class Eager:
    def __init__(self, batch, amp, channels_last, fused, compiled=False):
        torch.backends.cudnn.benchmark = True
        layout = torch.channels_last if channels_last else torch.contiguous_format
        torch.manual_seed(1)
        self.model = torchvision.models.resnet50(num_classes=1000).cuda().to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, fused=fused or None)
        self.data = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=layout)
        self.target = torch.randint(1000, (batch,), device="cuda")
        self.amp = amp
        self.forward = torch.compile(self.model) if compiled else self.model

    def step(self):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.amp == "bf16"):
            loss = torch.nn.functional.cross_entropy(self.forward(self.data), self.target)
        loss.backward()
        self.optimizer.step()

    def turn(self, steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / steps


def idle(one, pace):
    """Percent of a turn of three seconds; None where the driver does not tell."""
    try:
        import pynvml
        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetUtilizationRates(card)
    except Exception as error:  # no such package, or a driver that cannot
        print(f"gpu: the driver does not tell how busy the card is: {error}", file=sys.stderr)
        return None
    samples, over = [], threading.Event()

    def sample():
        over.wait(1)  # what is told then is of this turn
        while not over.wait(0.1):
            samples.append(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)
    watching = threading.Thread(target=sample)
    watching.start()
    one.turn(max(10, int(3000 / pace)))
    over.set()
    watching.join()
    return round(100 - statistics.mean(samples), 1) if samples else None


def compiled(*settings):
    """None where it cannot be: it wants a compiler."""
    try:
        one = Eager(*settings, fused=True, compiled=True)
        one.turn(3)
        return one
    except Exception as error:
        print(f"gpu: torch.compile is left out: {str(error).splitlines()[0][:300]}", file=sys.stderr)
        return None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--case", action="append", help="AMP,FORMAT")
    arguments.add_argument("--compile", action="store_true", help="torch.compile, too, which takes a minute to begin")
    a = arguments.parse_args()
    for case in a.case or ["none,contiguous", "none,channels_last", "bf16,channels_last"]:
        amp, layout = case.split(",")
        last = layout == "channels_last"
        contenders = {
            "Python, SGD(fused=True)": Eager(a.batch, amp, last, True),
            "Python, SGD()": Eager(a.batch, amp, last, False),
            "C++ loop, torch::optim::SGD": Ours(a.program, "loop", a.batch, amp, last),
            "DistributedDataParallel, torch::optim::SGD": Ours(a.program, "torch", a.batch, amp, last),
            "DistributedDataParallel, FusedSGD": Ours(a.program, "fused", a.batch, amp, last),
            "DistributedDataParallel, lockstep::optim::SGD": Ours(a.program, "lockstep", a.batch, amp, last),
            "the same, deterministic": Ours(a.program, "lockstep", a.batch, amp, last, "--exact"),
        }
        if a.compile and (one := compiled(a.batch, amp, last)):
            contenders["Python, torch.compile, SGD(fused=True)"] = one
        times = {name: [] for name in contenders}
        for name, one in contenders.items():
            one.turn(10)
        for _ in range(a.rounds):
            for name, one in contenders.items():
                times[name].append(one.turn(a.steps))
        best = [min(pair) for pair in zip(*list(times.values())[:2])]
        for name, all_of in times.items():
            ratio = statistics.median(t / b for t, b in zip(all_of, best))
            print(json.dumps({"case": case, "batch": a.batch, "contender": name,
                              "ms": round(statistics.median(all_of), 3), "low": round(min(all_of), 3),
                              "high": round(max(all_of), 3), "ratio": round(ratio, 3),
                              "idle": idle(contenders[name], statistics.median(all_of))}), flush=True)
        for one in contenders.values():
            if isinstance(one, Ours):
                one.process.kill()
        del contenders
        torch.cuda.empty_cache()


sys.exit(main())
