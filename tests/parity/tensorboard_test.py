"""Event files are what TensorBoard's own reader finds in them: those of a run, and what a program adds."""
import base64
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import lockstep

BOARD = pathlib.Path(__file__).resolve().parents[2] / ".deps/board"  # by scripts/bootstrap --tests
# In a process of its own: this one has another numpy.
READER = """
import base64, json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
board = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0, "scalars": 0}).Reload()
tags = board.Tags()
found = {"scalars": {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in tags["scalars"]}}
found["images"] = {tag: [(e.step, e.width, e.height, base64.b64encode(e.encoded_image_string).decode())
                         for e in board.Images(tag)] for tag in tags["images"]}
found["histograms"] = {tag: [(e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max)
                             for e in board.Histograms(tag)] for tag in tags["histograms"]}
found["texts"] = {tag: [(e.step, tensor_util.make_ndarray(e.tensor_proto)[0].decode()) for e in board.Tensors(tag)]
                  for tag in tags["tensors"] if board.SummaryMetadata(tag).plugin_data.plugin_name == "text"}
session = {tag: plugin_data_pb2.HParamsPluginData.FromString(content)
           for tag, content in board.PluginTagToContent("hparams").items()}
values = session["_hparams_/session_start_info"].session_start_info.hparams
found["hparams"] = {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}
found["success"] = session["_hparams_/session_end_info"].session_end_info.status
json.dump(found, sys.stdout)
"""


def read(folder) -> dict:
    if not (BOARD / ".complete").exists():
        raise unittest.SkipTest("no TensorBoard: scripts/bootstrap --tests installs it")
    done = subprocess.run([(BOARD / ".python").read_text().strip(), "-c", READER, folder], capture_output=True,
                          text=True, timeout=300, env=os.environ | {"PYTHONPATH": str(BOARD)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class ReadBack(unittest.TestCase):
    def test_what_a_program_adds(self):
        with tempfile.TemporaryDirectory() as folder:
            lockstep.probe("tensorboard", folder=folder)
            found = read(folder)
        self.assertEqual(found["scalars"], {"rate": [[7, 0.25]]})
        self.assertEqual({tag: [image[:3] for image in images] for tag, images in found["images"].items()},
                         {"dots": [[7, 2, 1]]})
        self.assertTrue(base64.b64decode(found["images"]["dots"][0][3]).startswith(b"\x89PNG"))
        self.assertEqual(found["histograms"], {"weights": [[7, 4, -1, 2]]})
        self.assertEqual(found["texts"], {"note/text_summary": [[7, "**so**"]]})
        self.assertEqual(found["hparams"], {"lr": 0.5, "fuse": True, "model": "mlp"})

    def test_a_run_has_its_curves_and_hyperparameters(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "run"
            subprocess.run(lockstep.command_line("--model", "mlp", "--max-steps", 4, "--print-freq", 2, "--lr", 0.25,
                                                 "--output-dir", folder), check=True, timeout=300,
                           stdout=subprocess.DEVNULL)
            found = read(folder)
            events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            mistakes = json.loads((folder / "mistakes.json").read_text())
        losses = [[event["step"], event["loss"]] for event in events if event["event"] == "train"]
        self.assertEqual([step for step, _ in found["scalars"]["train/loss"]], [2, 4])
        for shown, (_, loss) in zip(found["scalars"]["train/loss"], losses, strict=True):
            self.assertAlmostEqual(shown[1], loss, places=5)
        evaluated = next(event for event in events if event["event"] == "eval")
        self.assertAlmostEqual(found["scalars"]["eval/top5"][0][1], evaluated["top5"], places=5)
        answers = next(event for event in events if event["event"] == "answers")
        right = [found["scalars"][f"class_accuracy/{name}"][0][1] for name in answers["classes"]]
        for share, count, samples in zip(right, answers["class_right"], answers["class_samples"], strict=True):
            self.assertAlmostEqual(share, count / samples, places=5)
        self.assertEqual(len(mistakes["pictures"]), 16)
        self.assertEqual(found["images"], {f"mistakes/{place}": [[4, 28, 28, picture]]
                                           for place, picture in enumerate(mistakes["pictures"], start=1)})
        self.assertEqual((found["hparams"]["model"], found["hparams"]["lr"], found["hparams"]["eval"]),
                         ("mlp", 0.25, True))
        self.assertEqual(found["success"], 1)
