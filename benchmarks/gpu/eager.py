"""Python's side of the benchmark on a GPU: a process that takes steps of ResNet-50 when it is told to.

    python3 eager.py --batch N --amp none|bf16 --format contiguous|channels_last

Each line of standard input is a contender and a number of steps, "fused 20"; each line of output the milliseconds that
one of them took. A contender is made when it is first named: plain and fused are eager, with that SGD; compiled is
torch.compile with SGD(fused=True).

    python3 eager.py --facts

prints what torch says of the GPU, as JSON, or {"why": ...} where it finds none.
"""
import argparse
import json
import os
import sys
import time

import torch


def facts() -> dict:
    if torch.version.cuda is None:
        return {"why": "this torch is for CPUs only"}
    if not torch.cuda.is_available():
        return {"why": "torch finds none"}
    device = torch.cuda.get_device_properties(0)
    return {"device": device.name, "uuid": f"GPU-{device.uuid}", "memory_bytes": device.total_memory,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


class Trained:
    """On one batch that lies on the GPU."""

    def __init__(self, who: str, arguments: argparse.Namespace):
        import torchvision  # --facts needs none of it
        last = arguments.format == "channels_last"
        memory_format = torch.channels_last if last else torch.contiguous_format
        torch.manual_seed(1)
        self.model = torchvision.models.resnet50(num_classes=1000).cuda().to(memory_format=memory_format)
        fused = {} if who == "plain" else {"fused": True}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, **fused)
        self.data = torch.randn(arguments.batch, 3, 224, 224, device="cuda").contiguous(memory_format=memory_format)
        self.target = torch.randint(1000, (arguments.batch,), device="cuda")
        self.bf16 = arguments.amp == "bf16"
        self.forward = torch.compile(self.model) if who == "compiled" else self.model

    def step(self):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.bf16):
            loss = torch.nn.functional.cross_entropy(self.forward(self.data), self.target)
        loss.backward()
        self.optimizer.step()

    def turn(self, steps: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--amp", choices=["none", "bf16"], default="none")
    parser.add_argument("--format", choices=["contiguous", "channels_last"], default="channels_last")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    if arguments.facts:
        print(json.dumps(facts()), file=answers)
        return
    torch.backends.cudnn.benchmark = True
    trained = {}
    for line in iter(sys.stdin.readline, ""):
        who, steps = line.split()
        if who not in trained:
            trained[who] = Trained(who, arguments)
        print(trained[who].turn(int(steps)), file=answers)


if __name__ == "__main__":
    main()
