"""The recipe finetune-resnet34 with small pictures has the losses that Python has with the same random numbers.

What losses_test.py leaves out: weights and head of a seed, an order and an augmentation that are ours from the first
draw to the picture, and evaluations between the epochs.
"""
import json
import pathlib
import subprocess
import tempfile
import unittest

import torch

import lockstep
import same_draws

SEED, SIDE, EPOCHS, STEPS = 3, 48, 2, 5
LIMIT = 1e-4  # relative: what Adam makes of the last bits in ten steps. Another picture in a batch is 1e-2 and more


class Steps(unittest.TestCase):
    def test_of_finetune_resnet34(self):
        lockstep.need_data("flowers/train", "flowers/val")
        torch.set_num_threads(1)
        ours = self.losses_of_ours()
        theirs = sum(same_draws.finetune_losses(lockstep.DATA / "flowers" / "train", SIDE, SEED, EPOCHS, STEPS), [])
        self.assertEqual(len(theirs), EPOCHS * STEPS)
        apart = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
        print(f"finetune-resnet34: loss {theirs[0]:.4f} to {min(theirs):.4f}, relative differences "
              + " ".join(f"{one:.1e}" for one in apart), flush=True)
        self.assertLessEqual(apart[0], 1e-6)
        self.assertLessEqual(max(apart), LIMIT)

    def losses_of_ours(self) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            flags = {"recipe": "finetune-resnet34", "data-path": lockstep.DATA / "flowers", "train-split": "train",
                     "val-split": "val", "head": "512,relu,5", "transforms": f"auto_augment,resize={SIDE}x{SIDE},to_tensor",
                     "epochs": EPOCHS, "limit-train-batches": STEPS, "seed": SEED, "threads": 1, "print-freq": 1,
                     "output-dir": folder}
            named = [word for name, value in flags.items() for word in (f"--{name}", value)]
            subprocess.run(lockstep.command_line(*named), check=True, timeout=lockstep.DEADLINE_SECONDS,
                           stdout=subprocess.DEVNULL)
            lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
        return lockstep.losses([json.loads(line) for line in lines])


if __name__ == "__main__":
    unittest.main()
