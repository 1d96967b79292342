"""benchmarks/beside/beside.py: equal bits, other bits, and the ratio of steps.

Usage: beside_test.py PROGRAMS, the folder of a build's programs.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = sys.argv.pop(1)
SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "benchmarks/beside/beside.py"
# A build whose weights are others. The output directory is the last word of its command.
OTHER = """#!/bin/sh
for last; do :; done
mkdir -p "$last" && echo '{"weights_hash": "0123"}' >"$last/metrics.jsonl"
"""


def beside(base, only, *more):
    return subprocess.run([sys.executable, "-B", SCRIPT, base, PROGRAMS, "--only", only, *more], capture_output=True,
                          text=True, timeout=100, check=False)


class Beside(unittest.TestCase):
    def test_a_build_trains_its_own_bits(self):
        done = beside(PROGRAMS, "sgd_nesterov")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\| `--model mlp --opt sgd_nesterov [^|]*\| 1, 2, 4 \| (\w{32}) \| \1 \| yes \|$")

    def test_other_bits_are_told(self):
        with tempfile.TemporaryDirectory() as name:
            other = pathlib.Path(name, "lockstep")
            other.write_text(OTHER)
            other.chmod(0o755)
            done = beside(name, "sgd_nesterov")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"\| 0123 \| \w{32} \| NO \|")

    def test_steps_have_a_ratio(self):
        done = beside(PROGRAMS, "convnet --channels-last", "--rounds", "2", "--seconds", "0.01")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\| `--workload convnet --channels-last` (\| [0-9.]+ ){3}\| [0-9.]+-[0-9.]+ \|$")


if __name__ == "__main__":
    unittest.main()
