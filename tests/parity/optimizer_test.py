"""Our update and torch.optim's single-tensor optimizers: the same bits after every step, for all options that change
numbers. Lion, which torch has not, is written with torch's operations here.

Two things of ATen are not followed. Its square root is MKL's, whose results are up to one unit in the
last place off and depend on the CPU; ours is correctly rounded, as IEEE 754 has it, on every machine. And
in the tails of its vector loops, as on CPUs without AVX2, ATen runs scalar code that rounds more
often; so a multiple of 64 elements is compared.
"""
import itertools
import pathlib
import tempfile
import unittest
import unittest.mock

import torch

import lockstep
from reference import ieee_sqrt

ELEMENTS = 8 * 1024
STEPS = 100
ROOT_STEPS = 10  # of training on noise, behind which a last bit of the root is no last bit of the weights any more


def cases():
    """Of each optimizer, the options that change its numbers, with each other where they meet in the formula."""
    for weight_decay, momentum in itertools.product((0.0, 0.01), (0.0, 0.9)):
        yield {"name": "SGD", "lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    for weight_decay in (0.0, 0.01):
        yield {"name": "SGD", "lr": 0.03, "momentum": 0.9, "dampening": 0.3, "weight_decay": weight_decay}
        yield {"name": "SGD", "lr": 0.03, "momentum": 0.9, "nesterov": True, "weight_decay": weight_decay}
    yield {"name": "SGD", "lr": 0.03, "momentum": 0.9, "maximize": True, "weight_decay": 0.01}
    for name, weight_decay in itertools.product(("Adam", "AdamW"), (0.0, 0.01)):
        yield {"name": name, "weight_decay": weight_decay}
        yield {"name": name, "betas": (0.3, 0.95), "eps": 1e-6, "lr": 0.02, "weight_decay": weight_decay}
        yield {"name": name, "amsgrad": True, "betas": (0.5, 0.7), "weight_decay": weight_decay}
        yield {"name": name, "maximize": True, "weight_decay": weight_decay}
    for weight_decay, maximize in itertools.product((0.0, 0.01), (False, True)):
        both = {"weight_decay": weight_decay, "maximize": maximize}
        for momentum, centered in itertools.product((0.0, 0.9), (False, True)):
            yield {"name": "RMSprop", "momentum": momentum, "centered": centered, **both}
        yield {"name": "RMSprop", "lr": 1e-3, "alpha": 0.4, "eps": 0.0316, "centered": True, **both}
        yield {"name": "Adagrad", **both}
        yield {"name": "Adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3, **both}
        yield {"name": "Adadelta", **both}
        yield {"name": "Adadelta", "lr": 0.3, "rho": 0.5, "eps": 1e-4, **both}
        for name, decoupled in itertools.product(("NAdam", "RAdam"), (False, True)):
            yield {"name": name, "decoupled_weight_decay": decoupled, **both}
            yield {"name": name, "lr": 0.02, "betas": (0.4, 0.7), "eps": 1e-6, "decoupled_weight_decay": decoupled,
                   **both}
        yield {"name": "NAdam", "momentum_decay": 1.0, **both}


    for weight_decay, maximize in itertools.product((0.0, 0.1), (False, True)):
        yield {"name": "Lion", "weight_decay": weight_decay, "maximize": maximize}
        yield {"name": "Lion", "lr": 0.01, "betas": (0.4, 0.7), "weight_decay": weight_decay, "maximize": maximize}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, program 1."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weights in group["params"]:
                gradient = -weights.grad if group["maximize"] else weights.grad
                mean = self.state[weights].setdefault("mean", torch.zeros_like(weights))
                weights.mul_(1 - group["lr"] * group["weight_decay"])
                weights.add_(mean.lerp(gradient, 1 - beta1).sign_(), alpha=-group["lr"])
                mean.lerp_(gradient, 1 - beta2)


def options_of(case: dict) -> dict:
    return {name: value for name, value in case.items() if name not in ("name", "max_norm")}


def python_optimizer(case: dict, weights: torch.Tensor) -> torch.optim.Optimizer:
    if case["name"] == "Lion":
        return Lion([weights], **options_of(case))
    one_by_one = {"foreach": False} | ({"fused": False} if case["name"] in ("SGD", "Adam", "AdamW", "Adagrad") else {})
    return getattr(torch.optim, case["name"])([weights], **options_of(case), **one_by_one)


def python_steps(case: dict, weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    weights = weights.clone()
    optimizer = python_optimizer(case, weights)
    history = []
    for gradient in gradients:
        weights.grad = gradient.clone()
        if case.get("max_norm"):
            torch.nn.utils.clip_grad_norm_([weights], case["max_norm"])
        optimizer.step()
        history.append(weights.clone())
    return torch.stack(history)


def our_steps(wanted: list, weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """The weights after each step, [cases, steps, elements]."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = pathlib.Path(folder, "before"), pathlib.Path(folder, "after")
        before.write_bytes(torch.cat([weights[None], gradients]).numpy().tobytes())
        lockstep.probe("optimizer", cases=wanted, elements=len(weights), steps=len(gradients), input=str(before),
                       output=str(after))
        return torch.frombuffer(bytearray(after.read_bytes()), dtype=torch.float32).reshape(-1, *gradients.shape)


@unittest.skipUnless(torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "ATen runs no vector code here")
class OptimizerBits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(3)
        cls.weights = torch.randn(ELEMENTS, generator=generator)
        # Sizes from 1e-8 to 1: small second moments are where an order of operations shows.
        cls.gradients = torch.randn(STEPS, ELEMENTS, generator=generator)
        cls.gradients *= 10**(-8 * torch.rand(ELEMENTS, generator=generator))
        cls.ours = our_steps(list(cases()), cls.weights, cls.gradients)

    def test_every_step_bit_for_bit(self):
        for case, ours in zip(cases(), self.ours, strict=True):
            with self.subTest(**case):
                with unittest.mock.patch.multiple(torch.Tensor, sqrt=ieee_sqrt, sqrt_=lambda x: x.copy_(ieee_sqrt(x))):
                    theirs = python_steps(case, self.weights, self.gradients)
                different = (ours.view(torch.int32) != theirs.view(torch.int32)).sum(1).tolist()
                self.assertEqual(different, [0] * STEPS, "weights with other bits, per step")

    def test_clipping_also_where_the_norm_is_not_finite(self):
        weights, gradients = self.weights[:1024], self.gradients[:2, :1024].clone()
        for number in (1.0, 1000.0, float("inf"), -float("inf"), float("nan")):
            for max_norm in (1e-3, 1e9):
                gradients[0, 77] = number
                with self.subTest(number=number, max_norm=max_norm):
                    case = {"name": "SGD", "lr": 0.1, "max_norm": max_norm}
                    torch.testing.assert_close(our_steps([case], weights, gradients)[0],
                                               python_steps(case, weights, gradients), rtol=1e-5, atol=1e-7,
                                               equal_nan=True)

    def test_torchs_square_root_changes_the_last_bits_only(self):
        for case, ours in zip(cases(), self.ours, strict=True):
            if case["name"] in ("SGD", "Lion"):
                continue
            with self.subTest(**case):
                theirs = python_steps(case, self.weights, self.gradients[:ROOT_STEPS])
                moved = (theirs - self.weights).abs().max().item()
                torch.testing.assert_close(ours[:ROOT_STEPS], theirs, rtol=1e-6, atol=2e-6 * moved)


if __name__ == "__main__":
    unittest.main()
