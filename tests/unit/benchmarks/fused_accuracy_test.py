"""What tests/parity/fused_accuracy.py compares, and when that is enough."""
import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "parity"))
import fused_accuracy  # noqa: E402


class FusedAccuracy(unittest.TestCase):
    def test_passes_by_the_limit_or_by_what_seeds_differ_by(self):
        verdict = fused_accuracy.verdict
        self.assertEqual(verdict([0.900, 0.900], [0.901, 0.902])[0], True)
        passed, text = verdict([0.90, 0.91], [0.905, 0.915])
        self.assertTrue(passed)
        self.assertIn("not by 0.2 points: means 0.50 points apart, seeds of one side up to 1.00", text)
        passed, text = verdict([0.900, 0.901], [0.905, 0.906])
        self.assertFalse(passed)
        self.assertIn("FAILED: means 0.50 points apart", text)

    def test_both_sides_differ_in_the_fused_layers_alone(self):
        asked = []

        def accuracy(_, data, words):
            asked.append(words)
            return 0.9

        with mock.patch.object(fused_accuracy, "accuracy", accuracy), contextlib.redirect_stdout(io.StringIO()):
            passed, lines = fused_accuracy.measure(pathlib.Path("/bin"), "mnist", pathlib.Path("/data"), 3)
        self.assertTrue(passed)
        self.assertEqual(len(asked), 2 * 3 * len(fused_accuracy.PRECISIONS))
        for plain, fused in zip(asked[::2], asked[1::2]):
            self.assertEqual([*plain, "--fuse"], fused)
        self.assertEqual(len({tuple(words) for words in asked}), len(asked))
        self.assertEqual(sum(line.startswith("| bfloat16 |") for line in lines), 3)


if __name__ == "__main__":
    unittest.main()
