"""torchrun's own report quotes what our trainer says of its failure."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import lockstep

TRAINER = str(lockstep.BIN / "lockstep-trainer")


def torchrun(*arguments, workers: int = 2, **variables) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}",
               "--no-python", TRAINER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=lockstep.DEADLINE_SECONDS,
                          env={**os.environ, **variables})


class ErrorFile(unittest.TestCase):
    def test_a_failure_in_the_run(self):
        missing = "/no/such/folder"
        ended = torchrun("--dataset", "mnist", "--data-path", missing)
        self.assertNotEqual(ended.returncode, 0)
        quoted = [line for line in ended.stderr.splitlines() if line.strip().startswith("traceback :")]
        self.assertTrue(any(missing in line for line in quoted), ended.stderr)

    def test_wrong_use(self):
        ended = torchrun("--learning-rat", 1)
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, r"traceback :.*--learning-rat")

    def test_it_is_what_the_readers_of_torchelastic_expect(self):
        from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "error.json")
            ended = subprocess.run([TRAINER, "--learning-rat", "1"], capture_output=True, text=True,
                                   timeout=lockstep.DEADLINE_SECONDS,
                                   env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(file)})
            self.assertEqual(ended.returncode, 2)
            failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
            self.assertIn(failure.message["message"], ended.stderr)
            self.assertEqual(failure.timestamp, int(json.loads(file.read_text())["message"]["extraInfo"]["timestamp"]))

    def test_a_rank_that_is_silent_leaves_it_too(self):
        """The launcher may find it first, and end rank 0 before that has said why."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "error.json")
            place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
                     "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
            ended = subprocess.run([TRAINER, "--learning-rat", "1"], capture_output=True, text=True,
                                   timeout=lockstep.DEADLINE_SECONDS,
                                   env={**os.environ, **place, "TORCHELASTIC_ERROR_FILE": str(file)})
            self.assertEqual((ended.returncode, ended.stderr), (2, ""))
            self.assertIn("--learning-rat", file.read_text())

    def test_a_run_that_succeeds_leaves_none(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "error.json")
            subprocess.run([TRAINER, "--dataset", "digits", "--max-steps", "1", "--no-eval"], check=True,
                           capture_output=True, timeout=lockstep.DEADLINE_SECONDS,
                           env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(file)})
            self.assertFalse(file.exists())


if __name__ == "__main__":
    unittest.main()
