"""Our update and torch.optim's single-tensor optimizers: the same bits after every step.

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

ELEMENTS = 64 * 1024
STEPS = 10
ADAM = {"betas": (0.9, 0.999), "eps": 1e-8}
SGD = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}


def cases():
    for weight_decay, momentum in itertools.product((0.0, 0.01), (0.0, 0.9)):
        yield {"name": "sgd", **SGD, "lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    for weight_decay in (0.0, 0.01):
        yield {"name": "sgd", **SGD, "lr": 0.03, "momentum": 0.9, "dampening": 0.3, "weight_decay": weight_decay}
        yield {"name": "sgd", **SGD, "lr": 0.03, "momentum": 0.9, "nesterov": True, "weight_decay": weight_decay}
    for name, weight_decay in itertools.product(("adam", "adamw"), (0.0, 0.01)):
        yield {"name": name, **ADAM, "lr": 1e-3, "weight_decay": weight_decay}
        yield {"name": name, "betas": (0.3, 0.95), "eps": 1e-6, "lr": 0.02, "weight_decay": weight_decay}


def python_optimizer(case: dict, weights: torch.Tensor) -> torch.optim.Optimizer:
    options = {"lr": case["lr"], "weight_decay": case["weight_decay"], "foreach": False, "fused": False}
    if case["name"] == "sgd":
        return torch.optim.SGD([weights], **options, **{name: case[name] for name in SGD})
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["name"]]
    return kind([weights], **options, betas=case["betas"], eps=case["eps"])


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


def our_steps(case: dict, weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        before, after = pathlib.Path(folder, "before"), pathlib.Path(folder, "after")
        before.write_bytes(torch.cat([weights[None], gradients]).numpy().tobytes())
        lockstep.probe("optimizer", **{"max_norm": 0.0} | case, elements=len(weights), steps=len(gradients), input=str(before),
                       output=str(after))
        return torch.frombuffer(bytearray(after.read_bytes()), dtype=torch.float32).reshape(gradients.shape)


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

    def test_every_step_bit_for_bit(self):
        for case in cases():
            with self.subTest(**case):
                ours = our_steps(case, self.weights, self.gradients)
                with unittest.mock.patch.object(torch.Tensor, "sqrt", ieee_sqrt):
                    theirs = python_steps(case, self.weights, self.gradients)
                different = (ours.view(torch.int32) != theirs.view(torch.int32)).sum(1).tolist()
                self.assertEqual(different, [0] * STEPS, "weights with other bits, per step")

    def test_clipping_also_where_the_norm_is_not_finite(self):
        weights, gradients = self.weights[:1024], self.gradients[:2, :1024].clone()
        for number in (1.0, 1000.0, float("inf"), -float("inf"), float("nan")):
            for max_norm in (1e-3, 1e9):
                gradients[0, 77] = number
                with self.subTest(number=number, max_norm=max_norm):
                    case = {"name": "sgd", **SGD, "lr": 0.1, "weight_decay": 0.0, "max_norm": max_norm}
                    torch.testing.assert_close(our_steps(case, weights, gradients),
                                               python_steps(case, weights, gradients), rtol=1e-5, atol=1e-7,
                                               equal_nan=True)

    def test_torchs_square_root_changes_the_last_bits_only(self):
        for case in cases():
            if case["name"] == "sgd":
                continue
            with self.subTest(**case):
                ours = our_steps(case, self.weights, self.gradients)
                theirs = python_steps(case, self.weights, self.gradients)
                torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6 * case["lr"])


if __name__ == "__main__":
    unittest.main()
