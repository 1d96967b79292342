"""A checkpoint of ours in Python: its weights are a state_dict, its optimizer's state is keyed by parameter."""
import json
import pathlib
import subprocess
import tempfile
import unittest

import torch

import lockstep
from files import read_safetensors


class Net(torch.nn.Module):
    """That of examples/checkpointed_loop.cpp."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(2, 32)
        self.out = torch.nn.Linear(32, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


class Checkpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([lockstep.BIN / "example_checkpointed_loop", cls.folder.name], check=True, capture_output=True, timeout=120)
        cls.last = pathlib.Path(cls.folder.name) / "last"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_weights_load_and_know_what_they_learned(self):
        net = Net()
        net.load_state_dict(read_safetensors(self.last / "model.safetensors"), strict=True)
        points = torch.rand(4000, 2) * 2 - 1
        right = net(points).argmax(1) == (points.norm(dim=1) < 0.7).long()
        self.assertGreater(right.float().mean().item(), 0.95)

    def test_optimizer_state_is_keyed_by_parameter(self):
        net = Net()
        moments = read_safetensors(self.last / "optimizer.safetensors")
        self.assertEqual({name: value.shape for name, value in moments.items()},
                         {f"{name}/0": value.shape for name, value in net.named_parameters()})

    def test_the_rest_is_json(self):
        state = json.loads((self.last / "state.json").read_text())
        self.assertEqual(state["step"], 1000)
        self.assertEqual(state["shards"], 4)
        self.assertEqual(state["record"]["samples"], 128)
        self.assertEqual(set(state["updates"].values()), {1000})
        self.assertIn("loader", state["kept"])


if __name__ == "__main__":
    unittest.main()
