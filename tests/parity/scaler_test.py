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


def python_run(case: dict) -> dict:
    weights = torch.tensor(case["weights"], requires_grad=True)
    make = {"SGD": lambda lr: torch.optim.SGD([weights], lr=lr, momentum=0.9),
            "Adam": lambda lr: torch.optim.Adam([weights], lr=lr)}
    optimizer = make[case["optimizer"]](case["lr"])
    scaler = torch.amp.GradScaler("cpu", **case["scaler"])
    scales = []
    for gradient in case["gradients"]:
        numbers = torch.tensor([float("inf") if x is None else x for x in gradient])
        optimizer.zero_grad()
        scaler.scale((weights * numbers).sum()).backward()
        scaler.unscale_(optimizer)
        if case["max_norm"]:
            torch.nn.utils.clip_grad_norm_([weights], case["max_norm"])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": scales, "weights": weights.detach()}


class Scaler(unittest.TestCase):
    def test_trajectories(self):
        cases = make_cases()
        done = subprocess.run([lockstep.BIN / "scaler_probe"], input=json.dumps(cases), text=True, check=True,
                              capture_output=True, timeout=120)
        for case, line in zip(cases, done.stdout.splitlines(), strict=True):
            with self.subTest(scaler=case["scaler"], optimizer=case["optimizer"], max_norm=case["max_norm"]):
                ours, theirs = json.loads(line), python_run(case)
                self.assertEqual(ours["scales"], theirs["scales"])
                if case["scaler"]:
                    self.assertGreater(len(set(theirs["scales"])), 1, "the scale did not move")
                worst = (torch.tensor(ours["weights"]) - theirs["weights"]).abs().max() / theirs["weights"].abs().max()
                self.assertLessEqual(worst, LIMIT)


if __name__ == "__main__":
    unittest.main()
