"""The same training by Python's DistributedDataParallel and by `lockstep train`: the same losses.

  losses_test.py Digits | Mnist | Folder

Same initial weights (a file that Lockstep wrote), samples, order, optimizer; two processes with one
thread each. Kernels and arithmetic are the same on both sides but for the square root of Adam (see
optimizer_test.py); with a correctly rounded root in PyTorch, too, the losses are equal at any rate:
the control of Digits.
"""
import dataclasses
import itertools
import pathlib
import tempfile
import unittest

import lockstep
import reference
from reference import Job

STEPS = 100
LIMIT = 1e-6  # relative difference of a loss
ADAMS_LIMIT = 1e-5  # for the square root
OPTIMIZERS = {
    "sgd": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 1e-4},
    "sgd_nesterov": {"lr": 1e-2, "momentum": 0.9},
    "adam": {"lr": 1e-4, "weight_decay": 1e-4},
    "adamw": {"lr": 1e-4, "weight_decay": 1e-2},
}
TORCHVISIONS_FLAGS = {"lr": 0.05, "weight_decay": 1e-3, "bias_weight_decay": 0.01, "label_smoothing": 0.1,
                      "clip_grad_norm": 0.5, "lr_scheduler": "steplr", "lr_step_size": 1, "lr_warmup_epochs": 1,
                      "lr_warmup_method": "linear", "lr_warmup_decay": 0.1}
# Adam divides by the root of v, and torch's root is MKL's, which is not always the nearest number. In
# the ConvNet that last bit is amplified: a convolution's bias before BatchNorm has rounding noise for a
# gradient, which Adam makes as large as any other. A smaller rate keeps it below the limit.
CONVNET_ADAM_LR = 1e-5
# Samples per process and step. 448 makes an epoch of 60,000 end at step 67, by a smaller batch.
BATCH = {"mlp": 448, "convnet": 25}


def relative_differences(ours: list[float], theirs: list[float]) -> list[float]:
    return [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]


class Losses:
    """What the sets have in common. A subclass's class method make_data(folder) gives the folder of IDX files."""
    dataset = ""

    @classmethod
    def setUpClass(cls):
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.folder = pathlib.Path(scratch)
        data_path = cls.make_data(cls.folder)
        cls.jobs = cls.make_jobs(data_path)
        cls.expected = reference.run(cls.jobs, cls.folder / "reference.json")

    @classmethod
    def make_jobs(cls, data_path) -> list[Job]:
        jobs = [cls.make_job(model, opt, data_path) for model, opt in itertools.product(BATCH, OPTIMIZERS)]
        for model, options in {"mlp": {"amp": "bf16"}, "convnet": {"amp": "bf16", "channels_last": True}}.items():
            jobs.append(dataclasses.replace(cls.make_job(model, "sgd", data_path), **options))
        jobs.append(dataclasses.replace(cls.make_job("mlp", "sgd", data_path), amp="fp16"))
        # Two epochs, so that the rate changes.
        jobs.append(dataclasses.replace(cls.make_job("mlp", "sgd", data_path), **TORCHVISIONS_FLAGS))
        return jobs

    @classmethod
    def make_job(cls, model: str, opt: str, data_path) -> Job:
        weights = cls.folder / f"{model}.safetensors"
        if not weights.exists():
            lockstep.initial_weights(model, 5, weights)
        options = dict(OPTIMIZERS[opt])
        if model == "convnet" and opt.startswith("adam"):
            options["lr"] = CONVNET_ADAM_LR
        return Job(model, cls.dataset, str(data_path), opt, batch_size=BATCH[model], max_steps=STEPS,
                   weights=str(weights), seed=7, **options)

    def test_losses_of_every_step(self):
        for job, expected in zip(self.jobs, self.expected, strict=True):
            with self.subTest(model=job.model, opt=job.opt, ieee_sqrt=job.ieee_sqrt):
                events = lockstep.train(job, tempfile.mkdtemp(dir=self.folder))
                theirs = expected["losses"]
                worst = max(relative_differences(lockstep.losses(events), theirs))
                print(f"{self.dataset} {job.model} {job.opt} lr {job.lr}{' ieee_sqrt' * job.ieee_sqrt}"
                      f"{f' {job.amp}' if job.amp else ''}{' channels-last' * job.channels_last}: "
                      f"loss {theirs[0]:.4f} to {min(theirs):.4f}, largest relative difference {worst:.1e}", flush=True)
                self.assertEqual(len(theirs), job.max_steps)
                self.assertEqual(lockstep.scales(events), expected["scales"])
                self.assertLess(min(theirs), 0.9 * theirs[0], "nothing was learned: the comparison shows little")
                limit = ADAMS_LIMIT if job.opt.startswith("adam") else LIMIT
                self.assertLessEqual(worst, 0 if job.ieee_sqrt else limit)


class Digits(Losses, unittest.TestCase):
    dataset = "digits"

    @classmethod
    def make_data(cls, folder):
        lockstep.probe("digits", folder=str(folder))
        return folder

    @classmethod
    def make_jobs(cls, data_path) -> list[Job]:
        control = dataclasses.replace(cls.make_job("convnet", "adam", data_path), lr=1e-4, ieee_sqrt=True)
        # One job has them built in; to draw them takes longer than a job, so the others read them from the files.
        built_in, *jobs = [*super().make_jobs(data_path), control]
        return [built_in, *(dataclasses.replace(job, dataset="mnist") for job in jobs)]


class Mnist(Losses, unittest.TestCase):
    dataset = "mnist"

    @classmethod
    def make_data(cls, folder):
        lockstep.need_data(*lockstep.MNIST_FILES)
        return lockstep.DATA / "mnist"

    @classmethod
    def make_jobs(cls, data_path) -> list[Job]:
        """What differs from Digits is the data."""
        return [cls.make_job(model, opt, data_path) for model in BATCH for opt in ("sgd", "adam")]


class Folder(Losses, unittest.TestCase):
    """JPEG files by torchvision's ImageFolder, its ResNet-18, and ours."""
    dataset = "imagefolder"

    @classmethod
    def make_data(cls, folder):
        lockstep.need_data("cifar10-small/train", "cifar10-small/val")
        return lockstep.DATA / "cifar10-small"

    @classmethod
    def make_jobs(cls, data_path) -> list[Job]:
        weights = cls.folder / "resnet18_cifar.safetensors"
        lockstep.initial_weights("resnet18_cifar", 5, weights, "--dataset", "cifar10", "--data-path", ".")
        plain = Job("resnet18_cifar", cls.dataset, str(data_path), "sgd", batch_size=8, max_steps=12, seed=7,
                    weights=str(weights), transforms="none", lr=2e-2)
        return [plain, dataclasses.replace(plain, amp="bf16", channels_last=True)]


if __name__ == "__main__":
    unittest.main()
