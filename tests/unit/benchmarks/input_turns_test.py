"""lockstep-bench-input gives everybody as many turns, in an order that rotates, after a round to warm up.

Usage: input_turns_test.py LOCKSTEP_BENCH_INPUT. Its peer is a program that notes when it is asked.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
PEER = """#!/bin/sh
echo '{"contenders": [{"name": "a", "kind": "installed"}, {"name": "b", "kind": "tuned"}], "about": "a peer"}'
while read -r number samples; do echo "$number" >>NOTES; echo 0.5; done
"""


def write_mnist(folder: pathlib.Path):
    for name, magic, shape in (("images-idx3", 0x803, (64, 28, 28)), ("labels-idx1", 0x801, (64,))):
        head = b"".join(value.to_bytes(4, "big") for value in (magic, *shape))
        (folder / f"train-{name}-ubyte").write_bytes(head + bytes(64 * 28 * 28 if len(shape) == 3 else 64))


class Turns(unittest.TestCase):
    def test_rotate_after_a_warm_up(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_mnist(folder)
            peer, notes = folder / "peer", folder / "notes"
            peer.write_text(PEER.replace("NOTES", str(notes)))
            peer.chmod(0o755)
            done = subprocess.run([PROGRAM, "--data-path", folder, "--batch-size", "8", "--rounds", "3", "--seconds",
                                   "0.01", "--peer", peer, "--json"], capture_output=True, text=True, timeout=60, check=True)
            contenders = json.loads(done.stdout)["contenders"]
            self.assertEqual([row["kind"] for row in contenders], ["ours", "installed", "tuned"])
            self.assertEqual([len(row["rates"]) for row in contenders], [3, 3, 3])
            turns = notes.read_text().split()
        # Two each to see how many samples make a turn. Then rounds that begin with ours, a, b and ours again.
        self.assertEqual((turns[:4], turns[4:]), (["0", "0", "1", "1"], ["0", "1", "0", "1", "1", "0", "0", "1"]))


if __name__ == "__main__":
    unittest.main()
