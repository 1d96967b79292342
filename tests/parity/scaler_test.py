"""GradScaler beside Python's, with overflows put in: the same scale behind each of 100 steps, the same weights."""
import itertools
import json
import subprocess
import unittest

import torch

import lockstep

STEPS = 100
LIMIT = 1e-6  # of the largest weight
SCALERS = [
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 5},
    {"init_scale": 2.0 ** 126, "growth_interval": 1},  # grows to where float32 ends
    {},
]


def make_cases() -> list[dict]:
    generator = torch.Generator().manual_seed(3)
    cases = []
    for scaler, (optimizer, lr), max_norm in itertools.product(SCALERS, [("SGD", 0.01), ("Adam", 1e-3)], [0, 0.5]):
        size = 1e-9 if scaler.get("init_scale", 0) > 2 ** 100 else 1
        gradients = (torch.randn(STEPS, 20, generator=generator) * size).tolist()
        for step in torch.randint(STEPS, (12,), generator=generator).tolist():
            gradients[step][step % 20] = None
        weights = torch.randn(20, generator=generator).tolist()
        cases.append({"scaler": scaler, "optimizer": optimizer, "lr": lr, "max_norm": max_norm, "weights": weights,
                      "gradients": gradients})
    return cases


def python_run(case: dict, device: str) -> dict:
    weights = torch.tensor(case["weights"], device=device, requires_grad=True)
    make = {"SGD": lambda lr: torch.optim.SGD([weights], lr=lr, momentum=0.9),
            "Adam": lambda lr: torch.optim.Adam([weights], lr=lr)}
    optimizer = make[case["optimizer"]](case["lr"])
    scaler = torch.amp.GradScaler(weights.device.type, **case["scaler"])
    scales = []
    for gradient in case["gradients"]:
        numbers = torch.tensor([float("inf") if x is None else x for x in gradient], device=device)
        optimizer.zero_grad()
        scaler.scale((weights * numbers).sum()).backward()
        scaler.unscale_(optimizer)
        if case["max_norm"]:
            torch.nn.utils.clip_grad_norm_([weights], case["max_norm"])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": scales, "weights": weights.detach().cpu()}


def two_cases() -> list[dict]:
    """Two models that step before one update(), as with GANs, by optimizers of ours and of torch::optim."""
    generator = torch.Generator().manual_seed(4)
    cases = []
    for scaler, by_torchs in itertools.product(SCALERS[:2], [False, True]):
        both = torch.randn(2, STEPS, 20, generator=generator).tolist()
        for gradients in both:
            for step in torch.randint(STEPS, (8,), generator=generator).tolist():
                gradients[step][step % 20] = None
        cases.append({"scaler": scaler, "torch": by_torchs, "lr": 0.01, "gradients": both[0], "others": both[1],
                      "weights": torch.randn(20, generator=generator).tolist()})
    return cases


def python_two(case: dict, device: str) -> dict:
    both = [torch.tensor(case["weights"], device=device, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([weights], lr=case["lr"], momentum=0.9) for weights in both]
    scaler = torch.amp.GradScaler(both[0].device.type, **case["scaler"])
    scales = []
    for gradients in zip(case["gradients"], case["others"], strict=True):
        for weights, optimizer, gradient in zip(both, optimizers, gradients, strict=True):
            optimizer.zero_grad()
            numbers = torch.tensor([float("inf") if x is None else x for x in gradient], device=device)
            scaler.scale((weights * numbers).sum()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": scales, "weights": both[0].detach().cpu(), "others_weights": both[1].detach().cpu()}


def answers(cases: list[dict], device: str) -> list[dict]:
    done = subprocess.run([lockstep.BIN / "scaler_probe", device], input=json.dumps(cases), text=True, check=True,
                          capture_output=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Scaler(unittest.TestCase):
    device = "cpu"
    limit = LIMIT

    def test_two_optimizers(self):
        cases = two_cases()
        for case, ours in zip(cases, answers(cases, self.device), strict=True):
            with self.subTest(scaler=case["scaler"], torch=case["torch"]):
                theirs = python_two(case, self.device)
                self.assertEqual(ours["scales"], theirs["scales"])
                for name in ("weights", "others_weights"):
                    worst = (torch.tensor(ours[name]) - theirs[name]).abs().max() / theirs[name].abs().max()
                    self.assertLessEqual(worst, self.limit)

    def test_trajectories(self):
        cases = make_cases()
        for case, ours in zip(cases, answers(cases, self.device), strict=True):
            with self.subTest(scaler=case["scaler"], optimizer=case["optimizer"], max_norm=case["max_norm"]):
                theirs = python_run(case, self.device)
                self.assertEqual(ours["scales"], theirs["scales"])
                if case["scaler"]:
                    self.assertGreater(len(set(theirs["scales"])), 1, "the scale did not move")
                worst = (torch.tensor(ours["weights"]) - theirs["weights"]).abs().max() / theirs["weights"].abs().max()
                self.assertLessEqual(worst, self.limit)


if __name__ == "__main__":
    unittest.main()
