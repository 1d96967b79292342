"""Our schedules and torch.optim.lr_scheduler: the same rate and momentum after every step, and the same weights.

Python multiplies from step to step where ours are closed forms, so the last bits differ: by 1e-12 of the rate at most, in
200 steps. A rate of 0 is 0 in both. Weights that our optimizer has trained under our schedule, and torch's under torch's,
with the same gradients and a square root that is rounded correctly, differ by 1e-6 of the largest at most.
"""
import functools
import json
import subprocess
import unittest
import unittest.mock
import warnings

import torch
from torch.optim import lr_scheduler

from lockstep import BIN
from reference import ieee_sqrt

STEPS = 200
RELATIVE = 1e-12
OF_THE_LARGEST = 1e-6
GRADIENTS = ((37 * torch.arange(STEPS)[:, None] + 101 * torch.arange(64)) % 257 - 128) / 128  # those of the probe
OPTIMIZERS = {"SGD": functools.partial(torch.optim.SGD, momentum=0.9), "Adam": torch.optim.Adam}
FALLING = [1 / (1 + 0.05 * t) for t in range(STEPS + 1)]
WAVING = [1 + 0.1 * (-1)**t / (1 + t) for t in range(STEPS + 1)]


def schedule(name: str, **options) -> dict:
    return {"name": name, **options}


def sequence(milestones: list[int], *members: dict) -> dict:
    return schedule("SequentialLR", schedulers=list(members), milestones=milestones)


def chain(*members: dict) -> dict:
    return schedule("ChainedScheduler", schedulers=list(members))


FACTORS = [
    schedule("ConstantLR"),
    schedule("ConstantLR", factor=0.1, total_iters=40),
    schedule("ConstantLR", factor=1.0, total_iters=1),
    schedule("LinearLR"),
    schedule("LinearLR", start_factor=1e-3, total_iters=100),
    *(schedule("LinearLR", start_factor=1.0, end_factor=0.0, total_iters=n) for n in (7, 30, 120, 199)),
    schedule("LinearLR", start_factor=0.7, end_factor=0.2, total_iters=300),
    schedule("StepLR", step_size=30),
    schedule("StepLR", step_size=1, gamma=0.9),
    schedule("StepLR", step_size=7, gamma=1.05),
    schedule("MultiStepLR", milestones=[30, 80, 81]),
    schedule("MultiStepLR", milestones=[0, 5, 5, 190, 500], gamma=0.3),
    schedule("MultiStepLR", milestones=[]),
    schedule("ExponentialLR", gamma=0.95),
    schedule("ExponentialLR", gamma=1.01),
    schedule("ExponentialLR", gamma=0.0),
    schedule("PolynomialLR"),
    schedule("PolynomialLR", total_iters=150, power=0.9),
    schedule("PolynomialLR", total_iters=1000, power=2.5),
    schedule("PolynomialLR", total_iters=50, power=0.0),
    schedule("LambdaLR", lr_lambda=FALLING),
    schedule("MultiplicativeLR", lr_lambda=WAVING),
    schedule("MultiplicativeLR", lr_lambda=[5.0, *[0.97] * STEPS]),
]
COSINES = [
    *(schedule("CosineAnnealingLR", T_max=period) for period in (1, 2, 3, 13, 50, 100, 199, 200, 1000)),
    *(schedule("CosineAnnealingLR", T_max=period, eta_min=0.003) for period in (1, 7, 64, 200)),
    schedule("CosineAnnealingLR", T_max=20, eta_min=0.5),
    *(schedule("CosineAnnealingWarmRestarts", T_0=first) for first in (1, 10, 33, 400)),
    *(schedule("CosineAnnealingWarmRestarts", T_0=first, T_mult=mult, eta_min=1e-4)
      for first, mult in ((1, 2), (10, 2), (7, 3), (20, 1))),
]
CYCLES = [
    schedule("CyclicLR", base_lr=0.01, max_lr=0.1),
    *(schedule("CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=up, step_size_down=down, mode=mode, gamma=gamma)
      for up, down in ((10, 10), (7, 13), (3, 0), (1, 1))
      for mode, gamma in (("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.99))),
    schedule("CyclicLR", base_lr=0.2, max_lr=0.02, step_size_up=6, base_momentum=0.5, max_momentum=0.99),
    schedule("CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=9, cycle_momentum=False),
    *(schedule("CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=9, scale_fn=0.1, scale_mode=mode)
      for mode in ("cycle", "iterations")),
    *(schedule("OneCycleLR", max_lr=0.1, total_steps=STEPS, three_phase=three, anneal_strategy=curve, pct_start=part)
      for three in (False, True) for curve in ("cos", "linear") for part in (0.3, 0.25, 0.0, 0.45)),
    schedule("OneCycleLR", max_lr=0.1, epochs=20, steps_per_epoch=11, div_factor=10.0, final_div_factor=100.0),
    schedule("OneCycleLR", max_lr=0.1, total_steps=1000, base_momentum=0.7, max_momentum=0.8),
    schedule("OneCycleLR", max_lr=0.1, total_steps=300, cycle_momentum=False),
]
WARM_UP = schedule("LinearLR", start_factor=0.01, total_iters=20)
COSINE = schedule("CosineAnnealingLR", T_max=180)
ONE_CYCLE = schedule("OneCycleLR", max_lr=0.3, total_steps=250)
CYCLIC = schedule("CyclicLR", base_lr=0.02, max_lr=0.08, step_size_up=8)
SEQUENCES = [
    sequence([20], WARM_UP, COSINE),
    sequence([20], WARM_UP, schedule("CosineAnnealingLR", T_max=30, eta_min=1e-3)),
    sequence([15], WARM_UP, schedule("CosineAnnealingWarmRestarts", T_0=12, T_mult=2)),
    sequence([20], schedule("ConstantLR", factor=0.1, total_iters=20), schedule("ExponentialLR", gamma=0.9)),
    sequence([1, 2, 60, 199], WARM_UP, schedule("PolynomialLR", total_iters=40), schedule("StepLR", step_size=9),
             schedule("MultiStepLR", milestones=[0, 10]), schedule("ConstantLR")),
    sequence([30, 70], COSINE, schedule("MultiplicativeLR", lr_lambda=WAVING), schedule("LambdaLR", lr_lambda=FALLING)),
    sequence([30, 70], schedule("MultiplicativeLR", lr_lambda=[0.98] * 201),
             schedule("MultiplicativeLR", lr_lambda=WAVING), schedule("MultiplicativeLR", lr_lambda=FALLING)),
    sequence([10], schedule("CosineAnnealingWarmRestarts", T_0=12), schedule("ExponentialLR", gamma=0.99)),
    sequence([50], ONE_CYCLE, COSINE),
    sequence([50], WARM_UP, ONE_CYCLE),
    sequence([150], schedule("CosineAnnealingLR", T_max=30, eta_min=1e-3), ONE_CYCLE),
    sequence([25], CYCLIC, COSINE),
    sequence([25], WARM_UP, CYCLIC),
    sequence([25, 60], COSINE, CYCLIC, WARM_UP),
    sequence([25, 60], CYCLIC, {**CYCLIC, "max_momentum": 0.95}, WARM_UP),
    sequence([20], schedule("ConstantLR", factor=0.0, total_iters=20), COSINE),
    sequence([], schedule("StepLR", step_size=50)),
]
BELOW_ZERO = chain(schedule("CosineAnnealingLR", T_max=30, eta_min=1e-3), schedule("CosineAnnealingLR", T_max=50))
CHAINS = [
    chain(WARM_UP, schedule("MultiStepLR", milestones=[60, 120])),
    chain(WARM_UP, COSINE),
    chain(schedule("CosineAnnealingLR", T_max=40), WARM_UP, schedule("ExponentialLR", gamma=0.99)),
    chain(schedule("ExponentialLR", gamma=0.99), schedule("CosineAnnealingLR", T_max=30, eta_min=1e-3)),
    BELOW_ZERO,
    chain(schedule("ConstantLR"), schedule("PolynomialLR", total_iters=100), schedule("StepLR", step_size=30)),
    chain(schedule("MultiplicativeLR", lr_lambda=WAVING), schedule("MultiStepLR", milestones=[0, 50], gamma=0.5)),
    chain(schedule("LambdaLR", lr_lambda=FALLING), schedule("ConstantLR", total_iters=30)),
    chain(schedule("ConstantLR", total_iters=30), schedule("LambdaLR", lr_lambda=FALLING), WARM_UP),
    chain(schedule("CosineAnnealingWarmRestarts", T_0=12, eta_min=1e-3), schedule("StepLR", step_size=5)),
    chain(CYCLIC, schedule("ExponentialLR", gamma=0.9), COSINE),
    chain(WARM_UP, CYCLIC, schedule("MultiplicativeLR", lr_lambda=WAVING)),
    chain(WARM_UP, ONE_CYCLE, schedule("LambdaLR", lr_lambda=FALLING)),
    chain(ONE_CYCLE, COSINE),
    chain(schedule("StepLR", step_size=50)),
]
REFUSED_BY_BOTH = [
    schedule("ConstantLR", factor=1.1),
    schedule("ConstantLR", factor=-0.1),
    schedule("ConstantLR", factor=0.0),
    schedule("LinearLR", start_factor=0.0),
    schedule("LinearLR", start_factor=1.1),
    schedule("LinearLR", end_factor=-0.1),
    schedule("LinearLR", end_factor=1.1),
    schedule("StepLR", step_size=0),
    schedule("PolynomialLR", total_iters=10, power=-1.0),
    schedule("CosineAnnealingLR", T_max=0),
    schedule("CosineAnnealingWarmRestarts", T_0=0),
    schedule("CosineAnnealingWarmRestarts", T_0=5, T_mult=0),
    schedule("CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=0),
    schedule("OneCycleLR", max_lr=0.1),
    schedule("OneCycleLR", max_lr=0.1, epochs=3),
    schedule("OneCycleLR", max_lr=0.1, total_steps=-1),
    schedule("OneCycleLR", max_lr=0.1, total_steps=300, pct_start=1.1),
    schedule("OneCycleLR", max_lr=0.1, total_steps=300, div_factor=0.0),
    schedule("OneCycleLR", max_lr=0.1, total_steps=10, pct_start=0.1),
    schedule("OneCycleLR", max_lr=0.1, total_steps=STEPS, pct_start=1.0),
    schedule("OneCycleLR", max_lr=0.1, total_steps=STEPS - 1),
    sequence([20], WARM_UP),
    sequence([], WARM_UP, COSINE),
    sequence([]),
    sequence([20], WARM_UP, chain(COSINE)),
    sequence([20], WARM_UP, sequence([], COSINE)),
    chain(),
]


def python_scheduler(optimizer: torch.optim.Optimizer, options: dict) -> lr_scheduler.LRScheduler:
    rest = {name: value for name, value in options.items() if name != "name"}
    if "schedulers" in rest:
        rest["schedulers"] = [python_scheduler(optimizer, member) for member in rest["schedulers"]]
    if "lr_lambda" in rest:
        rest["lr_lambda"] = options["lr_lambda"].__getitem__
    if "scale_fn" in rest:
        rest["scale_fn"] = lambda x: 1 / (1 + options["scale_fn"] * x)
    return getattr(lr_scheduler, options["name"])(optimizer=optimizer, **rest)


def arguments_of(case: dict) -> list[tuple]:
    """Of each call of step()."""
    return [(float("nan") if x is None else x,) for x in case["metrics"]] if "metrics" in case else [()] * case["steps"]


def python_rates(case: dict, kind: type = torch.optim.SGD) -> list[list[float]]:
    """Rate and momentum at t = 0, 1, ..., or of ReduceLROnPlateau behind each metric."""
    optimizer = kind([torch.zeros(1, requires_grad=True)], lr=case["base_lr"])
    scheduler = python_scheduler(optimizer, case["schedule"])

    def rate():
        group = optimizer.param_groups[0]
        return [scheduler.get_last_lr()[0], group["betas"][0] if "betas" in group else group["momentum"]]

    found = [] if "metrics" in case else [rate()]
    for argument in arguments_of(case):
        optimizer.step()
        scheduler.step(*argument)
        found.append(rate())
    return found


@unittest.mock.patch.object(torch.Tensor, "sqrt", ieee_sqrt)  # see optimizer_test.py
def python_weights(case: dict) -> torch.Tensor:
    weights = torch.zeros(64, requires_grad=True)
    optimizer = OPTIMIZERS[case["optimizer"]]([weights], lr=case["base_lr"], foreach=False)
    scheduler = python_scheduler(optimizer, case["schedule"])
    for gradient, argument in zip(GRADIENTS, arguments_of(case), strict=True):
        weights.grad = gradient
        optimizer.step()
        scheduler.step(*argument)
    return weights.detach()


def answers(cases: list[dict]) -> list:
    done = subprocess.run([BIN / "schedule_probe"], input=json.dumps(cases), text=True, check=True, timeout=120,
                          stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Comparison(unittest.TestCase):
    def compare(self, cases: list[dict], kind: type = torch.optim.SGD, untouched: float = 0.0):
        warnings.simplefilter("ignore")
        for case, ours in zip(cases, answers(cases), strict=True):
            with self.subTest(**case["schedule"]):
                theirs = python_rates(case, kind)
                self.assertIsInstance(ours, list, ours)
                for t, (our, their) in enumerate(zip(ours, theirs, strict=True)):
                    self.assertAlmostEqual(our[0], their[0], msg=f"rate at {t}",
                                           delta=RELATIVE * abs(their[0]))
                    momentum = untouched if our[1] is None else our[1]
                    self.assertAlmostEqual(momentum, their[1], msg=f"momentum at {t}", delta=RELATIVE)

    def compare_weights(self, cases: list[dict], optimizer: str = "SGD"):
        warnings.simplefilter("ignore")
        cases = [{**case, "optimizer": optimizer} for case in cases]
        equal = 0
        for case, ours in zip(cases, answers(cases), strict=True):
            with self.subTest(optimizer=optimizer, **case["schedule"]):
                self.assertIsInstance(ours, list, ours)
                ours, theirs = torch.tensor(ours), python_weights(case)
                self.assertGreater(theirs.abs().max(), 0)
                self.assertLessEqual((ours - theirs).abs().max(), OF_THE_LARGEST * theirs.abs().max())
                equal += torch.equal(ours, theirs)
        print(f"{optimizer}: {len(cases)} cases, the weights of {equal} are equal to the bit", flush=True)


class Schedules(Comparison):
    def compare_schedules(self, schedules: list[dict]):
        self.compare([{"schedule": one, "base_lr": 0.1, "steps": STEPS} for one in schedules])

    def test_factors(self):
        self.compare_schedules(FACTORS)

    def test_cosines(self):
        self.compare_schedules(COSINES)

    def test_roundings_at_the_bottom_of_a_cosine_stay(self):
        """The plain cosine is 3e-12 off behind a bottom of 382 steps."""
        self.compare([{"schedule": schedule("CosineAnnealingLR", T_max=382), "base_lr": 0.1, "steps": 1200}])

    def test_cycles(self):
        self.compare_schedules(CYCLES)

    def test_sequences(self):
        self.compare_schedules(SEQUENCES)

    def test_chains(self):
        self.compare_schedules(CHAINS)

    def test_momentum_is_adams_beta1(self):
        self.compare([{"schedule": one, "base_lr": 0.1, "steps": STEPS}
                      for one in (CYCLIC, ONE_CYCLE, COSINE, sequence([25, 60], COSINE, CYCLIC, WARM_UP))],
                     torch.optim.Adam, 0.9)

    def test_weights(self):
        self.compare_weights([{"schedule": one, "base_lr": 0.1, "steps": STEPS}
                              for one in (*FACTORS, *COSINES, *CYCLES, *SEQUENCES, *CHAINS) if one is not BELOW_ZERO])

    def test_weights_of_adam(self):
        self.compare_weights([{"schedule": one, "base_lr": 0.1, "steps": STEPS} for one in CYCLES], "Adam")

    def test_a_rate_below_zero_is_refused_by_the_optimizer(self):
        """Python's goes uphill."""
        case = {"schedule": BELOW_ZERO, "base_lr": 0.1, "steps": STEPS}
        self.assertLess(min(rate for rate, _ in python_rates(case)), 0)
        self.assertIn("lr is -", answers([{**case, "optimizer": "SGD"}])[0]["error"])

    def test_refused_by_both(self):
        warnings.simplefilter("ignore")
        cases = [{"schedule": one, "base_lr": 0.1, "steps": STEPS} for one in REFUSED_BY_BOTH]
        for case, ours in zip(cases, answers(cases), strict=True):
            with self.subTest(**case["schedule"]):
                self.assertIn("error", ours)
                with self.assertRaises((ValueError, ZeroDivisionError, NotImplementedError)):
                    python_rates(case)


class Groups(unittest.TestCase):
    """Two parameter groups with schedules of their own: Python's lists of lambdas and of rates."""

    def test_rates(self):
        two = [
            ([schedule("LambdaLR", lr_lambda=FALLING), schedule("LambdaLR", lr_lambda=WAVING)], [0.1, 0.4]),
            ([schedule("OneCycleLR", max_lr=rate, total_steps=STEPS + 1) for rate in (0.1, 0.7)], [0.1, 0.1]),
            ([schedule("CyclicLR", base_lr=base, max_lr=top, step_size_up=8) for base, top in ((0.01, 0.1), (0.2, 0.3))],
             [0.1, 0.1]),
            ([schedule("ReduceLROnPlateau", factor=0.5, patience=20, min_lr=low) for low in (0.02, 0.1)], [0.1, 0.4]),
        ]
        cases = [{"groups": [{"schedule": one, "base_lr": lr} for one, lr in zip(schedules, rates, strict=True)],
                  "steps": STEPS, "metrics": [1 / (1 + t // 30) for t in range(STEPS)]} for schedules, rates in two]
        for case, ours in zip(cases, answers(cases), strict=True):
            options = [group["schedule"] for group in case["groups"]]
            with self.subTest(options[0]["name"]):
                theirs = torch.tensor(self.python_rates(case, options), dtype=torch.float64)
                difference = (torch.tensor(ours, dtype=torch.float64) - theirs).abs()
                self.assertLessEqual((difference / theirs.abs()).max(), RELATIVE)
                self.assertGreater((theirs[:, 0, 0] - theirs[:, 1, 0]).abs().min(), 0, "two rates")

    @staticmethod
    def python_rates(case: dict, options: list[dict]) -> list:
        optimizer = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": group["base_lr"]}
                                     for group in case["groups"]], momentum=0.9)
        both = dict(options[0])
        for name in {"max_lr", "base_lr", "min_lr"} & set(both):
            both[name] = [one[name] for one in options]
        if "lr_lambda" in both:
            both["lr_lambda"] = [one["lr_lambda"].__getitem__ for one in options]
        scheduler = getattr(lr_scheduler, both.pop("name"))(optimizer, **both)
        looks = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        found = []
        for value in [*case["metrics"], None]:
            found.append([[group["lr"], group["momentum"]] for group in optimizer.param_groups])
            optimizer.step()
            if value is not None:
                scheduler.step(*[value] * looks)
        return found


class Plateau(Comparison):
    """On metrics that get better, worse, and waver."""

    @classmethod
    def setUpClass(cls):
        generator = torch.Generator().manual_seed(5)
        noise = torch.randn(STEPS, generator=generator, dtype=torch.float64)
        falling = torch.exp(-torch.arange(STEPS) / 40.0).double()
        metrics = {
            "noisy": (falling + 0.02 * noise).tolist(),
            "noise": noise.tolist(),
            "rising": (2 - falling + 0.001 * noise).tolist(),
            "still": [1.0] * STEPS,
            "missing": [None if i % 7 == 0 else x for i, x in enumerate((falling + 0.1 * noise).tolist())],
        }
        sets = [{}, {"patience": 0}, {"patience": 3, "factor": 0.5, "cooldown": 4}, {"patience": 1, "cooldown": 1},
                {"patience": 2, "factor": 0.7, "min_lr": 0.02}, {"patience": 2, "factor": 0.9, "eps": 1e-3},
                {"patience": 4, "factor": 0.0}, {"patience": 1, "factor": 0.8, "min_lr": 0.2}]
        thresholds = [{}, {"threshold": 0.05}, {"threshold": 0.01, "threshold_mode": "abs"}, {"threshold": 0.0},
                      {"threshold": 1.0}]
        cls.cases = [{"schedule": schedule("ReduceLROnPlateau", mode=mode, **options, **threshold), "base_lr": 0.1,
                      "metrics": values} for mode in ("min", "max") for options in sets for threshold in thresholds
                     for values in metrics.values()]

    def test_options(self):
        self.compare(self.cases)

    def test_weights(self):
        self.compare_weights(self.cases)


if __name__ == "__main__":
    unittest.main()
